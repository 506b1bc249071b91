// Dynamics of a membrane v that a synapse with the current i charges:
//
//   i <- decay_s i + gain_s x;   h = decay_m v + gain_m i + leak;   a spike sets v to `reset`, and i to 0 with All
//
// Backward, with m = dL/d(h, i) of a step:   g = m_1 + gain_m m_0;   dL/dx = gain_s g;   before the step
// G_v = decay_m m_0, G_i = decay_s g.
#pragma once

#include "snnlib/neurons/linear_flags.h"

namespace snnlib {

// Options of a call beside the coefficients; `ExactFlags` of snnlib/backends/arguments.py.
struct SynapseFlags {
  static constexpr bool reset_next = false;
  bool strict;         // fires above the threshold, not at it
  bool reset_current;  // a spike sets the current to 0, too
  bool by_time;        // of layers: input events get their gradient by time, x[t] (dL/dx[t] - dL/dx[t+1])
  int64_t refractory;  // steps; -1 for ever
  SNNLIB_FIELDS(strict, reset_current, by_time, refractory)
};

// Rows of the coefficients, per neuron: `ExactRows` of snnlib/backends/arguments.py. None are of the input alone, as
// `LinearRows` have them from b to c.
struct SynapseRows {
  static constexpr int decay_m = 0, decay_s = 1, gain_m = 2, gain_s = 3, leak = 4, fall = 5, reset = 6, threshold = 7,
                       bound = 8, count = 9, b = count, c = count;
};

// The flags, as far as they are known as constants: see linear_flags.h.
template <Options O>
SNNLIB_HD SynapseFlags known_flags(const SynapseFlags& flags) {
  if (O == Options::kAny) return flags;
  return {false, flags.reset_current, flags.by_time, 0};
}

template <bool HasUsual, class F>
void by_options(const SynapseFlags& flags, const F& f) {
  if constexpr (HasUsual) {
    if (!flags.strict && !flags.refractory) return f(std::integral_constant<Options, Options::kUsual>());
  }
  f(std::integral_constant<Options, Options::kAny>());
}

SNNLIB_HD inline int added_rows(const SynapseFlags& f) { return f.refractory != 0; }

namespace SNNLIB_ISA {

template <class F>
struct SynapseCoefficients {
  F row[SynapseRows::count];
};

template <bool All>
struct Synapse {
  using Flags = SynapseFlags;
  using Rows = SynapseRows;
  static constexpr int kStates = 2;
  template <class F>
  using Coefficients = SynapseCoefficients<F>;

  template <class F>
  SNNLIB_HD static void charge(const F (&y)[2], F x, const Coefficients<F>& k, F (&h)[2]) {
    h[1] = k.row[Rows::decay_s] * y[1] + k.row[Rows::gain_s] * x;
    h[0] = k.row[Rows::decay_m] * y[0] + k.row[Rows::gain_m] * h[1] + k.row[Rows::leak];
  }
  template <class F>
  SNNLIB_HD static F reset(const F (&h)[2], int i, const Coefficients<F>& k) {
    return i == 0 ? k.row[Rows::reset] : All ? F{} : h[1];
  }
  template <class F>
  SNNLIB_HD static F transposed(const F (&m)[2], const Coefficients<F>& k, F (&before)[2]) {
    const F g = m[1] + k.row[Rows::gain_m] * m[0];
    before[0] = k.row[Rows::decay_m] * m[0];
    before[1] = k.row[Rows::decay_s] * g;
    return k.row[Rows::gain_s] * g;
  }
};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
