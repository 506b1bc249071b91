// The recorded spikes of some output rows of one sample, with the gradient that each of them gets.
#pragma once

#include <stdexcept>

#include "snnlib/core/simd.h"
#include "snnlib/core/threads.h"
#include "snnlib/layer/layer.h"
#include "snnlib/layer/rows.h"

namespace snnlib {
namespace SNNLIB_ISA {

inline int64_t count_spikes(const uint16_t* bits, int64_t words) {
  int64_t count = 0, w = 0;
  uint64_t four = 0;
  for (; w + 4 <= words; w += 4) {
    std::memcpy(&four, bits + w, 8);
    count += count_bits(four);
  }
  for (; w < words; ++w) count += count_bits(bits[w]);
  return count;
}

// Writes the places of the spikes of a row and returns their number. Silence is passed over four words at a time; else
// no branch depends on a bit. `places` needs room for all bits and kGroup.
SNNLIB_NOINLINE inline int64_t find_spikes(const uint16_t* bits, int64_t words, int32_t* places) {
  int64_t count = 0;
  for (int64_t w = 0; w < words; ++w) {
    if (w % 4 == 0 && w + 4 <= words) {
      uint64_t four = 0;
      std::memcpy(&four, bits + w, 8);
      if (!four) {
        w += 3;
        continue;
      }
    }
    const uint32_t group = bits[w];
    for (int64_t i = 0; i < kGroup; i += kLanes) {
      const uint32_t lanes = group >> i & kAllLanes;
      store_selected(places + count, lane_numbers(w * kGroup + i), lanes);
      count += count_bits(lanes);
    }
  }
  return count;
}

[[noreturn]] SNNLIB_NOINLINE inline void throw_bad_record() {
  throw std::invalid_argument("bits: expected as many spikes of each task as starts says, got others");
}

struct SpikeRowsMemory {
  Scratch<int64_t> starts;
  Scratch<int32_t> places[2];  // of a row and of the one after it
  Scratch<int32_t> windows;    // in its row of windows, of every neuron of a row; -1 for none
  Scratch<float> q, share, grad_output, output;
};

class SpikeRows {
 public:
  // Output rows [first, last).
  SpikeRows(const LayerRecord& a, int64_t n, int64_t first, int64_t last, SpikeRowsMemory& memory)
      : a_(a),
        s_(a.shape),
        memory_(memory),
        n_(n),
        first_(first),
        last_(last),
        starts_(memory.starts.reserve(a.shape.steps * (last - first))) {
    for (auto& places : memory.places) places.reserve(padded(s_.row()) + kGroup);
    memory.q.reserve(padded(s_.row()) + kGroup);
    memory.share.reserve(padded(s_.row()) + kGroup);
    memory.grad_output.reserve(s_.row());
    memory.output.reserve(s_.row());
    find_windows();
    const int64_t rows = a.bands.rows;
    for (int64_t band = first / rows; band * rows < last; ++band) {
      int64_t at = a.task_starts[n * a.bands.count + band];
      const int64_t end = (band + 1) * rows < s_.height ? (band + 1) * rows : s_.height;
      for (int64_t t = 0; t < s_.steps; ++t) {
        for (int64_t y = band * rows; y < end; ++y) {
          const uint16_t* row = bits(t, y);
          const int64_t count = count_spikes(row, s_.row_words());
          // The record is the caller's: no bit may stand for a neuron behind the row.
          if (s_.row() % 16 && row[s_.row_words() - 1] >> s_.row() % 16) throw_bad_record();
          if (y >= first && y < last) {
            starts_[t * (last - first) + y - first] = at;
            spikes_ += count;
          }
          at += count;
        }
      }
      if (at != a.task_starts[n * a.bands.count + band + 1]) throw_bad_record();
    }
    if (s_.steps * (last - first) != 0) find(0);
  }

  // Spikes of all rows and steps.
  int64_t spikes() const { return spikes_; }

  // The next row of the backward pass: steps in descending order, rows of a step in ascending. Valid until the next
  // call.
  SpikeRow next() {
    const int64_t i = next_++, rows = last_ - first_, t = s_.steps - 1 - i / rows, y = i % rows;
    const int64_t count = counts_[i % 2], number = starts_[t * rows + y];
    if (next_ < s_.steps * rows) find(next_);
    return {memory_.places[i % 2].data(), gradient(t, first_ + y, memory_.places[i % 2].data(), count),
            a_.slope + number, a_.gain + number, count};
  }

 private:
  const uint16_t* bits(int64_t t, int64_t y) const {
    return a_.bits + (a_.frames(t, n_) * s_.height + y) * s_.row_words();
  }

  // Finds the places of a row ahead of its use, and has their gradients brought into the caches: spikes are too far
  // apart to be seen coming.
  void find(int64_t i) {
    const int64_t rows = last_ - first_, t = s_.steps - 1 - i / rows, y = first_ + i % rows;
    int32_t* places = memory_.places[i % 2].data();
    const int64_t count = counts_[i % 2] = find_spikes(bits(t, y), s_.row_words(), places);
    const float* q = in_place(a_.grad_output, (a_.frames(t, n_) * s_.height + y) * s_.row());
    // Where most neurons have an entry, the rows are read as a whole.
    if (!q || !a_.pool.none() || count > s_.row() / 4) return;
    for (int64_t k = 0; k < count; ++k) prefetch(q + places[k]);
  }

  void find_windows() {
    if (a_.pool.none()) return;
    int32_t* window = memory_.windows.reserve(s_.row());
    for (int64_t x = 0; x < s_.width; ++x) {
      const int64_t pooled = x / a_.pool.w;
      for (int64_t c = 0; c < s_.channels; ++c) {
        *window++ = pooled < s_.width / a_.pool.w ? int32_t(pooled * s_.channels + c) : -1;
      }
    }
  }

  // Element `at` of a tensor of floats.
  static float element(const Elements& e, int64_t at) {
    float value = 0.0f;
    typed(e, at, [&](const auto* p) { value = to_state(*p); });
    return value;
  }

  // q of a spike at this place of a row whose windows begin at element `from`.
  float share_of(int32_t place, int64_t from) const {
    const int32_t window = memory_.windows.data()[place];
    if (window < 0) return 0.0f;
    const float grad = element(a_.grad_output, from + window), cells = float(a_.pool.h * a_.pool.w);
    if (!a_.moves_spikes()) return grad / cells;
    return grad / spikes_of_mean(element(a_.output, from + window), cells);
  }

  // q of the `count` spikes at `places`, and of other neurons of the row where most fire.
  const float* gradient(int64_t t, int64_t y, const int32_t* places, int64_t count) {
    const int64_t frame = a_.frames(t, n_), row = s_.row();
    float* q = memory_.q.data();
    if (!count) return q;
    if (a_.pool.none()) return read_floats(a_.grad_output, (frame * s_.height + y) * row, row, q);
    const int64_t height = s_.height / a_.pool.h, windows = s_.width / a_.pool.w, line = y / a_.pool.h;
    const int64_t shared = frame * height + line;
    if (shared == shared_ && line < height) return q;
    const int64_t length = line < height ? windows * s_.channels : 0, from = shared * windows * s_.channels;
    // Where few fire, a window at a time.
    if (count < row / 16) {
      shared_ = -1;
      for (int64_t i = 0; i < count; ++i) q[places[i]] = length ? share_of(places[i], from) : 0.0f;
      return q;
    }
    shared_ = shared;
    if (length) {
      const float* grad = read_floats(a_.grad_output, from, length, memory_.grad_output.data());
      const float cells = float(a_.pool.h * a_.pool.w);
      float* share = memory_.share.data();
      if (a_.moves_spikes()) {
        share_among_spikes(grad, read_floats(a_.output, from, length, memory_.output.data()), cells, length, share);
      } else {
        share_among_cells(grad, cells, length, share);
      }
      spread_out(share, windows, s_.channels, a_.pool.w, q);
    }
    std::memset(q + length * a_.pool.w, 0, size_t(row - length * a_.pool.w) * sizeof(float));
    return q;
  }

  const LayerRecord& a_;
  const ConvShape& s_;
  SpikeRowsMemory& memory_;
  const int64_t n_, first_, last_;
  int64_t* const starts_;
  int64_t spikes_ = 0, shared_ = -1, next_ = 0, counts_[2] = {};
};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
