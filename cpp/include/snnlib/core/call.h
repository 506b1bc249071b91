// Where the elements of a sequence lie.
#pragma once

#include "snnlib/core/platform.h"

namespace snnlib {

// Elements of a sequence are [outer, steps, inner], the innermost neurons next to each other. [T, N, ...] is outer = 1;
// [N, T, ...] is outer = N. Any dense order of the neurons of one step will do, so channels-last needs no copy. Strides
// count elements; indices are 64 bit.
struct SequenceView {
  int64_t outer, steps, inner;
  int64_t outer_stride, step_stride;
  SNNLIB_FIELDS(outer, steps, inner, outer_stride, step_stride)

  SNNLIB_HD int64_t offset(int64_t o, int64_t t, int64_t i) const { return o * outer_stride + t * step_stride + i; }
};

}  // namespace snnlib
