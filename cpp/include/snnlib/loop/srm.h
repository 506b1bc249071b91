// SRM neuron over a whole spike train: the launchers that the bindings call. Math: neurons/srm.h.
#pragma once

#include "snnlib/core/dtype.h"
#include "snnlib/core/executor.h"
#include "snnlib/core/sequence_view.h"

namespace snnlib {

struct SrmConstants {
  double e_m, e_s, e_g, r_s;
  double grad_clamp;  // infinity: no clamp
};

// All tensors of one call share `view` and `dtype`; state and threshold are float (double for float64 sequences).
// Threshold of neuron i of one step: threshold[i % threshold_period].
struct SrmForwardArgs {
  SequenceView view;
  DType dtype;
  SrmConstants constants;
  const void* current;
  const void* threshold;
  int64_t threshold_period;
  void* spikes;
  // State before the first and after the last step, [3][outer * inner]: u, s, g. Null: zero, not wanted.
  const void* state_in;
  void* state_out;
  // What a step computes before its reset, each null where not wanted.
  void* potential;
  void* delta_u;
  void* delta_ut;
  Executor executor;
};

struct SrmBackwardArgs {
  SequenceView view;
  DType dtype;
  SrmConstants constants;
  const void* current;
  const void* threshold;
  int64_t threshold_period;
  const void* state_in;
  const void* grad_spikes;
  void* weight_signal;  // a, null where not wanted
  void* input_signal;   // b, null where not wanted
  Executor executor;
};

// One table of entry points per instruction set, and one for CUDA.
struct SrmKernels {
  void (*forward)(const SrmForwardArgs&);
  void (*backward)(const SrmBackwardArgs&);
};

namespace portable {
extern const SrmKernels srm_kernels;
}

}  // namespace snnlib
