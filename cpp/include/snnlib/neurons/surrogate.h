// Surrogate gradients of spikes: ds/du = height f(scale u), f(0) = 1, with f in + - * / only, so that every instruction
// set and CUDA give the same bits. Formulas and names: snnlib/neurons/surrogate.py.
#pragma once

#include <math.h>

#include "snnlib/core/platform.h"

namespace snnlib {

enum class SurrogateKind : int {
  kTriangle,
  kRectangle,
  kATan,
  kFastSigmoid,
  kSigmoid,
  kExponential,
  kGaussian,
  kMultiGaussian,
};

// Their names in Python, in this order.
constexpr const char* kSurrogateNames[] = {"triangle", "rectangle",   "atan",     "fast_sigmoid",
                                           "sigmoid",  "exponential", "gaussian", "multi_gaussian"};

// Where the bump of neurons with several levels stands: at the first threshold, at every one, or from the first level
// to the last; `SPREADS` of snnlib/backends/surrogate.py.
enum class SurrogateSpread : int { kFirst, kEvery, kFlat };

// True if a shape is zero away from the threshold.
SNNLIB_HD constexpr bool is_compact(SurrogateKind kind) {
  return kind == SurrogateKind::kTriangle || kind == SurrogateKind::kRectangle;
}

namespace SNNLIB_ISA {

// x / divisor, rounded once. From compute capability 10 on, nvcc 13.0 with -ftz=true turns a float's quotient by a
// constant into the product with its reciprocal, which rounds twice; the intrinsic stays as it is.
template <class F, class S>
SNNLIB_HD inline F quotient(F x, S divisor) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(F) == sizeof(float)) return __fdiv_rn(x, divisor);
#endif
  return x / divisor;
}

// exp(-z), z >= 0: a rational function of z/64 to the power of 64, zero from z = 40 on. Relative error 1e-5 in float32.
template <class F, class S>
SNNLIB_HD inline F exp_minus(F z, S) {
  const F zero = F{}, far = zero + S(40);
  const F y = (z < far ? z : far) / S(64);
  const F even = S(1) + quotient(y * y, S(10));
  const F odd = y * (S(0.5) + quotient(y * y, S(120)));
  F power = (even - odd) / (even + odd);
  for (int i = 0; i < 6; ++i) power = power * power;
  return z >= far ? zero : power;
}

// The shapes that need exp, apart: inlined they would fill the kernels.
template <class F, class S>
SNNLIB_HD SNNLIB_NOINLINE F surrogate_exponential(SurrogateKind kind, F z, S one) {
  const bool square = kind == SurrogateKind::kGaussian || kind == SurrogateKind::kMultiGaussian;
  const F e = exp_minus(square ? z * z : z, one);
  if (kind == SurrogateKind::kMultiGaussian) {
    return quotient(S(23) * e - exp_minus(quotient(z * z, S(36)), one), S(22));
  }
  return kind == SurrogateKind::kSigmoid ? S(4) * e / ((one + e) * (one + e)) : e;
}

// |x| but for the sign of a zero, which no shape sees.
template <class F>
SNNLIB_HD inline F magnitude(F x) {
  return x < F{} ? -x : x;
}
SNNLIB_HD inline float magnitude(float x) { return fabsf(x); }

// 1 / x. A CUDA thread has a cheaper one with the same bits.
template <class S>
struct Division {
  template <class F>
  SNNLIB_HD F operator()(F x) const {
    return S(1) / x;
  }
};

// f(z) at z = |scale u|. S is the scalar type behind F; the reciprocal is of numbers of 1 and more.
template <class F, class S, class Reciprocal = Division<S>>
SNNLIB_HD inline F surrogate_shape(SurrogateKind kind, F z, S one, const Reciprocal& reciprocal = {}) {
  const F zero = F{};
  switch (kind) {
    case SurrogateKind::kTriangle: {
      const F height = one - z;
      return height > zero ? height : zero;
    }
    case SurrogateKind::kRectangle:
      return z < zero + one ? zero + one : zero;
    case SurrogateKind::kATan:
      return reciprocal(one + z * z);
    case SurrogateKind::kFastSigmoid:
      return reciprocal((one + z) * (one + z));
    default:
      return surrogate_exponential(kind, z, one);
  }
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
