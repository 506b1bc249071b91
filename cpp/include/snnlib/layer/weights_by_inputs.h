// Weight gradient of one band of a convolution of stride 1 from the events of its input and the dense signal a of one
// step at a time.
//
//   dW[o, c, ky, kx] += x[y, x, c] a[y + padding - ky, x + padding - kx, o]
//
// The outputs that an event sees under one kernel row lie next to each other, kx backwards: a window of the signal.
// Channel by channel the events of a step add their windows to sums in registers, so that weights are read and written
// once a step. Channels of the signal lie in blocks, which the L1 cache holds.
#pragma once

#include "snnlib/core/threads.h"
#include "snnlib/events/conv.h"
#include "snnlib/layer/rows.h"

namespace snnlib {
namespace SNNLIB_ISA {

// Where an event's window starts.
struct Window {
  int32_t at;
  float amount;
};

// The events of some rows of one frame, sorted by channel and then by row, as windows of a dense map of which each of
// them sees a part.
class ChannelEvents {
 public:
  void start(int64_t channels, int64_t width, int64_t rows) {
    channels_ = channels;
    width_ = width;
    room_ = rows * width;
    found_.reserve(channels * width + kGroup);
    in_row_.reserve(channels * width);
    windows_.reserve(channels * room_);
    ends_.reserve((rows + 1) * channels);
    counts_.reserve(rows + 1);
  }

  void clear() {
    rows_ = 0;
    binary_ = true;
    counts_.data()[0] = 0;
    std::memset(ends_.data(), 0, size_t(channels_) * sizeof(int32_t));
  }

  // Appends a row. `shift` is where the window of its first pixel lies, `pixel` the distance of two.
  void add_row(const InputSequence& x, const ConvShape& s, int64_t t, int64_t n, int64_t y, int64_t shift,
               int64_t pixel) {
    int32_t* end = ends_.data() + (rows_ + 1) * channels_;
    std::memcpy(end, end - channels_, size_t(channels_) * sizeof(int32_t));
    ++rows_;
    counts_.data()[rows_] = counts_.data()[rows_ - 1];
    if (x.width == 1 && !is_channels_last(x, s)) {
      const int64_t start = row_start(x, t, n, y);
      for (int64_t c = 0; c < channels_; ++c) {
        const float* row = read_floats(x.elements, start + c * x.channel, width_, in_row_.data());
        add_channel(row, c, end, shift, pixel);
      }
    } else {
      add_pixels(read_row(x, s, t, n, y, in_row_.data()), end, shift, pixel);
    }
  }

  // True if all amounts are 1.
  bool binary() const { return binary_; }

  // True if rows [first, last) have any event.
  bool any(int64_t first, int64_t last) const { return counts_.data()[first] < counts_.data()[last]; }

  // Where the events of a channel from row `row` on begin.
  const Window* begin(int64_t channel, int64_t row) const {
    return windows_.data() + channel * room_ + ends_.data()[row * channels_ + channel];
  }

 private:
  SNNLIB_NOINLINE void add_channel(const float* row, int64_t channel, int32_t* end, int64_t shift, int64_t pixel) {
    const int64_t count = find_events(row, width_, found_.data());
    Window* windows = windows_.data() + channel * room_ + end[channel];
    for (int64_t i = 0; i < count; ++i) {
      const int32_t x = found_.data()[i];
      windows[i] = {int32_t(shift + x * pixel), row[x]};
      binary_ &= row[x] == 1.0f;
    }
    end[channel] += int32_t(count);
    counts_.data()[rows_] += int32_t(count);
  }

  SNNLIB_NOINLINE void add_pixels(const float* row, int32_t* end, int64_t shift, int64_t pixel) {
    const int64_t count = find_events(row, channels_ * width_, found_.data());
    counts_.data()[rows_] += int32_t(count);
    // Events are sorted by pixel, which saves a division.
    int64_t first = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = found_.data()[i];
      for (; at - first >= channels_; first += channels_) shift += pixel;
      const int64_t c = at - first;
      windows_.data()[c * room_ + end[c]++] = {int32_t(shift), row[at]};
      binary_ &= row[at] == 1.0f;
    }
  }

  int64_t channels_ = 0, width_ = 0, room_ = 0, rows_ = 0;
  bool binary_ = true;
  Scratch<float> in_row_;
  Scratch<int32_t> found_, ends_;
  Scratch<int32_t> counts_;  // events of the rows before one
  Scratch<Window> windows_;
};

// How many numbers of a signal are fetched ahead: it comes from memory, in rows that lie far apart.
constexpr int64_t kAhead = 2048;

class WeightsByInputs {
 public:
  // Output rows `own` of sample `n`; `grad` is [block][in_channels][kernel_h][kernel_w, backwards][channel of the
  // block].
  void start(const LayerBackwardArgs& a, int64_t n, const Rows& own, float* grad) {
    a_ = &a;
    n_ = n;
    own_ = own;
    grad_ = grad;
    const ConvShape& s = a.shape;
    seen_ = seen_rows(s, own);
    pixel_ = a.by_inputs;
    // Columns on both sides stay zero: the window of input pixel x starts at column x.
    signal_row_ = (s.in_width + s.kernel_w - 1) * pixel_;
    margin_ = (s.kernel_w - 1 - s.padding_w) * pixel_;
    block_ = own.count() * signal_row_;
    signal_.zeroed(padded(s.channels) / pixel_ * block_);
    length_ = s.kernel_w * pixel_;
    // Input rows, counted from the first one seen, whose output row under a kernel row is one of ours.
    Rows* rows_under = rows_under_.reserve(s.kernel_h);
    for (int64_t ky = 0; ky < s.kernel_h; ++ky) {
      const int64_t shift = ky - s.padding_h;
      rows_under[ky] = {clamp(own.first + shift, seen_.first, seen_.last) - seen_.first,
                        clamp(own.last + shift, seen_.first, seen_.last) - seen_.first};
    }
    events_.start(s.in_channels, s.in_width, seen_.count());
  }

  // The signal of row y, channels-last.
  SNNLIB_NOINLINE void set_row(int64_t y, const float* signal) {
    const ConvShape& s = a_->shape;
    float* row = signal_.data() + (y - own_.first) * signal_row_ + margin_;
    const int64_t whole = s.channels / pixel_, rest = s.channels % pixel_;
    // Pixel by pixel, in the order in which the signal lies in memory.
    for (int64_t x = 0; x < s.width; ++x, row += pixel_, signal += s.channels) {
      for (int64_t block = 0; block < whole; ++block) {
        const float* from = signal + block * pixel_;
        float* to = row + block * block_;
        for (int64_t c = 0; c < pixel_; c += kLanes) {
          prefetch(from + c + kAhead);
          store(to + c, load(from + c));
        }
      }
      std::memcpy(row + whole * block_, signal + whole * pixel_, size_t(rest) * sizeof(float));
    }
  }

  // The events of step t.
  void begin_step(int64_t t) {
    const ConvShape& s = a_->shape;
    events_.clear();
    for (int64_t y = seen_.first; y < seen_.last; ++y) {
      events_.add_row(a_->input, s, t, n_, y, (y + s.padding_h - own_.first) * signal_row_, pixel_);
    }
  }

  // True if any event of the step sees row y, so that its signal counts.
  bool sees(int64_t y) const {
    const ConvShape& s = a_->shape;
    const int64_t first = clamp(y - s.padding_h, seen_.first, seen_.last) - seen_.first;
    return events_.any(first, clamp(y - s.padding_h + s.kernel_h, seen_.first, seen_.last) - seen_.first);
  }

  // With the signals of the rows that events see.
  void step() {
    const ConvShape& s = a_->shape;
    if (!events_.any(0, seen_.count())) return;
    for (int64_t block = 0; block * pixel_ < s.channels; ++block) {
      const float* signal = signal_.data() + block * block_;
      float* grad = grad_ + block * s.in_channels * s.kernel_h * length_;
      events_.binary() ? add_block<true>(signal, grad) : add_block<false>(signal, grad);
    }
  }

 private:
  template <bool Binary>
  void add_block(const float* signal, float* grad) const {
    // As many sums as 16 registers hold.
    using Kernel = void (WeightsByInputs::*)(const float*, float*) const;
    static constexpr Kernel kKernels[] = {
        &WeightsByInputs::sum_block<1, Binary>,  &WeightsByInputs::sum_block<2, Binary>,
        &WeightsByInputs::sum_block<3, Binary>,  &WeightsByInputs::sum_block<4, Binary>,
        &WeightsByInputs::sum_block<5, Binary>,  &WeightsByInputs::sum_block<6, Binary>,
        &WeightsByInputs::sum_block<7, Binary>,  &WeightsByInputs::sum_block<8, Binary>,
        &WeightsByInputs::sum_block<9, Binary>,  &WeightsByInputs::sum_block<10, Binary>,
        &WeightsByInputs::sum_block<11, Binary>, &WeightsByInputs::sum_block<12, Binary>};
    constexpr int64_t kMost = 12;
    for (int64_t i = 0; i < length_; i += kMost * kLanes) {
      const int64_t left = (length_ - i) / kLanes;
      (this->*kKernels[(left < kMost ? left : kMost) - 1])(signal + i, grad + i);
    }
  }

  // V vectors of all windows of a block of channels.
  template <int V, bool Binary>
  SNNLIB_NOINLINE void sum_block(const float* signal, float* grad) const {
    const int64_t channels = a_->shape.in_channels, kernel_h = a_->shape.kernel_h, length = length_;
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t ky = 0; ky < kernel_h; ++ky, grad += length) {
        const Rows rows = rows_under_.data()[ky];
        const Window *window = events_.begin(c, rows.first), *end = events_.begin(c, rows.last);
        if (window == end) continue;
        const float* shifted = signal - ky * signal_row_;
        Floats sum[V];
        load_all(sum, grad);
        for (; window != end; ++window) add_weights<Binary>(sum, shifted + window->at, window->amount);
        store_all(grad, sum);
      }
    }
  }

  const LayerBackwardArgs* a_ = nullptr;
  Rows own_ = {}, seen_ = {};
  float* grad_ = nullptr;
  int64_t n_ = 0, pixel_ = 0, margin_ = 0, signal_row_ = 0, block_ = 0, length_ = 0;
  Scratch<float> signal_;  // in blocks
  Scratch<Rows> rows_under_;
  ChannelEvents events_;
};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
