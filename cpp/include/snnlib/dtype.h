// Element types that tensors may have in memory. Arithmetic is done in `State`: float, or double for float64 tensors.
// Conversions of the two half types round to nearest, ties to even, and keep NaN.
#pragma once

#include "snnlib/platform.h"

namespace snnlib {

// The codes are part of the calling convention: snnlib/_native.py holds the same table.
enum class DType : int { kFloat32 = 0, kFloat64 = 1, kBFloat16 = 2, kFloat16 = 3 };

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

inline uint32_t float_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline float bits_float(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

SNNLIB_HD inline float to_state(float x) { return x; }
SNNLIB_HD inline double to_state(double x) { return x; }
inline float to_state(BFloat16 x) { return bits_float(uint32_t(x.bits) << 16); }
inline float to_state(Float16 x) {
  const uint32_t sign = uint32_t(x.bits & 0x8000u) << 16;
  const uint32_t exponent = (x.bits >> 10) & 0x1fu;
  const uint32_t mantissa = x.bits & 0x3ffu;
  if (exponent == 0) {
    // Subnormal: mantissa units of 2^-24.
    const float magnitude = float(mantissa) * 5.9604644775390625e-8f;
    return bits_float(float_bits(magnitude) | sign);
  }
  const uint32_t wide = exponent == 31 ? 255u : exponent + 112u;
  return bits_float(sign | (wide << 23) | (mantissa << 13));
}

SNNLIB_HD inline void from_state(float x, float* out) { *out = x; }
SNNLIB_HD inline void from_state(double x, double* out) { *out = x; }
inline void from_state(float x, BFloat16* out) {
  const uint32_t bits = float_bits(x);
  if (x != x) {
    out->bits = uint16_t((bits >> 16) | 0x40u);
    return;
  }
  out->bits = uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
inline void from_state(float x, Float16* out) {
  const uint32_t bits = float_bits(x);
  const uint16_t sign = uint16_t((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    out->bits = uint16_t(sign | 0x7e00u);
  } else if (magnitude >= 0x477ff000u) {
    // 65520 and above round to infinity.
    out->bits = uint16_t(sign | 0x7c00u);
  } else if (magnitude < 0x38800000u) {
    // Subnormal result: adding 0.5 aligns the value to units of 2^-24, rounded by the addition itself.
    const float aligned = bits_float(magnitude) + 0.5f;
    out->bits = uint16_t(sign | (float_bits(aligned) - float_bits(0.5f)));
  } else {
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    out->bits = uint16_t(sign | ((rounded - (112u << 23)) >> 13));
  }
}

// Calls the instantiation that fits the tensors' dtype.
template <class Args>
inline void by_dtype(DType dtype, const Args& args, void (*f32)(const Args&), void (*f64)(const Args&),
                     void (*bf16)(const Args&), void (*f16)(const Args&)) {
  switch (dtype) {
    case DType::kFloat32:
      return f32(args);
    case DType::kFloat64:
      return f64(args);
    case DType::kBFloat16:
      return bf16(args);
    case DType::kFloat16:
      return f16(args);
  }
}

// One SIMD vector of state from memory, and back. `count` lanes are real; the rest read as `fill` and are not written.
template <class T>
inline typename Simd<typename StateOf<T>::type>::Vector load_lanes(const T* p, int64_t count,
                                                                   typename StateOf<T>::type fill) {
  using S = typename StateOf<T>::type;
  using V = typename Simd<S>::Vector;
  constexpr int L = Simd<S>::kLanes;
  S lanes[L];
  if (count >= L) {
    for (int i = 0; i < L; ++i) lanes[i] = to_state(p[i]);
  } else {
    for (int i = 0; i < L; ++i) lanes[i] = i < count ? to_state(p[i]) : fill;
  }
  V v;
  std::memcpy(&v, lanes, sizeof v);
  return v;
}

template <class T>
inline void store_lanes(T* p, typename Simd<typename StateOf<T>::type>::Vector v, int64_t count) {
  using S = typename StateOf<T>::type;
  constexpr int L = Simd<S>::kLanes;
  S lanes[L];
  std::memcpy(lanes, &v, sizeof v);
  const int n = count >= L ? L : int(count);
  for (int i = 0; i < n; ++i) from_state(lanes[i], p + i);
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
