// Division by a number that the host knows, by one multiplication: it costs a GPU some twenty instructions, that of 64
// bits a subroutine of eighty. Granlund and Montgomery, "Division by invariant integers using multiplication", PLDI
// 1994.
#pragma once

#include "launch.h"

namespace snnlib {
namespace cuda {

// For n and size below half of what W (uint32_t or uint64_t) holds.
template <class W>
struct Divider {
  W size, factor;
  uint32_t shift;

  Divider() = default;
  explicit Divider(int64_t divisor) : size(W(divisor)), factor(0), shift(0) {
    while ((W(1) << shift) < size) ++shift;
    // 2^bits (2^shift - size) / size + 1, a bit at a time: no type holds the product for 64 bits.
    W rest = W((W(1) << shift) - size);
    for (unsigned bit = 0; bit < 8 * sizeof(W); ++bit) {
      rest = W(2 * rest);
      factor = W(2 * factor + (rest >= size));
      if (rest >= size) rest = W(rest - size);
    }
    ++factor;
  }
  __device__ W quotient(W n) const { return (multiply_high(n, factor) + n) >> shift; }
  __device__ W remainder(W n) const { return n - quotient(n) * size; }
};

}  // namespace cuda
}  // namespace snnlib
