// What all kernels are told of a call: where it runs, and where the elements of its sequences lie.
#pragma once

#include "snnlib/core/platform.h"

namespace snnlib {

// A number of CPU threads or a CUDA stream, in one word so that both kinds of kernels share one calling convention.
struct Executor {
  intptr_t word;

  int threads() const { return int(word); }
  void* stream() const { return reinterpret_cast<void*>(word); }
};

// Elements of a sequence are [outer, steps, inner], the innermost neurons next to each other. [T, N, ...] is outer = 1;
// [N, T, ...] is outer = N. Any dense order of the neurons of one step will do, so channels-last needs no copy. Strides
// count elements; indices are 64 bit.
struct SequenceView {
  int64_t outer, steps, inner;
  int64_t outer_stride, step_stride;

  SNNLIB_HD int64_t offset(int64_t o, int64_t t, int64_t i) const { return o * outer_stride + t * step_stride + i; }
};

}  // namespace snnlib
