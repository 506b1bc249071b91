// Sums over superpixels: the launcher that the bindings call.
#pragma once

#include "snnlib/dtype.h"
#include "snnlib/executor.h"

namespace snnlib {

// Image [images, channels, pixels] and sums [images, channels, count] are float32 or float64. Image n has the segments
// [maps, pixels] of map n % maps: the steps of a sequence share theirs.
struct SuperpixelArgs {
  DType dtype;
  int64_t images, channels, pixels, maps, count;
  const void* image;
  const int64_t* segments;
  void* sums;
  Executor executor;
};

struct SuperpixelKernels {
  // False, and sums of no use, where a segment is not in [0, count).
  bool (*sum)(const SuperpixelArgs&);
};

}  // namespace snnlib
