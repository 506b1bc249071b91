// Coefficients of a thread's neurons, and loops over steps with options of a call as constants, for neurons that are
// bound by memory but for this.
#pragma once

#include "element.h"
#include "reciprocal.h"
#include "snnlib/loop/scan.h"

namespace snnlib {
namespace cuda {

// Coefficients of V neurons side by side.
template <class S, int K, int V>
__device__ void load_coefficients(const ScanArgs& a, int64_t first, LinearCoefficients<K, S> (&k)[V]) {
  int64_t at = first;
  SNNLIB_UNROLL
  for (int v = 0; v < V; ++v) {
    const S* p = static_cast<const S*>(a.coefficients) + at;
    SNNLIB_UNROLL
    for (int row = 0; row < LinearRows<K>::count; ++row) k[v].row[row] = p[row * a.period];
    at = at + 1 == a.period ? 0 : at + 1;
  }
}

// The flags of neurons of K states: three of them and products of states are for one level, which spares their kernels
// registers and instructions.
template <int K, bool Quadratic>
__device__ LinearFlags flags_of_states(LinearFlags flags) {
  if (K > 2 || Quadratic) flags.levels = 1;
  return flags;
}

// f(flags, coefficients), with the options of most nets as constants where a thread has them: no floor among them,
// which costs a fifth of a step. The choice is made outside of the loop over steps. Without Rests there is no
// refractory time.
template <bool Constant, bool Rests = false, bool Quadratic = false, class S, int K, int V, class F>
__device__ void by_usual(const LinearFlags& flags, const LinearCoefficients<K, S> (&k)[V], const F& f) {
  if constexpr (Constant) {
    constexpr S kNone = S(-INFINITY);
    bool usual = options_of(flags) == Options::kUsual;
    SNNLIB_UNROLL
    for (int v = 0; v < V; ++v) usual = usual && k[v].row[LinearRows<K>::floor] == kNone;
    if (usual) {
      LinearCoefficients<K, S> own[V];
      SNNLIB_UNROLL
      for (int v = 0; v < V; ++v) {
        own[v] = k[v];
        own[v].row[LinearRows<K>::floor] = kNone;
      }
      return f(usual_flags(flags.surrogate), own);
    }
  }
  LinearFlags known = flags_of_states<K, Quadratic>(flags);
  if (!Rests) known.refractory = 0;
  f(known, k);
}

// f(flags, reciprocal) with the kind of the surrogate gradient a constant, where that is worth a loop of its own. Those
// with a reciprocal take the fast one, and f runs again by division where one of them may not be right.
template <bool Constant, class S, class F>
__device__ void by_surrogate(const LinearFlags& flags, const F& f) {
  LinearFlags constant = flags;
  if constexpr (Constant) {
    float most = 0.0f;
    switch (flags.surrogate) {
      case SurrogateKind::kTriangle:
        constant.surrogate = SurrogateKind::kTriangle;
        f(constant, Division<S>());
        return;
      case SurrogateKind::kRectangle:
        constant.surrogate = SurrogateKind::kRectangle;
        f(constant, Division<S>());
        return;
      case SurrogateKind::kATan:
        constant.surrogate = SurrogateKind::kATan;
        f(constant, BoundedReciprocal{most});
        break;
      case SurrogateKind::kFastSigmoid:
        constant.surrogate = SurrogateKind::kFastSigmoid;
        f(constant, BoundedReciprocal{most});
        break;
      default:
        most = INFINITY;
        break;
    }
    if (BoundedReciprocal::is_right(most)) return;
  }
  f(flags, Division<S>());
}

}  // namespace cuda
}  // namespace snnlib
