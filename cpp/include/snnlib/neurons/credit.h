// Rules of credit: what a step keeps, and what a spike does to the adjoint m = dL/dh.
//
//   SpikeTime     m_0 <- q rise + passed m_0 at a spike, and m_1 <- 0 where it resets the current (All)
//   SpikeCredit   m_0 <- q rise and m_1 <- 0 at a spike; the inputs may have a signal of their own (Both), from a
//                 trace that a spike resets:   g <- decay_g (g + x);   b <- decay_g (q / g at a spike, else b)
//
// A spike is moved by `rise` steps per unit of potential and passes `passed` of the membrane's gradient on:
//
//   rise = min(1/(h - v), bound), 0 where h does not exceed v;   passed = rise (fall + gain_m i, or fall with All),
//   fall = (decay_m - 1) (reset - rest)
//
// SpikeCredit selects where SpikeTime with All adds a product with 0, so that NaN and infinite gradients stay at their
// spike.
//
// Sources: Wunderlich and Pehle, "Event-based backpropagation can compute exact gradients for spiking neural networks",
// 2021; SpikeCredit: Zhu et al., "Training spiking neural networks with event-driven backpropagation", NeurIPS 2022.
// Reference: snnlib/backends/reference/exact.py.
#pragma once

#include <math.h>

#include "snnlib/neurons/neuron.h"
#include "snnlib/neurons/synapse.h"

namespace snnlib {
namespace SNNLIB_ISA {

struct MovedSpike {
  // h - v of a spike, infinite where the membrane did not rise, and 0 without a spike: one number says both.
  template <int K, class F>
  SNNLIB_HD static SNNLIB_INLINE F delta(const Stepped<K, F>& out) {
    const F zero = F{}, rise = out.h[0] - out.before, risen = rise > zero ? rise : zero + INFINITY;
    return out.spike > zero ? risen : zero;
  }
  template <class F, class Rows>
  SNNLIB_HD static SNNLIB_INLINE F rise(F delta, const SynapseCoefficients<F, Rows>& k) {
    const F time = 1.0f / delta;
    return time < k.row[Rows::bound] ? time : k.row[Rows::bound];
  }
};

template <bool All>
struct SpikeTime : MovedSpike {
  using Rows = SynapseRows;
  static constexpr int kTrace = 0, kKept = 2 - All;
  static constexpr bool kAlwaysUsual = false;

  template <class F>
  SNNLIB_HD static SNNLIB_INLINE F passed(F current, F rise, const SynapseCoefficients<F>& k) {
    return (All ? k.row[Rows::fall] : k.row[Rows::gain_m] * current + k.row[Rows::fall]) * rise;
  }
  // dL/dh of a spike. A gradient is not read where the membrane did not rise, whatever it is.
  template <class F>
  SNNLIB_HD static SNNLIB_INLINE F at_spike(F g_v, F q, F rise, F passed) {
    const F zero = F{}, own = q * rise;
    return (rise == zero ? zero : own) + g_v * passed;
  }

  template <class F>
  SNNLIB_HD static SNNLIB_INLINE void keep(const Stepped<2, F>& out, F* keep) {
    keep[0] = delta(out);
    if (!All) keep[kKept - 1] = out.h[1];
  }
  template <class Dynamics, class F>
  SNNLIB_HD static SNNLIB_INLINE void adjoint(F (&m)[2], F q, const F* keep, const SynapseCoefficients<F>& k) {
    const F rise = SpikeTime::rise(keep[0], k), now = at_spike(m[0], q, rise, passed(keep[kKept - 1], rise, k));
    const auto fired = keep[0] > F{};
    m[0] = fired ? now : m[0];
    if (All) m[1] = fired ? F{} : m[1];
  }
};

// `Both`: with the signal for the inputs.
template <bool Both>
struct SpikeCredit : MovedSpike {
  using Rows = SrmRows;
  static constexpr int kTrace = Both, kKept = 1 + Both;
  // Neither `strict` nor a refractory time.
  static constexpr bool kAlwaysUsual = true;
  template <class F>
  using Coefficients = SynapseCoefficients<F, Rows>;

  template <class F>
  SNNLIB_HD static SNNLIB_INLINE F trace(F g, F x, const Coefficients<F>& k) {
    return (g + x) * k.row[Rows::decay_g];
  }
  template <class F>
  SNNLIB_HD static SNNLIB_INLINE void keep(const Stepped<2 + Both, F>& out, F* keep) {
    keep[0] = delta(out);
    if (Both) keep[kKept - 1] = out.h[1 + Both];
  }
  template <class Dynamics, class F>
  SNNLIB_HD static SNNLIB_INLINE void adjoint(F (&m)[2], F q, const F* keep, const Coefficients<F>& k) {
    const F now = q * rise(keep[0], k);
    const auto fired = keep[0] > F{};
    m[0] = fired ? now : m[0];
    m[1] = fired ? F{} : m[1];
  }
  template <class F>
  SNNLIB_HD static SNNLIB_INLINE F gain(F g) {
    const F zero = F{}, gain = 1.0f / g;
    return g > zero ? gain : zero;
  }
  template <class F>
  SNNLIB_HD static SNNLIB_INLINE F input(F b, F q, const F* keep, const Coefficients<F>& k) {
    const F now = q * gain(keep[1]);
    return (keep[0] > F{} ? now : b) * k.row[Rows::decay_g];
  }
};

// Current-based neurons whose spike times are differentiated.
template <bool All>
using SpikeTimeNeuron = Neuron<Synapse<All>, SpikeTime<All>>;
// Neurons of the spike response model.
template <bool Both>
using SpikeCreditNeuron = Neuron<Synapse<true, true>, SpikeCredit<Both>>;

}  // namespace SNNLIB_ISA
}  // namespace snnlib
