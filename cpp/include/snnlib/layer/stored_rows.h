// Rows of tensors of float32 or a half type: read where they lie or as a copy, written once and rounded.
#pragma once

#include "snnlib/core/simd.h"
#include "snnlib/layer/layer.h"

namespace snnlib {
namespace SNNLIB_ISA {

// f(element `at`, as a pointer to its type).
template <class F>
inline void typed(const Elements& e, int64_t at, const F& f) {
  if (e.dtype == DType::kBFloat16) return f(static_cast<BFloat16*>(e.data) + at);
  if (e.dtype == DType::kFloat16) return f(static_cast<Float16*>(e.data) + at);
  f(static_cast<float*>(e.data) + at);
}

// Element `at` where it is a float in memory, else null.
inline float* in_place(const Elements& e, int64_t at) {
  return e.dtype == DType::kFloat32 ? static_cast<float*>(e.data) + at : nullptr;
}

template <class From, class To>
SNNLIB_NOINLINE void convert(const From* in, int64_t n, To* out) {
  for (int64_t i = 0; i < n; i += kLanes) store_lanes<To>(out + i, load_lanes<From>(in + i, n - i), n - i);
}
inline void convert(const float* in, int64_t n, float* out) {
  // Empty tensors have no address, which memcpy wants even for no bytes.
  if (n) std::memcpy(out, in, size_t(n) * sizeof(float));
}

inline void write_floats(const float* row, int64_t n, const Elements& e, int64_t at) {
  typed(e, at, [&](auto* out) { convert(row, n, out); });
}

// `n` floats from element `at` on: where they lie, or else a copy in `buffer`.
inline const float* read_floats(const Elements& e, int64_t at, int64_t n, float* buffer) {
  if (const float* row = in_place(e, at)) return row;
  typed(e, at, [&](const auto* in) { convert(in, n, buffer); });
  return buffer;
}

// First element of row y of frame (t, n) of an input sequence in any memory format.
inline int64_t row_start(const InputTrain& x, int64_t t, int64_t n, int64_t y) {
  return t * x.step + n * x.batch + y * x.height;
}

// Torch gives an axis of size 1 any stride.
inline bool is_channels_last(const InputTrain& x, const ConvShape& s) {
  return (x.channel == 1 || s.in_channels == 1) && (x.width == s.in_channels || s.in_width == 1);
}

// That row, channels-last: where it lies, or else a copy in `buffer`.
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
