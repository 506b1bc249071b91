// Current-based neurons whose spike times are differentiated: the event-driven gradient on a grid of steps. One step:
//
//   i <- decay_s i + gain_s x;   h = decay_m v + gain_m i + leak;   s = [h >= threshold] or [h > threshold]
//   where s = 1   v = reset, and i = 0 with reset_current;   else v = h
//   A neuron in its refractory time stays as its last spike left it.
//
// A spike is moved by `rise` steps per unit of potential and passes `passed` of the membrane's gradient on:
//
//   rise = min(1/(h - v), bound), 0 where h does not exceed v;   passed = rise (fall + gain_m i, or fall with
//   reset_current), fall = (decay_m - 1) (reset - rest)
//
// Backward, with (G_v, G_i) = dL/d(v, i) after the step and q = dL/ds, which is read at spikes:
//
//   m = passed G_v + q rise at a spike, else G_v        dL/dh
//   g = gain_m m + G_i, without G_i at a spike that resets the current;   dL/dx = gain_s g
//   before the step   G_v = decay_m m,   G_i = decay_s g
//
// Source: Wunderlich and Pehle, "Event-based backpropagation can compute exact gradients for spiking neural networks",
// 2021. Reference: snnlib/backends/reference/exact.py.
#pragma once

#include "snnlib/core/platform.h"

namespace snnlib {

// What a call sets beside the coefficients; `ExactFlags` of snnlib/backends/arguments.py.
struct ExactFlags {
  bool strict;         // fires above the threshold, not at it
  bool reset_current;  // a spike sets the current to 0, too
  bool by_time;        // of layers: input events get their gradient by time, x[t] (dL/dx[t] - dL/dx[t+1])
  int64_t refractory;  // steps; -1 for ever
  SNNLIB_FIELDS(strict, reset_current, by_time, refractory)
};

// Rows of the coefficients, per neuron: `ExactRows` of snnlib/backends/arguments.py.
struct ExactRows {
  static constexpr int decay_m = 0, decay_s = 1, gain_m = 2, gain_s = 3, leak = 4, fall = 5, reset = 6, threshold = 7,
                       bound = 8, count = 9;
};

namespace SNNLIB_ISA {

template <class F>
struct ExactCoefficients {
  F row[ExactRows::count];
};

// `left` are steps of the refractory time that are left, 1 for ever after a last spike.
template <class F>
struct ExactState {
  F v, i, left;
};

// What a step computes before the reset: its spike, the rise of the membrane and what the current adds to it.
template <class F>
struct ExactStep {
  F spike, slope, charge;
};

template <class F>
SNNLIB_HD inline auto exact_fires(F h, const ExactCoefficients<F>& k, const ExactFlags& flags) {
  const F zero = F{}, threshold = k.row[ExactRows::threshold];
  const auto never = zero > zero, always = zero >= zero;
  return (h > threshold) | ((h >= threshold) & (flags.strict ? never : always));
}

// One time step. A NaN membrane gives a NaN spike: `h - h` is zero for every finite number.
template <class F>
SNNLIB_HD inline ExactStep<F> exact_step(ExactState<F>& state, F x, const ExactCoefficients<F>& k,
                                         const ExactFlags& flags) {
  using R = ExactRows;
  const F zero = F{}, one = zero + 1.0f;
  const F i = k.row[R::decay_s] * state.i + k.row[R::gain_s] * x, charge = k.row[R::gain_m] * i;
  const F h = k.row[R::decay_m] * state.v + charge + k.row[R::leak];
  const auto acts = state.left == zero;
  const auto fired = exact_fires(h, k, flags) & acts;
  const F spike = fired ? one : h - h;
  const ExactStep<F> out{acts ? spike : zero, h - state.v, charge};
  const F v = fired ? k.row[R::reset] : h, kept = fired ? zero : i;
  state.v = acts ? v : state.v;
  state.i = acts ? (flags.reset_current ? kept : i) : state.i;
  if (flags.refractory) {
    const F last = zero + (flags.refractory < 0 ? 1.0f : float(flags.refractory)), fewer = state.left - one;
    state.left = acts ? (fired ? last : zero) : (flags.refractory < 0 ? state.left : fewer);
  }
  return out;
}

// Steps per unit of potential that a spike is moved by.
template <class F>
SNNLIB_HD inline F exact_rise(const ExactStep<F>& step, const ExactCoefficients<F>& k) {
  const F zero = F{}, time = 1.0f / step.slope, bound = k.row[ExactRows::bound];
  const F bounded = time < bound ? time : bound;
  return step.slope > zero ? bounded : zero;
}

// The share of the membrane's gradient that a spike with this rise passes on.
template <class F>
SNNLIB_HD inline F exact_passed(const ExactStep<F>& step, F rise, const ExactCoefficients<F>& k,
                                const ExactFlags& flags) {
  const F fall = k.row[ExactRows::fall];
  return (flags.reset_current ? fall : step.charge + fall) * rise;
}

// dL/d(v, i), from later steps.
template <class F>
struct ExactCarry {
  F v, i;
};

// dL/dh of a spike. A gradient is not read where the membrane did not rise, whatever it is.
template <class F>
SNNLIB_HD inline F exact_at_spike(F g_v, F q, F rise, F passed) {
  const F zero = F{}, own = q * rise;
  return (rise == zero ? zero : own) + g_v * passed;
}

// One step backwards: dL/dx. `fired` and `acts` say where it fired and was not in its refractory time.
template <class F, class M>
SNNLIB_HD inline F exact_back(ExactCarry<F>& carry, F q, F rise, F passed, M fired, M acts,
                              const ExactCoefficients<F>& k, const ExactFlags& flags) {
  using R = ExactRows;
  const F zero = F{}, at_spike = exact_at_spike(carry.v, q, rise, passed);
  const F m = fired ? at_spike : carry.v, cleared = fired ? zero : carry.i;
  const F g = (flags.reset_current ? cleared : carry.i) + k.row[R::gain_m] * m;
  const F v = k.row[R::decay_m] * m, i = k.row[R::decay_s] * g, grad = k.row[R::gain_s] * g;
  carry.v = acts ? v : carry.v;
  carry.i = acts ? i : carry.i;
  return acts ? grad : zero;
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
