// 1 / x rounded as by a division, without its check of the range: the check is made once for many.
#pragma once

#include "launch.h"

namespace snnlib {
namespace cuda {

// 1 / x, right where 2^-126 <= |x| < 2^126; elsewhere it is right too, or `error` is 1 or NaN, so that a sum of errors
// below kMostDoubt vouches for all of them. The refinement is the one that a compiler makes of a division (Markstein,
// "Computation of elementary functions on the IBM RISC System/6000 processor", 1990).
//
// From a start within one unit of 1/x, which is what PTX promises of rcp.approx, this rounds right for every mantissa
// but one: all ones, from the neighbour below. NVIDIA's own rcp.rn.f32, which always rounds right, is these four
// instructions in this range, so that hardware has to start right there. `make gpu-check` runs all mantissas.
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

// Reciprocal of numbers of 1 and more: right where `most`, the largest of them, is_right; NaN gives NaN. At 2^126 and
// above rcp.rn.f32 takes another way.
struct BoundedReciprocal {
  float& most;

  __device__ float operator()(float x) const {
    most = fmaxf(most, x);
    float error;
    return FastReciprocal{error}(x);
  }
  static __device__ bool is_right(float most) { return most < 0x1p126f; }
};

}  // namespace cuda
}  // namespace snnlib
