// A step back in time of a row of neurons, from the record of its spikes.
//
//   signals    a[t] and b[t] of kernels/srm.h, dense
//   changes    a and b only change at spikes, so these alone drive the gradients. With input traces that run forward
//              without resets, U <- e_m U + (S + x) r_s, S <- e_s (S + x), a spike at t whose successor fires D steps
//              later adds
//                dW += (A - A' e_m^D) U[t] - A' k(D) S[t],    A = q slope, A' the successor's (0 without one)
//              where k(D) is what a unit of S leaves in U after D steps; and with V <- e_g V backwards in time it adds
//                e_g (C - C' e_g^D) W to its patch of V,      C = q gain,    dL/dx[t] = x[t] V[t]
//
// What a successor leaves, A' e_m^D, A' k(D), A' e_s^D and C' e_g^D, decays from step to step like the signals.
#pragma once

#include "snnlib/kernels/srm.h"
#include "snnlib/simd.h"
#include "snnlib/srm.h"

namespace snnlib {
namespace SNNLIB_ISA {

inline SrmDecay<float> float_decay(const SrmConstants& c) {
  return {float(c.e_m), float(c.e_s), float(c.e_g), float(c.r_s)};
}

enum class Credit { none, changes, signal };

// What the neurons of a row carry back in time: A' e_m^D, A' k(D), A' e_s^D, C' e_g^D.
struct CarriedCredit {
  float *m, *u, *s, *g;
};

struct RecordedRow {
  const float* q;  // dL/ds of every neuron, read at spikes
  const uint16_t* bits;
  const float *slope, *gain;  // of the first spike
  int64_t neurons;
};

// All may be written up to padded(neurons); changes count at spikes only.
struct RowCredit {
  float *a, *b;
  float *change_u, *change_s, *change_v;  // what U, S and W are multiplied by
};

template <Credit Weights, Credit Inputs>
SNNLIB_NOINLINE void step_back(RecordedRow row, SrmDecay<float> k, CarriedCredit carried, RowCredit out) {
  for (int64_t i = 0; i < row.neurons; i += kGroup) {
    const uint32_t group = row.bits[i / kGroup];
    for (int64_t j = i; j < i + kGroup; j += kLanes) {
      const uint32_t bits = group >> (j - i) & kAllLanes;
      const auto fired = chosen_lanes(bits);
      const Floats q = load(row.q + j);
      if constexpr (Weights != Credit::none) {
        const Floats amount = q * load_selected(row.slope, bits), u = load(carried.u + j), s = load(carried.s + j);
        if constexpr (Weights == Credit::changes) {
          const Floats m = load(carried.m + j);
          store(out.change_u + j, amount - m);
          store(out.change_s + j, -u);
          store(carried.m + j, (fired ? amount : m) * k.e_m);
        }
        const Floats from_u = fired ? Floats{} : u, from_s = fired ? amount : s;
        const Floats a = from_u * k.e_m + from_s * k.r_s;
        if constexpr (Weights == Credit::signal) store(out.a + j, a);
        store(carried.u + j, a);
        store(carried.s + j, from_s * k.e_s);
        row.slope += count_bits(bits);
      }
      if constexpr (Inputs != Credit::none) {
        const Floats amount = q * load_selected(row.gain, bits), g = load(carried.g + j);
        const Floats b = (fired ? amount : g) * k.e_g;
        if constexpr (Inputs == Credit::changes) store(out.change_v + j, (amount - g) * k.e_g);
        if constexpr (Inputs == Credit::signal) store(out.b + j, b);
        store(carried.g + j, b);
        row.gain += count_bits(bits);
      }
    }
  }
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
