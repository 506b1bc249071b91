// Walks over the recorded spikes of one sample, row by row.
#pragma once

#include "snnlib/kernels/spike_record.h"
#include "snnlib/scratch.h"
#include "snnlib/srm_conv.h"

namespace snnlib {
namespace SNNLIB_ISA {

struct SpikeRowsMemory {
  Scratch<int64_t> starts;
  Scratch<int32_t> windows;
};

// Output rows [first, last) of one sample, and where their spikes are recorded.
class SpikeRows {
 public:
  SpikeRows(const SrmConvBackwardArgs& a, int64_t n, int64_t first, int64_t last, SpikeRowsMemory& memory)
      : a_(a),
        s_(a.shape),
        n_(n),
        first_(first),
        last_(last),
        starts_(memory.starts.reserve(a.shape.steps * (last - first))),
        windows_(memory.windows.reserve(s_.row())) {
    for (int64_t i = 0; i < s_.row(); ++i) {
      const int64_t window = i / s_.channels / a.pool.w, inside = window < s_.width / a.pool.w;
      windows_[i] = inside ? int32_t(window * s_.channels + i % s_.channels) : -1;
    }
    const int64_t rows = a.bands.rows;
    for (int64_t band = first / rows; band * rows < last; ++band) {
      int64_t at = a.task_starts[n * a.bands.count + band];
      const int64_t end = (band + 1) * rows < s_.height ? (band + 1) * rows : s_.height;
      for (int64_t t = 0; t < s_.steps; ++t) {
        for (int64_t y = band * rows; y < end; ++y) {
          if (y >= first && y < last) starts_[t * (last - first) + y - first] = at;
          at += count_spikes(bits(t, y), s_.row_words());
        }
      }
    }
  }

  // Calls f(place in the row, number in the record, dL/ds) for the spikes of a row. A window shares its gradient out
  // whole, in equal parts to its spikes.
  template <class F>
  void for_each(int64_t t, int64_t y, const F& f) const {
    int64_t number = start(t, y);
    if (a_.pool.none()) {
      const float* q = a_.grad_output + (a_.frames(t, n_) * s_.height + y) * s_.row();
      for_each_spike(bits(t, y), s_.row_words(), [&](int64_t place) { f(place, number++, q[place]); });
      return;
    }
    const int64_t height = s_.height / a_.pool.h, row = s_.width / a_.pool.w * s_.channels;
    const int64_t from = (a_.frames(t, n_) * height + y / a_.pool.h) * row;
    const bool outside = y / a_.pool.h >= height;
    const float cells = float(a_.pool.h * a_.pool.w);
    for_each_spike(bits(t, y), s_.row_words(), [&](int64_t place) {
      const int32_t window = windows_[place];
      const bool read = window >= 0 && !outside;
      f(place, number++, read ? a_.grad_output[from + window] / (a_.output[from + window] * cells) : 0.0f);
    });
  }

  int64_t start(int64_t t, int64_t y) const { return starts_[t * (last_ - first_) + y - first_]; }

  // No neuron has a next spike yet.
  NextSpike* no_next(Scratch<NextSpike>& memory) const {
    const int64_t neurons = (last_ - first_) * s_.row();
    NextSpike* next = memory.reserve(neurons);
    for (int64_t i = 0; i < neurons; ++i) next[i] = {0.0f, int32_t(s_.steps)};
    return next;
  }

 private:
  const uint16_t* bits(int64_t t, int64_t y) const {
    return a_.bits + (a_.frames(t, n_) * s_.height + y) * s_.row_words();
  }
  const SrmConvBackwardArgs& a_;
  const ConvShape& s_;
  const int64_t n_, first_, last_;
  int64_t* const starts_;
  int32_t* const windows_;
};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
