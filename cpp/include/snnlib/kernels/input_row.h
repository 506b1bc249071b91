// One row of an input train in any memory format.
#pragma once

#include <cstring>

#include "snnlib/platform.h"
#include "snnlib/srm_conv.h"

namespace snnlib {
namespace SNNLIB_ISA {

// Copies row y of frame (t, n) to `out`, channels-last.
inline void copy_row(const InputTrain& x, const ConvShape& s, int64_t t, int64_t n, int64_t y, float* out) {
  const float* row = x.data + t * x.step + n * x.batch + y * x.height;
  // Torch gives an axis of size 1 any stride.
  if ((x.channel == 1 || s.in_channels == 1) && (x.width == s.in_channels || s.in_width == 1)) {
    std::memcpy(out, row, size_t(s.in_width * s.in_channels) * sizeof(float));
    return;
  }
  for (int64_t c = 0; c < s.in_channels; ++c) {
    for (int64_t i = 0; i < s.in_width; ++i) out[i * s.in_channels + c] = row[i * x.width + c * x.channel];
  }
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
