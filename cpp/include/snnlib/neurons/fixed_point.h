// States as whole multiples of 2^-12 with 23 bits and a sign, as a Loihi chip has them, in float or double: exact, with
// the integer Z = 4096 z behind a state z. Twin: snnlib/backends/fixed_point.py.
#pragma once

#include <cmath>
#include <type_traits>

#include "snnlib/core/platform.h"

namespace snnlib {
namespace SNNLIB_ISA {

constexpr float kGridSteps = 4096.0f, kStateLimit = 2048.0f;

// Rounds towards zero; numbers that no int32 holds and NaN give any number.
template <class F>
SNNLIB_HD inline F toward_zero(F x) {
  if constexpr (std::is_floating_point_v<F>) {
    return std::trunc(x);
  } else {
#if defined(__GNUC__) && !defined(__CUDACC__)
    typedef int32_t Numbers __attribute__((vector_size(sizeof(F) / sizeof(F{}[0]) * sizeof(int32_t))));
    return __builtin_convertvector(__builtin_convertvector(x, Numbers), F);
#endif
  }
}

// A state as its whole part and, in steps of the grid, the rest.
template <class F>
struct OnGrid {
  F whole, steps;
};

template <class F>
SNNLIB_HD inline OnGrid<F> split_on_grid(F z) {
  const F whole = toward_zero(z);
  // NaN, which has no whole part, is in the rest.
  return {whole, (z - whole) * kGridSteps};
}

// decay z rounded towards zero: a product of up to 35 bits, of which that of the whole part is on the grid and that of
// the rest has 24.
template <class F>
SNNLIB_HD inline F kept_on_grid(F decay, const OnGrid<F>& z) {
  const F steps = decay * z.steps;
  return decay * z.whole + (toward_zero(steps) + (steps - steps)) * (1 / kGridSteps);
}

// The nearest multiple: that of sums on the grid, whatever their order has rounded.
template <class F>
SNNLIB_HD inline F nearest_on_grid(F x) {
  const F zero = F{}, half = zero + 0.5f, steps = x * kGridSteps;
  return (toward_zero(steps + (x < zero ? -half : half)) + (steps - steps)) * (1 / kGridSteps);
}

// The state where 23 bits hold it, else NaN, which later steps keep.
template <class F>
SNNLIB_HD inline F within_bits(F z) {
  const F zero = F{}, limit = zero + kStateLimit, size = z < zero ? -z : z;
  return size < limit ? z : zero + NAN;
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
