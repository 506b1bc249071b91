// Functions of programs in + - * / and bits, so that every instruction set gives the same bits. F is a vector of floats
// or one float. Errors in units in the last place against the exact value, over all floats that are not denormal:
// exp 2, log 2, log1p 3, expm1 3, tanh 6, sigmoid 3, softplus 4, sin and cos 2; square root and pow are rounded once.
//
// Float64, which gradient checks have, takes the C library's functions: its kernels exist for one instruction set.
#pragma once

#include <cmath>

#include "snnlib/core/dtype.h"
#include "snnlib/core/simd.h"

namespace snnlib {
namespace SNNLIB_ISA {

// The vector whose lanes are f of these lanes, numbers of type S.
template <class S, class F, class Function>
SNNLIB_NOINLINE F lane_by_lane(F x, F y, const Function& f) {
  constexpr size_t kCount = sizeof(F) / sizeof(S);
  S a[kCount], b[kCount];
  std::memcpy(a, &x, sizeof x);
  std::memcpy(b, &y, sizeof y);
  for (size_t i = 0; i < kCount; ++i) a[i] = f(a[i], b[i]);
  std::memcpy(&x, a, sizeof x);
  return x;
}

inline Floats floats_of(Ints n) {
#if defined(__GNUC__)
  return __builtin_convertvector(n, Floats);
#else
  return Floats(n);
#endif
}

inline Ints ints_of(Floats x) {
#if defined(__GNUC__)
  return __builtin_convertvector(x, Ints);
#else
  return Ints(x);
#endif
}

inline Floats absolute_of(Floats x) { return same_bits<Floats>(same_bits<Ints>(x) & 0x7fffffff); }

inline Floats with_sign_of(Floats magnitude, Floats x) {
  return same_bits<Floats>(same_bits<Ints>(magnitude) | (same_bits<Ints>(x) & int32_t(0x80000000)));
}

// The nearest whole number, ties to even, of numbers below 2^22.
inline Floats nearest(Floats x) { return (x + 12582912.0f) - 12582912.0f; }

// x 2^n in two factors, as 2^n alone may be infinite where the product is not; |n| <= 252.
inline Floats scaled(Floats x, Ints n) {
  const Ints half = n >> 1;
  return x * same_bits<Floats>((half + 127) << 23) * same_bits<Floats>((n - half + 127) << 23);
}

// Cephes' polynomial (Moshier, "Methods and Programs for Mathematical Functions", 1989).
inline Floats exp_of(Floats x) {
  const Floats zero = Floats{}, high = zero + 88.722839f, low = zero - 87.336544f;
  Floats y = x < low ? low : x;
  y = y > high ? high : y;
  // NaN has no whole part.
  y = x == x ? y : zero;
  const Floats n = nearest(y * 1.44269504088896341f);
  const Floats r = (y - n * 0.693359375f) - n * -2.12194440e-4f;
  Floats p = zero + 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const Floats power = scaled(p, ints_of(n));
  const Floats bounded = x > high ? zero + HUGE_VALF : x < low ? zero : power;
  return x == x ? bounded : x;
}

inline Floats log_of(Floats x) {
  const Floats zero = Floats{}, one = zero + 1.0f, least = zero + 1.17549435e-38f;
  const Ints bits = same_bits<Ints>(x < least ? one : x);
  const Ints exponent = ((bits >> 23) & 255) - 126;
  Floats m = same_bits<Floats>((bits & 0x007fffff) | 0x3f000000), e = floats_of(exponent);
  const auto low = m < zero + 0.707106781186547524f;
  e = low ? e - one : e;
  m = low ? m + m - one : m - one;
  const Floats z = m * m;
  Floats p = zero + 7.0376836292e-2f;
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  p = p * m * z;
  p = p + -2.12194440e-4f * e;
  p = p - 0.5f * z;
  const Floats found = (m + p) + 0.693359375f * e;
  const Floats edge = x < zero ? zero + NAN : x < least ? zero - HUGE_VALF : found;
  // Infinity and NaN are their own logarithms.
  return x < zero + HUGE_VALF ? edge : x;
}

// log(1 + x) and exp(x) - 1, whose rounded sums are corrected (Kahan; Higham, "Accuracy and Stability", 2002, 1.14).
inline Floats log1p_of(Floats x) {
  const Floats one = Floats{} + 1.0f, u = one + x;
  const Floats corrected = log_of(u) * (x / (u - one));
  return u == one ? x : x < Floats{} + HUGE_VALF && x > -one ? corrected : log_of(u);
}

inline Floats expm1_of(Floats x) {
  const Floats one = Floats{} + 1.0f, u = exp_of(x), less = u - one;
  // Small u - 1 has few bits left; log(u) has lost as many.
  const Floats corrected = less * (x / log_of(u));
  return u == one ? x : absolute_of(x) < one ? corrected : less;
}

inline Floats sigmoid_of(Floats x) { return 1.0f / (1.0f + exp_of(-x)); }

// log(1 + exp(x)) below 20, as in torch.
inline Floats softplus_of(Floats x) {
  const Floats far = Floats{} + 20.0f;
  return x > far ? x : log1p_of(exp_of(x > far ? far : x));
}

// Odd rational function of degree 13 over 6 (Eigen's), +-1 from 7.9 on.
inline Floats tanh_of(Floats x) {
  const Floats zero = Floats{}, far = zero + 7.90531110763549805f;
  Floats y = x < -far ? -far : x;
  y = y > far ? far : y;
  const Floats s = y * y;
  Floats p = zero - 2.76076847742355e-16f;
  p = p * s + 2.00018790482477e-13f;
  p = p * s + -8.60467152213735e-11f;
  p = p * s + 5.12229709037114e-08f;
  p = p * s + 1.48572235717979e-05f;
  p = p * s + 6.37261928875436e-04f;
  p = p * s + 4.89352455891786e-03f;
  Floats q = zero + 1.19825839466702e-06f;
  q = q * s + 1.18534705686654e-04f;
  q = q * s + 2.26843463243900e-03f;
  q = q * s + 4.89352518554385e-03f;
  const Floats found = y * p / q;
  return absolute_of(x) < zero + 4e-4f ? x : found;
}

// Sine (Quarter 0) and cosine (1) on the octant around the nearest multiple of pi/2. Arguments beyond 8192, where the
// reduction loses bits, take the C library's function in double.
template <int Quarter>
inline Floats wave_of(Floats x) {
  const Floats zero = Floats{}, one = zero + 1.0f;
  const auto far = absolute_of(x) > zero + 8192.0f;
  if (nonzero_lanes(far ? one : zero)) {
    return lane_by_lane<float>(
        x, x, [](float a, float) { return float(Quarter ? std::cos(double(a)) : std::sin(double(a))); });
  }
  const Floats y = x == x ? x : zero;
  const Floats n = nearest(y * 0.636619772367581343f);
  const Floats r = ((y - n * 1.5703125f) - n * 4.837512969970703125e-4f) - n * 7.54978995489188216e-8f;
  const Ints quarter = (ints_of(n) + Quarter) & 3;
  const Floats z = r * r;
  const Floats sine = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * r + r;
  const Floats cosine =
      ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z - 0.5f * z + one;
  const Floats found = (quarter & 1) == 1 ? cosine : sine;
  const Floats value = (quarter & 2) == 2 ? -found : found;
  return x == x ? value : x;
}
inline Floats sin_of(Floats x) { return wave_of<0>(x); }
inline Floats cos_of(Floats x) { return wave_of<1>(x); }

inline Floats sqrt_of(Floats x) {
#if defined(__AVX512F__)
  // Without a mask GCC 12 warns of its own header.
  return Floats(_mm512_maskz_sqrt_ps(__mmask16(-1), __m512(x)));
#elif defined(__AVX__)
  return Floats(_mm256_sqrt_ps(__m256(x)));
#elif defined(__SSE2__)
  return Floats(_mm_sqrt_ps(__m128(x)));
#else
  return lane_by_lane<float>(x, x, [](float a, float) { return std::sqrt(a); });
#endif
}

// Double precision, rounded at the end: a product with a logarithm in float would lose as many bits as the exponent
// has.
inline Floats pow_of(Floats x, Floats y) {
  return lane_by_lane<float>(x, y, [](float a, float b) { return float(std::pow(double(a), double(b))); });
}

inline Floats round_of(Floats x) {
  const Floats size = absolute_of(x), large = Floats{} + 8388608.0f;
  return size < large ? with_sign_of((size + large) - large, x) : x;
}
inline Floats floor_of(Floats x) {
  const Floats r = round_of(x);
  return with_sign_of(absolute_of(r > x ? r - 1.0f : r), r > x ? r - 1.0f : x);
}
inline Floats ceil_of(Floats x) { return -floor_of(-x); }

#define SNNLIB_LIBRARY_FUNCTION(name, value)                                   \
  inline Simd<double>::Vector name##_of(Simd<double>::Vector x) {              \
    return lane_by_lane<double>(x, x, [](double a, double) { return value; }); \
  }
SNNLIB_LIBRARY_FUNCTION(exp, std::exp(a))
SNNLIB_LIBRARY_FUNCTION(log, std::log(a))
SNNLIB_LIBRARY_FUNCTION(log1p, std::log1p(a))
SNNLIB_LIBRARY_FUNCTION(expm1, std::expm1(a))
SNNLIB_LIBRARY_FUNCTION(sigmoid, 1.0 / (1.0 + std::exp(-a)))
SNNLIB_LIBRARY_FUNCTION(softplus, a > 20.0 ? a : std::log1p(std::exp(a)))
SNNLIB_LIBRARY_FUNCTION(tanh, std::tanh(a))
SNNLIB_LIBRARY_FUNCTION(sin, std::sin(a))
SNNLIB_LIBRARY_FUNCTION(cos, std::cos(a))
SNNLIB_LIBRARY_FUNCTION(sqrt, std::sqrt(a))
SNNLIB_LIBRARY_FUNCTION(round, std::nearbyint(a))
SNNLIB_LIBRARY_FUNCTION(floor, std::floor(a))
SNNLIB_LIBRARY_FUNCTION(ceil, std::ceil(a))
SNNLIB_LIBRARY_FUNCTION(absolute, std::fabs(a))
#undef SNNLIB_LIBRARY_FUNCTION
inline Simd<double>::Vector pow_of(Simd<double>::Vector x, Simd<double>::Vector y) {
  return lane_by_lane<double>(x, y, [](double a, double b) { return std::pow(a, b); });
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
