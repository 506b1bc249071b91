// Neuron as dynamics and a rule of credit: one step and its adjoint, as a loop over time wants them.
//
//   step   h = charge(y, x);   s = [h_0 >= threshold] or [h_0 > threshold];   y <- reset of h where s = 1, else h
//   back   m = dL/dh from dL/dy after the step, q = dL/ds and the numbers that the step kept;   then dL/dx and dL/dy
//          before the step from m
//
// Neurons whose inputs get a signal of their own have one more state behind those of the dynamics, a trace of the
// credit, and two signals: `back` gives the one for the weights, `back_input` the one for the inputs.
//
// The dynamics (neurons/synapse.h) charge and reset the states, the credit (neurons/credit.h) says what a spike keeps
// and does to the adjoint. F is a number (a thread of CUDA) or a vector of neurons (a CPU). A neuron in its refractory
// time stays as its last spike left it.
#pragma once

#include "snnlib/core/platform.h"

namespace snnlib {
namespace SNNLIB_ISA {

// State between steps; `fired`, the spikes of the last step, counts where the reset comes with the next step, `left`,
// the steps that are left of the refractory time (1 for ever after a last spike), where there is one.
template <int K, class F>
struct NeuronState {
  F y[K];
  F fired, left;
};

// Gradients from later steps at the end of a step: dL/dy, and dL/ds from the next step's reset.
template <int K, class F>
struct NeuronCarry {
  F g[K];
  F qs;
};

// States before the reset, the membrane before the step, and the spike.
template <int K, class F>
struct Stepped {
  F h[K];
  F before, spike;
};

template <class Dynamics_, class Credit_>
struct Neuron {
  using Dynamics = Dynamics_;
  using Credit = Credit_;
  using Flags = typename Dynamics::Flags;
  using Rows = typename Dynamics::Rows;
  static constexpr int kDynamics = Dynamics::kStates, kTrace = Credit::kTrace, kStates = kDynamics + kTrace;
  static constexpr int kKept = Credit::kKept, kSignals = 1 + kTrace;
  static constexpr bool kNext = false, kLearn = false, kGroups = true, kHasUsual = true;
  static constexpr bool kAlwaysUsual = Credit::kAlwaysUsual;
  template <class F>
  using Coefficients = typename Dynamics::template Coefficients<F>;

  // A NaN membrane gives a NaN spike: `h - h` is zero for every finite number.
  template <class F>
  SNNLIB_HD static SNNLIB_INLINE Stepped<kStates, F> charge_and_fire(NeuronState<kStates, F>& state, F x,
                                                                     const Coefficients<F>& k, const Flags& flags) {
    const F zero = F{}, one = zero + 1.0f, threshold = k.row[Rows::threshold];
    const NeuronState<kStates, F> before = state;
    Stepped<kStates, F> out;
    out.before = before.y[0];
    Dynamics::charge(before.y, x, k, out.h);
    if constexpr (kTrace) out.h[kDynamics] = Credit::trace(before.y[kDynamics], x, k);
    const F h = out.h[0];
    const auto above = h > threshold, reached = h >= threshold, fired = flags.strict ? above : reached;
    out.spike = fired ? one : h - h;
    for (int i = 0; i < kStates; ++i) {
      const F reset = i < kDynamics ? Dynamics::reset(out.h, i, k) : zero;
      const F carried = i < kDynamics ? Dynamics::carried(out.h, i, k) : out.h[i];
      state.y[i] = fired ? reset : carried;
    }
    if (flags.refractory) {
      const F last = zero + (flags.refractory < 0 ? 1.0f : float(flags.refractory)), fewer = before.left - one;
      const auto acts = before.left == zero;
      for (int i = 0; i < kStates; ++i) state.y[i] = acts ? state.y[i] : before.y[i];
      state.left = acts ? (fired ? last : zero) : (flags.refractory < 0 ? before.left : fewer);
      out.spike = acts ? out.spike : zero;
    }
    return out;
  }

  // A step: its spike, and with Keep kKept numbers for its adjoint.
  template <bool Keep, class S, class F>
  SNNLIB_HD static SNNLIB_INLINE F step(NeuronState<kStates, F>& state, F x, const Coefficients<F>& k,
                                        const Flags& flags, F* keep) {
    const Stepped<kStates, F> out = charge_and_fire(state, x, k, flags);
    if constexpr (Keep) Credit::keep(out, keep);
    return out.spike;
  }

  // A step backwards: dL/dx. `left` is that before the step.
  template <class S, class F>
  SNNLIB_HD static SNNLIB_INLINE F back(NeuronCarry<kStates, F>& carry, F q, const F* keep, F, F left,
                                        const Coefficients<F>& k, const Flags& flags, Coefficients<F>&) {
    F m[kDynamics], before[kDynamics];
    for (int i = 0; i < kDynamics; ++i) m[i] = carry.g[i];
    Credit::template adjoint<Dynamics>(m, q, keep, k);
    const F zero = F{}, grad = Dynamics::transposed(m, k, before);
    const auto acts = left == zero;
    for (int i = 0; i < kDynamics; ++i) {
      if (flags.refractory) before[i] = acts ? before[i] : carry.g[i];
      carry.g[i] = before[i];
    }
    return flags.refractory ? (acts ? grad : zero) : grad;
  }

  // A step of the trace: the signal for the inputs.
  template <class F>
  SNNLIB_HD static SNNLIB_INLINE F back_input(NeuronCarry<kStates, F>& carry, F q, const F* keep,
                                              const Coefficients<F>& k) {
    return carry.g[kDynamics] = Credit::input(carry.g[kDynamics], q, keep, k);
  }
};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
