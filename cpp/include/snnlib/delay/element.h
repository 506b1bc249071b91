// What one element of a sequence does when its channel arrives later. Equations: snnlib/delay/delay.h.
#pragma once

#include "snnlib/core/platform.h"

namespace snnlib {
namespace SNNLIB_ISA {

// An event adds a tap of itself to a later step: the earlier of two events first.
template <class S>
SNNLIB_HD inline S add_event(S sum, S tap, S x) {
  return sum + tap * x;
}

// A signal, which is not sparse, taken from its two later steps.
template <class S>
SNNLIB_HD inline S two_taps(S first, S now, S second, S next) {
  return first * now + second * next;
}

// What an event and the signal at one of its later steps add to the gradient of a delay.
template <class S>
SNNLIB_HD inline double delay_product(S x, S grad) {
  return double(x) * double(grad);
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
