// Rules of credit: what a step keeps, and what a spike does to the adjoint m = dL/dh.
//
//   SpikeTime   m_0 <- q rise + passed m_0 at a spike, and m_1 <- 0 where it resets the current (All)
//
// A spike is moved by `rise` steps per unit of potential and passes `passed` of the membrane's gradient on:
//
//   rise = min(1/(h - v), bound), 0 where h does not exceed v;   passed = rise (fall + gain_m i, or fall with All),
//   fall = (decay_m - 1) (reset - rest)
//
// Source: Wunderlich and Pehle, "Event-based backpropagation can compute exact gradients for spiking neural networks",
// 2021. Reference: snnlib/backends/reference/exact.py.
#pragma once

#include <math.h>

#include "snnlib/neurons/neuron.h"
#include "snnlib/neurons/synapse.h"

namespace snnlib {
namespace SNNLIB_ISA {

template <bool All>
struct SpikeTime {
  using Rows = SynapseRows;
  static constexpr int kKept = 2 - All;

  // h - v of a spike, infinite where the membrane did not rise, and 0 without a spike: one number says both.
  template <class F>
  SNNLIB_HD static F delta(const Stepped<2, F>& out) {
    const F zero = F{}, rise = out.h[0] - out.before, risen = rise > zero ? rise : zero + INFINITY;
    return out.spike > zero ? risen : zero;
  }
  template <class F>
  SNNLIB_HD static F rise(F delta, const SynapseCoefficients<F>& k) {
    const F time = 1.0f / delta;
    return time < k.row[Rows::bound] ? time : k.row[Rows::bound];
  }
  template <class F>
  SNNLIB_HD static F passed(F current, F rise, const SynapseCoefficients<F>& k) {
    return (All ? k.row[Rows::fall] : k.row[Rows::gain_m] * current + k.row[Rows::fall]) * rise;
  }
  // dL/dh of a spike. A gradient is not read where the membrane did not rise, whatever it is.
  template <class F>
  SNNLIB_HD static F at_spike(F g_v, F q, F rise, F passed) {
    const F zero = F{}, own = q * rise;
    return (rise == zero ? zero : own) + g_v * passed;
  }

  template <class F>
  SNNLIB_HD static void keep(const Stepped<2, F>& out, F* keep) {
    keep[0] = delta(out);
    if (!All) keep[kKept - 1] = out.h[1];
  }
  template <class Dynamics, class F>
  SNNLIB_HD static void adjoint(F (&m)[2], F q, const F* keep, const SynapseCoefficients<F>& k) {
    const F rise = SpikeTime::rise(keep[0], k), now = at_spike(m[0], q, rise, passed(keep[kKept - 1], rise, k));
    const auto fired = keep[0] > F{};
    m[0] = fired ? now : m[0];
    if (All) m[1] = fired ? F{} : m[1];
  }
};

// Current-based neurons whose spike times are differentiated.
template <bool All>
using SpikeTimeNeuron = Neuron<Synapse<All>, SpikeTime<All>>;

}  // namespace SNNLIB_ISA
}  // namespace snnlib
