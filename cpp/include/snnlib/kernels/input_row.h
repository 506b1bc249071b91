// One row of an input train in any memory format.
#pragma once

#include <cstring>

#include "snnlib/simd.h"
#include "snnlib/srm_conv.h"

namespace snnlib {
namespace SNNLIB_ISA {

inline const float* row_start(const InputTrain& x, int64_t t, int64_t n, int64_t y) {
  return x.data + t * x.step + n * x.batch + y * x.height;
}

// Torch gives an axis of size 1 any stride.
inline bool is_channels_last(const InputTrain& x, const ConvShape& s) {
  return (x.channel == 1 || s.in_channels == 1) && (x.width == s.in_channels || s.in_width == 1);
}

// Copies row y of frame (t, n) to `out`, channels-last.
inline void copy_row(const InputTrain& x, const ConvShape& s, int64_t t, int64_t n, int64_t y, float* out) {
  const float* row = row_start(x, t, n, y);
  if (is_channels_last(x, s)) {
    std::memcpy(out, row, size_t(s.in_width * s.in_channels) * sizeof(float));
    return;
  }
  for (int64_t c = 0; c < s.in_channels; ++c) {
    const float* channel = row + c * x.channel;
    // Channels far apart are a page each, so nothing but this sees the next row coming.
    if (x.width == 1 && y + 1 < s.in_height) prefetch(channel + x.height, s.in_width);
    for (int64_t i = 0; i < s.in_width; ++i) out[i * s.in_channels + c] = channel[i * x.width];
  }
}

// Row y of frame (t, n), channels-last: where it lies, or else a copy in `buffer`.
inline const float* read_row(const InputTrain& x, const ConvShape& s, int64_t t, int64_t n, int64_t y, float* buffer) {
  if (is_channels_last(x, s)) return row_start(x, t, n, y);
  copy_row(x, s, t, n, y, buffer);
  return buffer;
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
