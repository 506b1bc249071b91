// Options of neurons of the linear family as the Python side hands them over.
#pragma once

#include <array>

#include "snnlib/neurons/linear.h"

namespace snnlib {

// `Dynamics.flags` of snnlib/neurons/dynamics.py.
using Flags = std::array<int, 9>;

inline LinearFlags to_flags(const Flags& f) {
  return {SurrogateKind(f[0]), f[1] != 0, f[2] != 0, f[3] != 0, f[4] != 0, f[5] != 0, f[6] != 0, f[7] != 0, f[8] != 0};
}

}  // namespace snnlib
