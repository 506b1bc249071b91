// Floats in tensors of float32 or a half type: read where they lie or as a copy, written once and rounded.
#pragma once

#include "snnlib/simd.h"
#include "snnlib/srm_conv.h"

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

}  // namespace SNNLIB_ISA
}  // namespace snnlib
