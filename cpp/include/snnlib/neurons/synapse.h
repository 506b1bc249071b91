// Dynamics of a membrane v that a synapse with the current i charges:
//
//   i <- decay_s i + gain_s x;   h = decay_m v + gain_m i + leak;   a spike sets v to `reset`, and i to 0 with All
//
// Backward, with m = dL/d(h, i) of a step:   g = m_1 + gain_m m_0;   dL/dx = gain_s g;   before the step
// G_v = decay_m m_0, G_i = decay_s g.
//
// The units of the spike response model have gain_s 1, leak and reset 0, and the state s = decay_s i, which no division
// can give back:   i = s + x;   h = decay_m v + gain_m i;   s <- decay_s i;   G_s = dL/dx = decay_s m_1 + gain_m m_0.
#pragma once

#include "snnlib/neurons/linear_flags.h"

namespace snnlib {

// Options of a call beside the coefficients; `SpikeTimeFlags` of snnlib/backends/spike_time.py.
struct SynapseFlags {
  static constexpr bool reset_next = false;
  bool strict;         // fires above the threshold, not at it
  bool reset_current;  // a spike sets the current to 0, too
  bool by_time;        // of layers: input events get their gradient by time, x[t] (dL/dx[t] - dL/dx[t+1])
  bool srm;            // in the units of the spike response model, with SpikeCredit and SrmRows
  int64_t refractory;  // steps; -1 for ever
  SNNLIB_FIELDS(strict, reset_current, by_time, srm, refractory)
};

// Rows of the coefficients, per neuron: `SpikeTimeRows` of snnlib/backends/spike_time.py. None are of the input alone,
// as `LinearRows` have them from b to c.
struct SynapseRows {
  static constexpr int decay_m = 0, decay_s = 1, gain_m = 2, gain_s = 3, leak = 4, fall = 5, reset = 6, threshold = 7,
                       bound = 8, count = 9, b = count, c = count;
};

// Neurons of the spike response model have the decay of their trace beside them. Channels mostly share all rows but the
// threshold, which alone is read for each.
struct SrmRows : SynapseRows {
  static constexpr int decay_g = 9, count = 10, b = threshold, c = threshold + 1;
};

// The flags, as far as they are known as constants: see linear_flags.h.
template <Options O>
SNNLIB_HD SynapseFlags known_flags(const SynapseFlags& flags) {
  if (O == Options::kAny) return flags;
  return {false, flags.reset_current, flags.by_time, flags.srm, 0};
}

template <bool HasUsual, class F>
void by_options(const SynapseFlags& flags, const F& f) {
  if constexpr (HasUsual) {
    if (!flags.strict && !flags.refractory) return f(std::integral_constant<Options, Options::kUsual>());
  }
  f(std::integral_constant<Options, Options::kAny>());
}

// Rows of the state behind the two of the dynamics: the trace of the credit, and the steps that are left of a
// refractory time.
SNNLIB_HD inline int added_rows(const SynapseFlags& f) { return f.srm + (f.refractory != 0); }

namespace SNNLIB_ISA {

template <class F, class Rows = SynapseRows>
struct SynapseCoefficients {
  F row[Rows::count];
};

// `Srm`: in the units of the spike response model.
template <bool All, bool Srm = false>
struct Synapse {
  using Flags = SynapseFlags;
  using Rows = std::conditional_t<Srm, SrmRows, SynapseRows>;
  static constexpr int kStates = 2;
  template <class F>
  using Coefficients = SynapseCoefficients<F, Rows>;

  template <int K, class F>
  SNNLIB_HD static SNNLIB_INLINE void charge(const F (&y)[K], F x, const Coefficients<F>& k, F (&h)[K]) {
    h[1] = Srm ? y[1] + x : k.row[Rows::decay_s] * y[1] + k.row[Rows::gain_s] * x;
    h[0] = k.row[Rows::decay_m] * y[0] + k.row[Rows::gain_m] * h[1];
    if (!Srm) h[0] = h[0] + k.row[Rows::leak];
  }
  template <int K, class F>
  SNNLIB_HD static SNNLIB_INLINE F reset(const F (&h)[K], int i, const Coefficients<F>& k) {
    return i == 0 ? (Srm ? F{} : k.row[Rows::reset]) : All ? F{} : h[1];
  }
  // The state after a step without a spike.
  template <int K, class F>
  SNNLIB_HD static SNNLIB_INLINE F carried(const F (&h)[K], int i, const Coefficients<F>& k) {
    return Srm && i == 1 ? k.row[Rows::decay_s] * h[1] : h[i];
  }
  template <class F>
  SNNLIB_HD static SNNLIB_INLINE F transposed(const F (&m)[2], const Coefficients<F>& k, F (&before)[2]) {
    const F g = (Srm ? k.row[Rows::decay_s] * m[1] : m[1]) + k.row[Rows::gain_m] * m[0];
    before[0] = k.row[Rows::decay_m] * m[0];
    before[1] = Srm ? g : k.row[Rows::decay_s] * g;
    return Srm ? g : k.row[Rows::gain_s] * g;
  }
};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
