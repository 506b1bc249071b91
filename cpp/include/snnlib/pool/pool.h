// Spike pooling: the launchers that the bindings call. Math: pool/windows.h.
#pragma once

#include "snnlib/core/dtype.h"
#include "snnlib/core/executor.h"

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

namespace portable {
extern const PoolKernels pool_kernels;
}

}  // namespace snnlib
