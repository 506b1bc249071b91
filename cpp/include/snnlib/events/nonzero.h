// Nonzero elements of frames, counted per cell: the launcher that the bindings call.
#pragma once

#include "snnlib/core/dtype.h"
#include "snnlib/core/platform.h"

namespace snnlib {

// [frames][cells] with the cells next to each other. Counts are [parts][cells], of one part of the frames after the
// other.
struct NonzeroArgs {
  DType dtype;
  int64_t frames, cells, frame_stride, parts;
  const void* elements;
  int64_t* counts;
  Executor executor;
  SNNLIB_FIELDS(dtype, frames, cells, frame_stride, parts, elements, counts, executor)
};

// Nonzero elements of so many frames of a sequence [steps, batch, channels, height, width], evenly over the steps and
// by the golden ratio over the samples.
struct SampleArgs {
  Elements elements;
  int64_t frames, size[5], stride[5];
  Executor executor;
  SNNLIB_FIELDS(elements, frames, size, stride, executor)
};

struct NonzeroKernels {
  // True if all elements are -1, 0 or 1.
  bool (*count)(const NonzeroArgs&);
  // The number of nonzero elements.
  int64_t (*sample)(const SampleArgs&);
};

}  // namespace snnlib
