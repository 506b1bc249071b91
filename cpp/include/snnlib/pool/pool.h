// Pooling: the launchers that the bindings call. Math: pool/windows.h and cpp/cpu/max_pool.cpp.
#pragma once

#include "snnlib/core/call.h"
#include "snnlib/core/dtype.h"

namespace snnlib {

// Tensors are [outer, depth, height, width, inner]: contiguous NCHW has inner = 1, channels-last has inner = C.
// 1-D and 2-D pooling have size 1 in the leading axes.
struct PoolArgs {
  DType dtype;
  int64_t outer, inner;
  int64_t in[3], out[3], kernel[3], stride[3], padding[3];
  const void* input;
  Executor executor;
};

struct PoolForwardArgs {
  PoolArgs pool;
  bool count_include_pad;
  int64_t divisor_override;  // 0: none
  void* output;
};

struct PoolBackwardArgs {
  PoolArgs pool;
  const void* grad_output;
  void* grad_input;
};

struct PoolKernels {
  void (*forward)(const PoolForwardArgs&);
  void (*backward)(const PoolBackwardArgs&);
};

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
extern const PoolKernels pool_kernels;
extern const MaxPoolKernels max_pool_kernels;
}  // namespace portable

}  // namespace snnlib
