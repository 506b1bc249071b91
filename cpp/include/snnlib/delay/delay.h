// Sequences whose channels arrive later: the launchers that the bindings call. A delay of k + f steps, 0 <= f < 1, is
// two taps, first = 1 - f and second = f:
//
//   y[t]_c = first_c x[t - k_c]_c + second_c x[t - k_c - 1]_c
//
// Steps before the first are 0. In front of a dense matrix it takes no tensor of its own: delayed_linear.h.
#pragma once

#include "snnlib/core/dtype.h"
#include "snnlib/core/executor.h"

namespace snnlib {

struct DelayShiftArgs {
  DType dtype;  // float32 or float64, of the taps as well
  int64_t steps, batch, channels, space;
  int64_t step_stride, batch_stride, channel_stride, space_stride;  // of all sequences; one of the last two is 1
  const void* x;
  const int32_t* delays;
  const void *first, *second;
  void* out;
  bool earlier;  // the adjoint: out[t] = first x[t + k] + second x[t + k + 1]
  Executor executor;
};

// For each sample and channel the sums over t of x[t] grad[t + k - 1], x[t] grad[t + k] and x[t] grad[t + k + 1], in
// double: [batch][3][channels]. Taps and `out` of `sequence` are not read.
struct DelaySumsArgs {
  DelayShiftArgs sequence;
  const void* grad;
  double* sums;
};

struct DelayKernels {
  void (*shift)(const DelayShiftArgs&);
  void (*shift_sums)(const DelaySumsArgs&);
};

namespace portable {
extern const DelayKernels delay_kernels;
}

}  // namespace snnlib
