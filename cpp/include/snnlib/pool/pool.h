// Pooling: the launchers that the bindings call. Math: pool/windows.h and cpp/cpu/max_pool.cpp.
#pragma once

#include "snnlib/core/dtype.h"
#include "snnlib/core/platform.h"

namespace snnlib {

// Tensors are [outer, depth, height, width, inner]: contiguous NCHW has inner = 1, channels-last has inner = C.
// 1-D and 2-D pooling have size 1 in the leading axes.
struct PoolArgs {
  DType dtype;
  int64_t outer, inner;
  int64_t in[3], out[3], kernel[3], stride[3], padding[3];
  Executor executor;
  SNNLIB_FIELDS(dtype, outer, inner, in, out, kernel, stride, padding, executor)
};

struct PoolForwardArgs : PoolArgs {
  const void* input;
  bool count_include_pad;
  int64_t divisor_override;  // 0: none
  void* output;
  SNNLIB_MORE_FIELDS(PoolArgs, input, count_include_pad, divisor_override, output)
};

struct PoolBackwardArgs : PoolArgs {
  const void* input;
  const void* grad_output;
  void* grad_input;
  SNNLIB_MORE_FIELDS(PoolArgs, input, grad_output, grad_input)
};

struct PoolKernels {
  void (*forward)(const PoolForwardArgs&);
  void (*backward)(const PoolBackwardArgs&);
};

// `taps` holds for every window which of its cells is the largest, counted row by row in the whole window, padding
// included. It is laid out as the output, and so windows have 256 cells at most.
struct MaxPoolForwardArgs : PoolArgs {
  const void* input;
  void* output;
  uint8_t* taps;
  SNNLIB_MORE_FIELDS(PoolArgs, input, output, taps)
};

struct MaxPoolBackwardArgs : PoolArgs {
  const void* grad_output;
  const uint8_t* taps;
  void* grad_input;
  SNNLIB_MORE_FIELDS(PoolArgs, grad_output, taps, grad_input)
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
