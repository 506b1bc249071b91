// A matrix with its rows and columns exchanged, tile by tile in registers where there are vectors.
#pragma once

#include <utility>

#include "snnlib/core/platform.h"

namespace snnlib {
namespace SNNLIB_ISA {

#if defined(__GNUC__)
// The lower half of every 2 W lanes of `a` in front of that of `b`, or with High the upper halves.
template <int W, bool High, class V, size_t... Lane>
inline V merge_halves(V a, V b, std::index_sequence<Lane...>) {
  constexpr int kLanes = sizeof...(Lane), kFirst = High ? W : 0;
  return __builtin_shufflevector(a, b, int(Lane & W ? kLanes + Lane - W + kFirst : Lane + kFirst)...);
}

// A square of as many vectors as lanes.
template <class S, int W = Simd<S>::kLanes / 2>
inline void transpose_square(typename Simd<S>::Vector* v) {
  if constexpr (W > 0) {
    constexpr auto kAll = std::make_index_sequence<Simd<S>::kLanes>();
    for (int i = 0; i < Simd<S>::kLanes; ++i) {
      if (i & W) continue;
      const auto low = merge_halves<W, false>(v[i], v[i + W], kAll), high = merge_halves<W, true>(v[i], v[i + W], kAll);
      v[i] = low, v[i + W] = high;
    }
    transpose_square<S, W / 2>(v);
  }
}
#endif

// to[c * to_row + r] = from[r * from_row + c]
template <class S>
inline void transpose(const S* from, int64_t from_row, int64_t rows, int64_t columns, S* to, int64_t to_row) {
  int64_t done = 0;
#if defined(__GNUC__)
  constexpr int64_t L = Simd<S>::kLanes;
  const int64_t whole = columns / L * L;
  for (; done + L <= rows; done += L) {
    for (int64_t c = 0; c < whole; c += L) {
      typename Simd<S>::Vector v[L];
      for (int64_t r = 0; r < L; ++r) std::memcpy(v + r, from + (done + r) * from_row + c, sizeof v[r]);
      transpose_square<S>(v);
      for (int64_t r = 0; r < L; ++r) std::memcpy(to + (c + r) * to_row + done, v + r, sizeof v[r]);
    }
    for (int64_t c = whole; c < columns; ++c) {
      for (int64_t r = done; r < done + L; ++r) to[c * to_row + r] = from[r * from_row + c];
    }
  }
#endif
  for (; done < rows; ++done) {
    for (int64_t c = 0; c < columns; ++c) to[c * to_row + done] = from[done * from_row + c];
  }
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
