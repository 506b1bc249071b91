// Neurons of the linear family over whole sequences of currents: the launchers that the bindings call. Math:
// neurons/linear.h.
#pragma once

#include "snnlib/core/dtype.h"
#include "snnlib/core/executor.h"
#include "snnlib/core/sequence_view.h"
#include "snnlib/neurons/linear.h"

namespace snnlib {

// All tensors of one call share `view` and `dtype`; coefficients and states are float (double for float64 tensors).
struct ScanArgs {
  SequenceView view;
  DType dtype;
  int states;  // K: 1 to 3
  LinearFlags flags;
  // [rows][period]: coefficient `row` of neuron i of one step is [row][i % period].
  const void* coefficients;
  int64_t period;
  const void* current;
  // Before the first step, [K (+ 1 with reset_next)][outer * inner]. Null: zero.
  const void* state_in;
  Executor executor;
};

struct ScanForwardArgs : ScanArgs {
  void* value;
  void* state_out;
};

struct ScanBackwardArgs : ScanArgs {
  const void* grad_value;
  const void* grad_state_out;  // null: zero
  void* grad_current;
  void* grad_state_in;
  void* grad_coefficients;  // of every neuron, [rows][outer * inner]; null where not wanted
};

struct ScanKernels {
  void (*forward)(const ScanForwardArgs&);
  void (*backward)(const ScanBackwardArgs&);
};

namespace portable {
extern const ScanKernels scan_kernels;
}

}  // namespace snnlib
