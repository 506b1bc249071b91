// What an output spike adds to the gradients, in the backward pass.
//
//   signals    a[t] and b[t] of neurons/srm.h, dense: a neuron carries (u, s) and g, which become (0, A) and C at its
//              spikes. A step back they decay to a = e_m u + r_s s, e_s s and b = e_g g.
//   changes    a and b only change at spikes, so these alone drive the gradients. With input traces that run forward
//              without resets, U <- e_m U + (S + x) r_s, S <- e_s (S + x), a spike at t whose successor fires D steps
//              later adds
//                dW += (A - A' e_m^D) U[t] - A' k(D) S[t],    A = q slope, A' the successor's (0 without one)
//              where k(D) is what a unit of S leaves in U after D steps; and with V <- e_g V backwards in time it adds
//                e_g (C - C' e_g^D) W to its patch of V,      C = q gain,    dL/dx[t] = x[t] V[t]
//   state      what comes back to the state after the last step T - 1, (Gu, Gs, Gg) = dL/d(u, s, g), acts like a
//              successor there: it adds dW += Gu U[T-1] + Gs S[T-1] and e_g Gg W to V, less what a spike at t takes
//              off,
//                dW -= Gu e_m^D U[t] + (Gu k(D) + Gs e_s^D) S[t] and e_g Gg e_g^D W, D = T-1 - t
//              A credit (au, as) of neurons/srm.h is the same in another basis:
//                Gs = au,   Gu = (1 - tau_s/tau_m) au + as
#pragma once

#include "snnlib/core/scratch.h"
#include "snnlib/core/simd.h"
#include "snnlib/loop/srm.h"
#include "snnlib/neurons/srm.h"

namespace snnlib {
namespace SNNLIB_ISA {

inline SrmDecay<float> float_decay(const SrmConstants& c) {
  return {float(c.e_m), float(c.e_s), float(c.e_g), float(c.r_s)};
}

// 1 - tau_s/tau_m
inline float credit_ratio(const SrmConstants& c) { return float(1.0 - (1.0 - c.e_m) / c.r_s); }

// The spikes of a row, in ascending order.
struct SpikeRow {
  const int32_t* places;
  const float* q;             // dL/ds of the neurons that fired, by place
  const float *slope, *gain;  // of every spike
  int64_t count;
};

// A step back of the signal a of `n` neurons: u becomes a.
SNNLIB_NOINLINE inline void step_back(float* u, float* s, int64_t n, SrmDecay<float> k) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const Floats from_s = load(s + i);
    store(u + i, load(u + i) * k.e_m + from_s * k.r_s);
    store(s + i, from_s * k.e_s);
  }
}

SNNLIB_NOINLINE inline void scale(float* x, int64_t n, float factor) {
  for (int64_t i = 0; i < n; i += kLanes) store(x + i, load(x + i) * factor);
}

// A row of (au, as) from (Gu, Gs), and back.
SNNLIB_NOINLINE inline void credit_of_state(const float* __restrict grad_u, const float* __restrict grad_s, int64_t n,
                                            float ratio, float* __restrict au, float* __restrict as) {
  SNNLIB_SIMD
  for (int64_t i = 0; i < n; ++i) {
    au[i] = grad_s[i];
    as[i] = grad_u[i] - ratio * grad_s[i];
  }
}
SNNLIB_NOINLINE inline void state_of_credit(const float* __restrict au, const float* __restrict as, int64_t n,
                                            float ratio, float* __restrict grad_u, float* __restrict grad_s) {
  SNNLIB_SIMD
  for (int64_t i = 0; i < n; ++i) {
    grad_u[i] = ratio * au[i] + as[i];
    grad_s[i] = au[i];
  }
}

// The next spike of a neuron: its A or C, and its step.
struct Successor {
  float amount;
  int32_t step;
};

// For neurons that have not fired yet.
inline void no_successors(Scratch<Successor>& successors, int64_t neurons, int64_t steps) {
  Successor* next = successors.reserve(neurons);
  for (int64_t i = 0; i < neurons; ++i) next[i] = {0.0f, int32_t(steps)};
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
