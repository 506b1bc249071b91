// Average pooling of event amplitudes, and its event-time gradient.
//
//   forward    y = sum of the window / divisor
//   backward   gx_i = x_i * sum over the windows w that hold i of g_w / (sum of window w),  0 where the window is
//   silent
//
// This is x * avg_pool^T(g / y): the divisor cancels. The gradient of every window that is not silent is shared out
// whole, in proportion to amplitude, so sums of gradients are kept for any stride, padding and divisor.
// A window whose signed sum is below the rounding error of summing it counts as silent.
// Source: Zhu et al., NeurIPS 2022, section 3.3 (binary, non-overlapping windows); the general form is derived in
// docs/gradients.md.
#pragma once

#include "snnlib/core/platform.h"

namespace snnlib {
namespace SNNLIB_ISA {

// An axis of a pooling window in torch's terms. `full_end - start` counts padding but not what ceil_mode hangs over.
struct PoolAxis {
  int64_t in, out, kernel, stride, padding;

  SNNLIB_HD int64_t full_size(int64_t o) const {
    const int64_t start = o * stride - padding;
    const int64_t end = start + kernel < in + padding ? start + kernel : in + padding;
    return end - start;
  }
  SNNLIB_HD int64_t begin(int64_t o) const {
    const int64_t start = o * stride - padding;
    return start > 0 ? start : 0;
  }
  SNNLIB_HD int64_t end(int64_t o) const {
    const int64_t stop = o * stride - padding + kernel;
    return stop < in ? stop : in;
  }
  // The tap of window `o` that input `i` is.
  SNNLIB_HD int64_t tap(int64_t o, int64_t i) const { return i - (o * stride - padding); }
  // True if window `o` lies inside the image with all its taps.
  SNNLIB_HD bool whole(int64_t o) const { return o * stride >= padding && o * stride - padding + kernel <= in; }
  // True if every input is in at most one window, and in at least one.
  SNNLIB_HD bool apart() const { return stride >= kernel; }
  SNNLIB_HD bool covered() const { return out > 0 && stride <= kernel && end(out - 1) >= in; }
  // Outputs whose window holds input `o * stride - padding + tap` inside the image: [first, last).
  SNNLIB_HD int64_t first_with_tap(int64_t tap) const {
    const int64_t missing = padding - tap;
    return missing > 0 ? (missing + stride - 1) / stride : 0;
  }
  SNNLIB_HD int64_t last_with_tap(int64_t tap) const {
    const int64_t room = in - 1 + padding - tap;
    const int64_t last = room < 0 ? 0 : room / stride + 1;
    return last < out ? last : out;
  }
};

// g / sum, or 0 for a silent window. Written so that NaN is passed on, and divides in any case, for vectors of windows.
template <class S>
SNNLIB_HD inline S pool_share(S grad, S sum, S sum_abs, S tolerance) {
  const S magnitude = sum < S(0) ? -sum : sum;
  const S share = grad / sum;
  return magnitude <= tolerance * sum_abs ? S(0) : share;
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
