// Events that arrive later: the launchers that the bindings call. A delay of k + f steps, 0 <= f < 1, is two taps:
//
//   per channel      y[t]_c = first_c x[t - k_c]_c + second_c x[t - k_c - 1]_c
//   per connection   I[t]_o = sum over i of first_io x[t - k_io]_i + second_io x[t - k_io - 1]_i
//
// The taps are (1 - f) and f, times the weight for a connection. Steps before the first are 0.
#pragma once

#include "snnlib/dtype.h"
#include "snnlib/executor.h"

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

struct DelayedLinearArgs {
  DType dtype;
  int64_t steps, batch, inputs, outputs;
  int64_t step_rows, batch_rows;  // strides of x and out in rows
  int64_t longest;                // of the delays
  const void* x;
  const int32_t* delays;  // [inputs][outputs]
  const void* taps;       // [inputs][outputs][2]
  void* out;
  Executor executor;
};

// Per connection the sums over samples and t of x[t]_i grad[t + k]_o and x[t]_i grad[t + k + 1]_o:
// [inputs][outputs][2]. `grad` is [batch][outputs][padded], step t of it at t + before, with zeros around.
struct DelayedSumsArgs {
  DelayedLinearArgs linear;
  const void* grad;
  int64_t padded, before;
  void* sums;
};

struct DelayKernels {
  void (*shift)(const DelayShiftArgs&);
  void (*shift_sums)(const DelaySumsArgs&);
  void (*linear)(const DelayedLinearArgs&);
  void (*linear_sums)(const DelayedSumsArgs&);
};

namespace portable {
extern const DelayKernels delay_kernels;
}

}  // namespace snnlib
