// Which rows the backward pass of one band of one sample deals with.
#pragma once

#include "snnlib/layer/layer.h"

namespace snnlib {
namespace SNNLIB_ISA {

inline int64_t clamp(int64_t i, int64_t low, int64_t high) { return i < low ? low : i < high ? i : high; }

// Rows [first, last) of an image.
struct Rows {
  int64_t first, last;

  int64_t count() const { return last - first; }
  bool has(int64_t y) const { return y >= first && y < last; }
};

inline Rows either(const Rows& a, const Rows& b) {
  if (!a.count() || !b.count()) return a.count() ? a : b;
  return {a.first < b.first ? a.first : b.first, a.last > b.last ? a.last : b.last};
}

inline Rows output_rows(const LayerRecord& a, int64_t band) {
  return {band * a.bands.rows, clamp((band + 1) * a.bands.rows, 0, a.shape.height)};
}

// Input rows in equal shares of the image.
inline Rows input_rows(const LayerRecord& a, int64_t band) {
  const int64_t height = a.shape.in_height, share = (height + a.bands.count - 1) / a.bands.count;
  return {clamp(band * share, 0, height), clamp((band + 1) * share, 0, height)};
}

// Input rows that some output rows see.
inline Rows seen_rows(const ConvShape& s, const Rows& out) {
  return {clamp(out.first * s.stride_h - s.padding_h, 0, s.in_height),
          clamp((out.last - 1) * s.stride_h - s.padding_h + s.kernel_h, 0, s.in_height)};
}

// Output rows whose kernels reach some input rows.
inline Rows reaching_rows(const ConvShape& s, const Rows& in) {
  if (!in.count()) return {0, 0};
  const int64_t reach = in.first + s.padding_h - s.kernel_h + 1;
  const int64_t first = reach <= 0 ? 0 : clamp((reach + s.stride_h - 1) / s.stride_h, 0, s.height);
  return {first, clamp((in.last - 1 + s.padding_h) / s.stride_h + 1, first, s.height)};
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
