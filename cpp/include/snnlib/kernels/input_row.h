// One row of an input sequence in any memory format.
#pragma once

#include "snnlib/kernels/stored_floats.h"

namespace snnlib {
namespace SNNLIB_ISA {

// Its first element.
inline int64_t row_start(const InputTrain& x, int64_t t, int64_t n, int64_t y) {
  return t * x.step + n * x.batch + y * x.height;
}

// Torch gives an axis of size 1 any stride.
inline bool is_channels_last(const InputTrain& x, const ConvShape& s) {
  return (x.channel == 1 || s.in_channels == 1) && (x.width == s.in_channels || s.in_width == 1);
}

// Row y of frame (t, n), channels-last: where it lies, or else a copy in `buffer`.
inline const float* read_row(const InputTrain& x, const ConvShape& s, int64_t t, int64_t n, int64_t y, float* buffer) {
  const int64_t start = row_start(x, t, n, y);
  if (is_channels_last(x, s)) return read_floats(x.elements, start, s.in_width * s.in_channels, buffer);
  typed(x.elements, start, [&](const auto* row) {
    for (int64_t c = 0; c < s.in_channels; ++c) {
      const auto* channel = row + c * x.channel;
      // Channels far apart are a page each, so nothing but this sees the next row coming.
      if (x.width == 1 && y + 1 < s.in_height) prefetch(channel + x.height, s.in_width);
      for (int64_t i = 0; i < s.in_width; ++i) buffer[i * s.in_channels + c] = to_state(channel[i * x.width]);
    }
  });
  return buffer;
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
