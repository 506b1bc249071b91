// Neurons of the linear family whose spikes come back as currents one step later: the launchers that the bindings call.
//
//   I[t] = x[t] + W s[t-1],   s[t] = the neurons' step with I[t]            neurons/linear.h
//
// Backward, with dL/dI[t] from the neurons' adjoint:
//
//   dL/ds[t] = q[t] + W^T dL/dI[t+1],   dL/dx = dL/dI,   dL/dW = sum over t of dL/dI[t] s[t-1]^T
#pragma once

#include "snnlib/scan.h"

namespace snnlib {

// As `ScanArgs` with the samples outside: `view` is [batch, steps, neurons]. States have one row more, the spikes of
// the step before; the current is x forward and I backward.
struct RecurrentArgs : ScanArgs {
  // From neuron j to neuron i at [j * row + i]; rows end in zeros and are whole groups of kGroup long.
  const void* weight;
  int64_t row;
  // Steps of each sample; null: all of them.
  const int64_t* lengths;
};

struct RecurrentForwardArgs : RecurrentArgs {
  void* value;
  void* state_out;
  void* total;  // I of every step; null where not wanted
};

struct RecurrentBackwardArgs : RecurrentArgs {
  const void* value;
  const void* grad_value;
  const void* grad_state_out;  // null: zero
  void* grad_current;
  void* grad_state_in;
  void* grad_coefficients;  // of every neuron, [rows][batch * neurons]; null where not wanted
  void* grad_weight;        // in the layout of `weight`; null where not wanted
};

struct RecurrentKernels {
  void (*forward)(const RecurrentForwardArgs&);
  void (*backward)(const RecurrentBackwardArgs&);
};

namespace portable {
extern const RecurrentKernels recurrent_kernels;
}

}  // namespace snnlib
