// The first spike of every neuron of a sequence: the launcher that the bindings call.
//
//   first[i] = smallest t with x[t]_i != 0, or the number of steps where neuron i is silent
#pragma once

#include "snnlib/core/call.h"
#include "snnlib/core/dtype.h"

namespace snnlib {

struct FirstSpikeArgs {
  SequenceView view;
  DType dtype;
  const void* x;
  int32_t* first;  // [outer * inner]
  Executor executor;
  SNNLIB_FIELDS(view, dtype, x, first, executor)
};

struct FirstSpikeKernels {
  void (*run)(const FirstSpikeArgs&);
};

namespace portable {
extern const FirstSpikeKernels first_spike_kernels;
}

}  // namespace snnlib
