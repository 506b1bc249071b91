// Weight gradient of one band of a convolution of stride 1 from the events of its input and the dense signal a of one
// step at a time.
//
//   dW[o, c, ky, kx] += x[y, x, c] a[y + padding - ky, x + padding - kx, o]
//
// The outputs that an event sees under one kernel row lie next to each other, kx backwards: a window of the signal.
// Channel by channel the events of a step add their windows to sums in registers, so that weights are read and written
// once a step. Channels of the signal lie in blocks, which the L1 cache holds.
#pragma once

#include "snnlib/kernels/band_rows.h"
#include "snnlib/kernels/channel_events.h"

namespace snnlib {
namespace SNNLIB_ISA {

template <int V>
SNNLIB_NOINLINE void sum_windows_fixed(const Window* window, const Window* end, const float* signal, float* grad) {
  Floats sum[V];
  for (int v = 0; v < V; ++v) sum[v] = load(grad + v * kLanes);
  for (; window != end; ++window) {
    const float* a = signal + window->at;
    const Floats amount = Floats{} + window->amount;
    for (int v = 0; v < V; ++v) sum[v] += amount * load(a + v * kLanes);
  }
  for (int v = 0; v < V; ++v) store(grad + v * kLanes, sum[v]);
}

// grad[0 ... length) += amount signal[at ...] over all windows; `length` is a multiple of kGroup.
inline void sum_windows(const Window* begin, const Window* end, const float* signal, float* grad, int64_t length) {
  using Kernel = void (*)(const Window*, const Window*, const float*, float*);
  // As many sums as 16 registers hold.
  static constexpr Kernel kKernels[] = {sum_windows_fixed<1>,  sum_windows_fixed<2>,  sum_windows_fixed<3>,
                                        sum_windows_fixed<4>,  sum_windows_fixed<5>,  sum_windows_fixed<6>,
                                        sum_windows_fixed<7>,  sum_windows_fixed<8>,  sum_windows_fixed<9>,
                                        sum_windows_fixed<10>, sum_windows_fixed<11>, sum_windows_fixed<12>};
  constexpr int64_t kMost = sizeof kKernels / sizeof kKernels[0];
  if (begin == end) return;
  for (int64_t left = length / kLanes; left > 0; left -= kMost, signal += kMost * kLanes, grad += kMost * kLanes) {
    kKernels[(left < kMost ? left : kMost) - 1](begin, end, signal, grad);
  }
}

class WeightsByInputs {
 public:
  // Channels of a block.
  static int64_t block_channels(int64_t channels) { return padded(channels) % (2 * kGroup) ? kGroup : 2 * kGroup; }

  // Output rows `own` of sample `n`; `grad` is [block][in_channels][kernel_h][kernel_w, backwards][channel of the
  // block].
  void start(const SrmConvBackwardArgs& a, int64_t n, const Rows& own, float* grad) {
    a_ = &a;
    n_ = n;
    own_ = own;
    grad_ = grad;
    const ConvShape& s = a.shape;
    seen_ = seen_rows(s, own);
    pixel_ = block_channels(s.channels);
    // Columns on both sides stay zero: the window of input pixel x starts at column x.
    signal_row_ = (s.in_width + s.kernel_w - 1) * pixel_;
    margin_ = (s.kernel_w - 1 - s.padding_w) * pixel_;
    block_ = own.count() * signal_row_;
    signal_.zeroed(padded(s.channels) / pixel_ * block_);
    events_.start(s.in_channels, s.in_width, seen_.count());
  }

  // The signal of row y, which may be read up to row() + kGroup.
  SNNLIB_NOINLINE void set_row(int64_t y, const float* a) {
    const int64_t width = a_->shape.width, channels = a_->shape.channels, pixel = pixel_;
    float* row = signal_.data() + (y - own_.first) * signal_row_ + margin_;
    for (int64_t o = 0; o < channels; o += pixel, row += block_) {
      for (int64_t x = 0; x < width; ++x) {
        for (int64_t i = 0; i < pixel; i += kLanes) store(row + x * pixel + i, load(a + x * channels + o + i));
      }
    }
  }

  // With the signal of all rows at step t.
  void step(int64_t t) {
    const ConvShape& s = a_->shape;
    events_.clear();
    for (int64_t y = seen_.first; y < seen_.last; ++y) {
      events_.add_row(a_->input, s, t, n_, y, (y + s.padding_h - own_.first) * signal_row_, pixel_);
    }
    const int64_t length = s.kernel_w * pixel_;
    float* grad = grad_;
    for (int64_t o = 0; o < s.channels; o += pixel_) {
      const float* block = signal_.data() + o / pixel_ * block_;
      for (int64_t c = 0; c < s.in_channels; ++c) {
        for (int64_t ky = 0; ky < s.kernel_h; ++ky, grad += length) {
          // Input rows whose output row under this kernel row is one of ours.
          const int64_t first = clamp(own_.first - s.padding_h + ky, seen_.first, seen_.last) - seen_.first;
          const int64_t last = clamp(own_.last - s.padding_h + ky, seen_.first, seen_.last) - seen_.first;
          sum_windows(events_.begin(c, first), events_.begin(c, last), block - ky * signal_row_, grad, length);
        }
      }
    }
  }

 private:
  const SrmConvBackwardArgs* a_ = nullptr;
  Rows own_ = {}, seen_ = {};
  float* grad_ = nullptr;
  int64_t n_ = 0, pixel_ = 0, margin_ = 0, signal_row_ = 0, block_ = 0;
  Scratch<float> signal_;
  ChannelEvents events_;
};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
