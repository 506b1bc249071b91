// 1 / x rounded as by a division, without its check of the range: the check is made once for many.
#pragma once

#include "launch.h"

namespace snnlib {
namespace cuda {

// 1 / x, right where 2^-126 <= |x| <= 2^126; elsewhere `error` is 1 or NaN, so that a sum of errors below kMostDoubt
// vouches for all of them. The refinement is the one that a compiler makes of a division (Markstein, "Computation of
// elementary functions on the IBM RISC System/6000 processor", 1990).
struct FastReciprocal {
  static constexpr float kMostDoubt = 0.01f;
  float& error;

  __device__ float operator()(float x) const {
    const float near = approximate_reciprocal(x);
    const float missing = multiply_add(-x, near, 1.0f);
    error = fabsf(missing);
    return multiply_add(near, missing, near);
  }
};

}  // namespace cuda
}  // namespace snnlib
