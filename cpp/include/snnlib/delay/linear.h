// A fully connected map whose events arrive later: the launchers that the bindings call. A delay of k + f steps,
// 0 <= f < 1, is two taps:
//
//   I[t]_o = sum over i of first_io x[t - k_io]_i + second_io x[t - k_io - 1]_i
//
// first = (1 - f) w and second = f w; the delay k + f is one for each connection or one for each input channel. Steps
// before the first are 0.
#pragma once

#include "snnlib/core/dtype.h"
#include "snnlib/core/platform.h"

namespace snnlib {

// A fully connected map of events that arrive later.
struct DelayedLinearArgs {
  DType dtype;
  int64_t steps, batch, inputs, outputs;
  int64_t step_rows, batch_rows;  // strides of x, out and signals in rows
  int64_t longest;                // no delay is more whole steps, or events of longer ones never arrive
  bool per_channel;
  bool two;  // whether there are second taps; else delays are rounded to whole steps
  const void* x;
  const void* delay;      // per connection [outputs][inputs], of the kernels' dtype and >= 0
  const int32_t* delays;  // per channel [inputs], whole steps
  const void* taps;       // per channel [inputs][2]
  const void* weight;  // per connection [outputs][inputs]; per channel [inputs][weight_row], zeros behind the outputs
  int64_t weight_row;  // a multiple of kGroup
  Executor executor;
  SNNLIB_FIELDS(dtype, steps, batch, inputs, outputs, step_rows, batch_rows, longest, per_channel, two, x, delay,
                delays, taps, weight, weight_row, executor)
};

struct DelayedCurrentsArgs : DelayedLinearArgs {
  void* out;
  SNNLIB_MORE_FIELDS(DelayedLinearArgs, out)
};

// Per channel, sums over samples and t of x[t]_i grad[t + k + j]_o for j = first to first + count - 1, of -1 to 1:
// [count][inputs][outputs]. Taps and weights are not read.
struct DelayedSumsArgs : DelayedLinearArgs {
  const void* grad;
  void* sums;
  int64_t first, count;
  SNNLIB_MORE_FIELDS(DelayedLinearArgs, grad, sums, first, count)
};

// Per connection dL/dweight and dL/ddelay [outputs][inputs], either may be null. With sums S_j of x[t]_i grad[t + k +
// j]_o over samples and t they are S_0 + f (S_1 - S_0) and w (S_1 - S_0); at a rounded delay S_0, and w (S_1 - S_-1) /
// 2 or where k = 0 w (S_1 - S_0).
struct DelayedGradientsArgs : DelayedLinearArgs {
  const void* grad;
  void *grad_weight, *grad_delay;
  SNNLIB_MORE_FIELDS(DelayedLinearArgs, grad, grad_weight, grad_delay)
};

// Per connection dL/dx[t]_i = sum over o of first_io grad[t + k_io]_o + second_io grad[t + k_io + 1]_o.
struct DelayedInputArgs : DelayedLinearArgs {
  const void* grad;
  void* grad_x;
  SNNLIB_MORE_FIELDS(DelayedLinearArgs, grad, grad_x)
};

struct DelayedLinearKernels {
  void (*currents)(const DelayedCurrentsArgs&);
  void (*sums)(const DelayedSumsArgs&);
  void (*gradients)(const DelayedGradientsArgs&);
  void (*input)(const DelayedInputArgs&);
};

namespace portable {
extern const DelayedLinearKernels delayed_linear_kernels;
}

}  // namespace snnlib
