// Sequences whose channels arrive later: the launchers that the bindings call. A delay of k + f steps, 0 <= f < 1, is
// two taps, first = 1 - f and second = f:
//
//   y[t]_c = first_c x[t - k_c]_c + second_c x[t - k_c - 1]_c
//
// Steps before the first are 0. In front of a dense matrix it takes no tensor of its own: delay/linear.h.
#pragma once

#include "snnlib/core/dtype.h"
#include "snnlib/core/platform.h"

namespace snnlib {

struct DelaySequence {
  DType dtype;  // float32 or float64, of the taps as well
  int64_t steps, batch, channels, space;
  int64_t step_stride, batch_stride, channel_stride, space_stride;  // of all sequences; one of the last two is 1
  const void* x;
  const int32_t* delays;
  Executor executor;
  SNNLIB_FIELDS(dtype, steps, batch, channels, space, step_stride, batch_stride, channel_stride, space_stride, x,
                delays, executor)
};

struct DelayShiftArgs : DelaySequence {
  const void *first, *second;
  void* out;
  bool earlier;  // the adjoint: out[t] = first x[t + k] + second x[t + k + 1]
  SNNLIB_MORE_FIELDS(DelaySequence, first, second, out, earlier)
};

// For each sample and channel the sums over t of x[t] grad[t + k - 1], x[t] grad[t + k] and x[t] grad[t + k + 1], in
// double: [batch][3][channels].
struct DelaySumsArgs : DelaySequence {
  const void* grad;
  double* sums;
  SNNLIB_MORE_FIELDS(DelaySequence, grad, sums)
};

struct DelayKernels {
  void (*shift)(const DelayShiftArgs&);
  void (*shift_sums)(const DelaySumsArgs&);
};

namespace portable {
extern const DelayKernels delay_kernels;
}

// Action of one element of a sequence when its channel arrives later.
namespace SNNLIB_ISA {

// An event adds a tap of itself to a later step: the earlier of two events first.
template <class S>
SNNLIB_HD inline S add_event(S sum, S tap, S x) {
  return sum + tap * x;
}

// A signal, which is not sparse, taken from its two later steps.
template <class S>
SNNLIB_HD inline S two_taps(S first, S now, S second, S next) {
  return first * now + second * next;
}

// Share of an event and the signal at one of its later steps in the gradient of a delay.
template <class S>
SNNLIB_HD inline double delay_product(S x, S grad) {
  return double(x) * double(grad);
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
