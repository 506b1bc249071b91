// Element types that tensors may have in memory. Arithmetic is done in `State`: float, or double for float64 tensors.
// Conversions of the two half types round to nearest, ties to even, and keep NaN.
#pragma once

#include "snnlib/core/platform.h"

namespace snnlib {

// The codes are part of the calling convention: snnlib/backends/native.py holds the same table.
enum class DType : int { kFloat32 = 0, kFloat64 = 1, kBFloat16 = 2, kFloat16 = 3 };

// A tensor of float32 or a half type, with which kernels compute in float32. Null: not given.
struct Elements {
  void* data;
  DType dtype;
  SNNLIB_FIELDS(data, dtype)
};

namespace SNNLIB_ISA {

struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

template <class T>
struct StateOf {
  using type = float;
};
template <>
struct StateOf<double> {
  using type = double;
};

// A vector of float lanes as words, and the half words that lie in memory for it.
using FloatWords = Simd<uint32_t>::Vector;
#if defined(__GNUC__) && !defined(__CUDACC__)
typedef uint16_t HalfWords __attribute__((vector_size(kVectorBytes / 2)));
inline FloatWords widen(HalfWords h) { return __builtin_convertvector(h, FloatWords); }
inline HalfWords narrow(FloatWords w) { return __builtin_convertvector(w, HalfWords); }
#else
using HalfWords = uint16_t;
inline FloatWords widen(HalfWords h) { return h; }
inline HalfWords narrow(FloatWords w) { return HalfWords(w); }
#endif

template <class To, class From>
SNNLIB_HD inline To same_bits(const From& x) {
  static_assert(sizeof(To) == sizeof(From), "only the type changes");
  To out;
  std::memcpy(&out, &x, sizeof out);
  return out;
}
SNNLIB_HD inline float bits_float(uint32_t bits) { return same_bits<float>(bits); }
SNNLIB_HD inline uint32_t float_bits(float x) { return same_bits<uint32_t>(x); }

// The bits of a float for those of a half type, and back: of one (U is uint32_t, F is float) or of a vector. They
// select instead of branching, so that the same lines serve a vector.
template <class F, class U>
inline U widen_bits(U half, BFloat16) {
  return half << 16;
}
template <class F, class U>
inline U narrow_bits(U bits, BFloat16) {
  const U rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const U nan = (bits >> 16) | 0x40u;
  return (bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded;
}
template <class F, class U>
inline U widen_bits(U half, Float16) {
  const U magnitude = half & 0x7fffu;
  const U shifted = magnitude << 13;
  const U normal = shifted + (112u << 23);
  const U special = shifted | 0x7f800000u;
  // Behind 0.5, the mantissa counts units of 2^-24.
  const U subnormal = same_bits<U>(F(same_bits<F>(U(magnitude | 0x3f000000u)) - 0.5f));
  const U finite = magnitude < 0x400u ? subnormal : normal;
  return ((half & 0x8000u) << 16) | (magnitude < 0x7c00u ? finite : special);
}
template <class F, class U>
inline U narrow_bits(U bits, Float16) {
  const U magnitude = bits & 0x7fffffffu;
  const U normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Adding 0.5 aligns a value to units of 2^-24, rounded by the addition itself.
  const U subnormal = same_bits<U>(F(same_bits<F>(magnitude) + 0.5f)) - 0x3f000000u;
  const U finite = magnitude < 0x38800000u ? subnormal : normal;
  // 65520 and above round to infinity.
  const U infinite = U{} + 0x7c00u, nan = U{} + 0x7e00u;
  const U rounded = magnitude >= 0x477ff000u ? infinite : finite;
  return ((bits >> 16) & 0x8000u) | (magnitude > 0x7f800000u ? nan : rounded);
}

SNNLIB_HD inline float to_state(float x) { return x; }
SNNLIB_HD inline double to_state(double x) { return x; }
inline float to_state(BFloat16 x) { return bits_float(widen_bits<float>(uint32_t(x.bits), x)); }
inline float to_state(Float16 x) { return bits_float(widen_bits<float>(uint32_t(x.bits), x)); }

SNNLIB_HD inline void from_state(float x, float* out) { *out = x; }
SNNLIB_HD inline void from_state(double x, double* out) { *out = x; }
inline void from_state(float x, BFloat16* out) { out->bits = uint16_t(narrow_bits<float>(float_bits(x), *out)); }
inline void from_state(float x, Float16* out) { out->bits = uint16_t(narrow_bits<float>(float_bits(x), *out)); }

// Wide vectors are for float32 and the half types. Float64 tensors, which gradient checks have, take the kernels that
// are compiled for any processor: their bits are the same, and a third of the time to compile is saved.
#if defined(SNNLIB_WIDE)
constexpr bool kHasFloat64 = false;
#else
constexpr bool kHasFloat64 = true;
#endif
// The wide kernels take all other tensors in a build for this machine.
#if defined(SNNLIB_FLOAT64_ALONE)
constexpr bool kHasFloat32 = false;
#else
constexpr bool kHasFloat32 = true;
#endif

// Calls f(S()) for what the tensors are computed in, or for float64 the kernel `portable`.
template <class Args, class F>
inline void by_state([[maybe_unused]] DType dtype, const Args& args, void (*portable)(const Args&), const F& f) {
  if constexpr (kHasFloat32) {
    if (dtype != DType::kFloat64) return f(float());
  }
  if constexpr (kHasFloat64) {
    f(double());
  } else {
    portable(args);
  }
}

// Calls f(T()) for the tensors' element type, or for float64 the kernel `portable`.
template <class Args, class F>
inline void by_element(DType dtype, const Args& args, void (*portable)(const Args&), const F& f) {
  if constexpr (kHasFloat32) {
    if (dtype == DType::kBFloat16) return f(BFloat16());
    if (dtype == DType::kFloat16) return f(Float16());
  }
  by_state(dtype, args, portable, f);
}

template <class T>
using StateVector = typename Simd<typename StateOf<T>::type>::Vector;

// A SIMD vector of state from memory, and back. `count` lanes are real; the rest read as 0 and are not written.
template <class T>
inline StateVector<T> load_lanes(const T* p, int64_t count) {
  constexpr int64_t L = Simd<typename StateOf<T>::type>::kLanes;
  if (count < L) {
    T lanes[L] = {};
    for (int64_t i = 0; i < count; ++i) lanes[i] = p[i];
    return load_lanes<T>(lanes, L);
  }
  if constexpr (sizeof(T) == sizeof(uint16_t)) {
    HalfWords half;
    std::memcpy(&half, p, sizeof half);
    return same_bits<StateVector<T>>(widen_bits<StateVector<T>>(widen(half), T()));
  } else {
    StateVector<T> v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
}

template <class T>
inline void store_lanes(T* p, StateVector<T> v, int64_t count) {
  constexpr int64_t L = Simd<typename StateOf<T>::type>::kLanes;
  if (count < L) {
    T lanes[L];
    store_lanes<T>(lanes, v, L);
    for (int64_t i = 0; i < count; ++i) p[i] = lanes[i];
  } else if constexpr (sizeof(T) == sizeof(uint16_t)) {
    const HalfWords half = narrow(narrow_bits<StateVector<T>>(same_bits<FloatWords>(v), T()));
    std::memcpy(p, &half, sizeof half);
  } else {
    std::memcpy(p, &v, sizeof v);
  }
}

// Rows of such tensors are read where they lie or as a copy, written once and rounded.
//
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
  constexpr int64_t L = Simd<float>::kLanes;
  for (int64_t i = 0; i < n; i += L) store_lanes<To>(out + i, load_lanes<From>(in + i, n - i), n - i);
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
