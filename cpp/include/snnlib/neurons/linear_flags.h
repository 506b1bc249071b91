// Options of neurons of the linear family (neurons/linear.h), and those that kernels have as constants.
#pragma once

#include <type_traits>

#include "snnlib/core/platform.h"
#include "snnlib/neurons/surrogate.h"

namespace snnlib {

// Options of a call beside the coefficients; `Dynamics.options` of snnlib/neurons/dynamics.py.
struct LinearFlags {
  SurrogateKind surrogate;
  bool strict;         // fires above the threshold, not at it
  bool detach_reset;   // no gradient from the reset to the spike
  bool detach_jump;    // none from the jump j
  bool reset_next;     // the reset comes with the next step
  bool membrane;       // the value of a step is h_0 instead of s
  bool through_time;   // whether G' is passed on
  bool rectified;      // the membrane is scaled and not below zero before it is compared
  bool quadratic;      // p is of products of states instead of the new membrane
  bool fixed_point;    // states are whole multiples of 2^-12
  int64_t refractory;  // steps after a spike in which the state is held; -1: all of them
  int64_t levels;      // most spikes of a step; -1: no bound
  bool rounds;         // several levels are rounded to the nearest, and not down
  SurrogateSpread spread;
  SNNLIB_FIELDS(surrogate, strict, detach_reset, detach_jump, reset_next, membrane, through_time, rectified, quadratic,
                fixed_point, refractory, levels, rounds, spread)
};

// The options that most nets have, with one level or several, which kernels take as constants; or any.
enum class Options { kUsual, kGraded, kAny };

SNNLIB_HD inline Options options_of(const LinearFlags& f) {
  const bool plain = !f.strict && f.detach_reset && f.detach_jump && !f.reset_next && !f.membrane && f.through_time;
  if (!plain || f.rectified || f.fixed_point || f.refractory) return Options::kAny;
  return f.levels == 1 ? Options::kUsual : Options::kGraded;
}

SNNLIB_HD inline LinearFlags usual_flags(SurrogateKind surrogate) {
  return {surrogate, false, true, true, false, false, true, false, false, false, 0, 1, false, SurrogateSpread::kFirst};
}

// The flags, as far as they are known as constants.
template <Options O>
SNNLIB_HD LinearFlags known_flags(const LinearFlags& flags) {
  if (O == Options::kAny) return flags;
  LinearFlags known = usual_flags(flags.surrogate);
  if (O == Options::kGraded) known.levels = flags.levels, known.rounds = flags.rounds, known.spread = flags.spread;
  return known;
}

// f(constant) with those of a call where they have kernels.
template <bool HasUsual, class F>
void by_options(const LinearFlags& flags, const F& f) {
  if constexpr (HasUsual) {
    const Options options = options_of(flags);
    if (options == Options::kUsual) return f(std::integral_constant<Options, Options::kUsual>());
    if (options == Options::kGraded) return f(std::integral_constant<Options, Options::kGraded>());
  }
  f(std::integral_constant<Options, Options::kAny>());
}

// Rows of the state behind the K of the dynamics: the last step's spike, and the steps that are left of a refractory
// time.
SNNLIB_HD inline int added_rows(const LinearFlags& f) { return f.reset_next + (f.refractory != 0); }

}  // namespace snnlib
