// A sparse matrix by events: the launchers that the bindings call. Connections lie by input, those of input j from
// starts[j] on, with their targets in rising order.
//
//   I[n, targets[c]]  += x[n, j] w[c]                                   c from starts[j] up to starts[j + 1]
//   dL/dw[c]           = sum over n of x[n, j] dL/dI[n, targets[c]]
//   dL/dx[n, j]        = sum over c of w[c] dL/dI[n, targets[c]]
//
// Sums have the order of a dense matrix (events/matrix.h): of currents by input, of dL/dw by frame, and of dL/dx 16
// sums of every 16th target, of which halves are added onto halves. So zeros in the place of connections give the same
// bits.
#pragma once

#include "snnlib/core/dtype.h"
#include "snnlib/core/platform.h"
#include "snnlib/loop/recurrent.h"

namespace snnlib {

struct SparseArgs {
  DType dtype;
  int64_t frames, inputs, outputs;
  const void* x;       // [frames][inputs]
  const void* weight;  // [connections]
  const int64_t* starts;
  const int32_t* targets;
  Executor executor;
  SNNLIB_FIELDS(dtype, frames, inputs, outputs, x, weight, starts, targets, executor)
};

struct SparseCurrentsArgs : SparseArgs {
  void* out;  // [frames][outputs]
  SNNLIB_MORE_FIELDS(SparseArgs, out)
};

struct SparseGradientsArgs : SparseArgs {
  const void* signal;  // dL/dI, [outputs] of each frame
  int64_t signal_row;  // from a frame's signals to the next one's, which may overlap
  void* grad_x;        // null where not wanted
  void* grad_weight;   // null where not wanted
  SNNLIB_MORE_FIELDS(SparseArgs, signal, signal_row, grad_x, grad_weight)
};

struct SparseKernels {
  void (*currents)(const SparseCurrentsArgs&);
  void (*gradients)(const SparseGradientsArgs&);
  void (*recurrent_forward)(const SparseRecurrent<RecurrentForwardArgs>&);
  void (*recurrent_backward)(const SparseRecurrent<RecurrentBackwardArgs>&);
};

namespace portable {
extern const SparseKernels sparse_kernels;
}

}  // namespace snnlib
