// Max pooling: the launchers that the bindings call. Math: cpp/cpu/max_pool.cpp.
#pragma once

#include "snnlib/pool/pool.h"

namespace snnlib {

// `taps` holds for every window which of its cells is the largest, counted row by row in the whole window, padding
// included. It is laid out as the output, and so windows have 256 cells at most.
struct MaxPoolForwardArgs {
  PoolArgs pool;
  void* output;
  uint8_t* taps;
};

// `pool.input` is not read.
struct MaxPoolBackwardArgs {
  PoolArgs pool;
  const void* grad_output;
  const uint8_t* taps;
  void* grad_input;
};

struct MaxPoolKernels {
  void (*forward)(const MaxPoolForwardArgs&);
  void (*backward)(const MaxPoolBackwardArgs&);
};

namespace portable {
extern const MaxPoolKernels max_pool_kernels;
}

}  // namespace snnlib
