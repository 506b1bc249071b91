// Spike response model (SRM) neuron, discrete time, state zero at the start and after every spike.
//
//   forward    u <- e_m u + (s + I) r_s        membrane potential, in units of the threshold's
//              s <- e_s (s + I)                synaptic trace
//              g <- e_g (g + I)                trace of the exponential gradient kernel
//              delta_u = u - u_last,  delta_ut = g        stored before the reset
//              spike = u >= threshold;  at a spike u = s = g = 0
//   backward   q = dL/ds, read at spikes only; each input event is credited to the first output spike at or after it
//              a[t] = q min(1/delta_u, clamp) eps[dt]     signal for the weights
//              b[t] = q (1/delta_ut) e_g^(dt+1)           signal for the inputs, 0 where delta_ut <= 0
//              If u starts above the threshold and does not rise, the spike time has no derivative: a = 0.
//
// e_x = 1 - 1/tau_x and r_s = 1/tau_s with tau in time steps. The recurrence equals u = c (m - s) with
// c = tau_m / (tau_m - tau_s), and needs no special case for tau_m = tau_s. eps[dt] is its impulse response, so the
// backward runs the same recurrence from the credited spike towards earlier steps.
// Source: Zhu et al., "Training spiking neural networks with event-driven backpropagation", NeurIPS 2022, sections
// 3, 4.
#pragma once

#include <cmath>

#include "snnlib/core/platform.h"

namespace snnlib {

struct SrmConstants {
  double e_m, e_s, e_g, r_s;
  double grad_clamp;  // infinity: no clamp
  SNNLIB_FIELDS(e_m, e_s, e_g, r_s, grad_clamp)
};

namespace SNNLIB_ISA {

template <class S>
struct SrmDecay {
  S e_m, e_s, e_g, r_s;
};

template <class F>
struct SrmState {
  F u, s, g;
};

template <class F>
struct SrmStep {
  F spike, u, delta_u, delta_ut;
};

// State after a step's current, before any spike.
template <class F, class S>
SNNLIB_HD inline SrmState<F> srm_charge(const SrmState<F>& state, F current, const SrmDecay<S>& k) {
  const F x = state.s + current;
  const F u = state.u * k.e_m + x * k.r_s;
  const F g = (state.g + current) * k.e_g;
  return {u, x * k.e_s, g};
}

// A time step of F neurons. A NaN potential gives a NaN spike: `u - u` is zero for every finite number.
template <class F, class S>
SNNLIB_HD inline SrmStep<F> srm_step(SrmState<F>& state, F current, F threshold, const SrmDecay<S>& k) {
  const F zero = F{};
  const F one = zero + S(1);
  const SrmState<F> charged = srm_charge(state, current, k);
  const F u = charged.u;
  const auto fired = u >= threshold;
  const SrmStep<F> out{fired ? one : u - u, u, u - state.u, charged.g};
  state.u = fired ? zero : u;
  state.s = fired ? zero : charged.s;
  state.g = fired ? zero : charged.g;
  return out;
}

// 1 / x where x > 0, else 0. A CUDA thread has a cheaper one with the same bits.
struct RiseReciprocal {
  template <class F>
  SNNLIB_HD F operator()(F x) const {
    const F zero = F{};
    const F reciprocal = 1.0f / x;
    return x > zero ? reciprocal : zero;
  }
};

// Factors of q = dL/ds of a spike: slope = min(1/delta_u, clamp) for the signal a, gain = 1/delta_ut for b,
// each 0 where its trace does not rise.
template <class F, class S, class R>
SNNLIB_HD inline F srm_slope(F delta_u, S clamp, const R& reciprocal) {
  return smaller(reciprocal(delta_u), F{} + clamp);
}

template <class F, class R>
SNNLIB_HD inline F srm_gain(F delta_ut, const R& reciprocal) {
  return reciprocal(delta_ut);
}

// Credit that flows from an output spike to the inputs before it: (au, as) runs the membrane's impulse response
// scaled by q slope, bg the exponential kernel scaled by q gain.
template <class F>
struct SrmCredit {
  F au, as, bg;
};

// A step backwards in time; `amount` is q slope, and counts where the neuron fired.
template <class M, class F, class S>
SNNLIB_HD inline void srm_credit_weight(SrmCredit<F>& credit, M fired, F amount, const SrmDecay<S>& k) {
  const F zero = F{};
  const F left = credit.au * k.e_m;
  const F as = fired ? amount : credit.as;
  credit.au = (fired ? zero : left) + as * k.r_s;
  credit.as = as * k.e_s;
}

// A step backwards of the input signal, with q gain.
template <class M, class F, class S>
SNNLIB_HD inline void srm_credit_input(SrmCredit<F>& credit, M fired, F amount, const SrmDecay<S>& k) {
  credit.bg = (fired ? amount : credit.bg) * k.e_g;
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
