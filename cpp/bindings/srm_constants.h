// Constants of SRM neurons as the Python side hands them over.
#pragma once

#include <array>

#include "snnlib/srm.h"

namespace snnlib {

// (e_m, e_s, e_g, r_s, grad_clamp), as snnlib/ops/srm.py has them.
using Constants = std::array<double, 5>;

inline SrmConstants to_constants(const Constants& c) { return {c[0], c[1], c[2], c[3], c[4]}; }

}  // namespace snnlib
