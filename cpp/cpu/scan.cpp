// Neurons of the linear family on the CPU.
#include "snnlib/loop/scan.h"

#include "snnlib/loop/neuron_scan.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

// A neuron of the linear family for the loop. Kept are the vectors that the adjoint of a step reads: h before the
// reset, with "next" the last step's spike, and with Learn or Quadratic the state before the step.
template <int K, bool Next, bool Learn, bool Quadratic>
struct LinearNeuron : LinearFamily<K> {
  static constexpr bool kNext = Next, kLearn = Learn, kStateKept = Learn || Quadratic;
  static constexpr int kKept = K + (Next ? 1 : 0) + (kStateKept ? K : 0);
  // Neurons of several states are bound by arithmetic, so they take step by step.
  static constexpr bool kGroups = K == 1;
  // The options that most nets have, as constants: a tenth less time backwards. For the neurons that are bound by
  // memory but for this.
  static constexpr bool kHasUsual = K == 1 && !Next && !Learn;

  template <bool Keep, class S, class F>
  static SNNLIB_INLINE F step(LinearState<K, F>& state, F x, const LinearCoefficients<K, F>& k,
                              const LinearFlags& flags, F* keep) {
    if (Keep && Next) keep[K] = state.fired;
    for (int s = 0; Keep && kStateKept && s < K; ++s) keep[K + Next + s] = state.y[s];
    const auto out = linear_step<K, Next, Quadratic>(state, x, k, flags, S(1));
    for (int s = 0; Keep && s < K; ++s) keep[s] = out.raw[s];
    return flags.membrane ? out.h[0] : out.spike;
  }

  template <class S, class F>
  static SNNLIB_INLINE F back(LinearCarry<K, F>& carry, F q, const F* keep, F x, F left,
                              const LinearCoefficients<K, F>& k, const LinearFlags& flags,
                              LinearCoefficients<K, F>& sum) {
    LinearSeen<K, F> seen;
    for (int s = 0; s < K; ++s) seen.raw[s] = keep[s];
    if (Next) seen.fired_before = keep[K];
    for (int s = 0; kStateKept && s < K; ++s) seen.y[s] = keep[K + Next + s];
    if (Learn) seen.x = x;
    seen.left = left;
    return linear_back<K, Next, Learn, Quadratic>(carry, q, seen, k, flags, S(1), sum);
  }
};

template <class T, int K>
void forward_states(const ScanForwardArgs& a) {
  if constexpr (K > 1) {
    if (a.flags.quadratic) return scan_forward<T, LinearNeuron<K, false, false, true>>(a);
  }
  a.flags.reset_next ? scan_forward<T, LinearNeuron<K, true, false, false>>(a)
                     : scan_forward<T, LinearNeuron<K, false, false, false>>(a);
}

template <class T, int K, bool Learn>
void backward_learn(const ScanBackwardArgs& a) {
  if constexpr (K > 1) {
    if (a.flags.quadratic) return scan_backward<T, LinearNeuron<K, false, Learn, true>>(a);
  }
  a.flags.reset_next ? scan_backward<T, LinearNeuron<K, true, Learn, false>>(a)
                     : scan_backward<T, LinearNeuron<K, false, Learn, false>>(a);
}

template <class T, int K>
void backward_states(const ScanBackwardArgs& a) {
  a.grad_coefficients ? backward_learn<T, K, true>(a) : backward_learn<T, K, false>(a);
}

template <class T>
void forward_type(const ScanForwardArgs& a) {
  if (a.states == 1) return forward_states<T, 1>(a);
  if (a.states == 2) return forward_states<T, 2>(a);
  forward_states<T, 3>(a);
}

template <class T>
void backward_type(const ScanBackwardArgs& a) {
  if (a.states == 1) return backward_states<T, 1>(a);
  if (a.states == 2) return backward_states<T, 2>(a);
  backward_states<T, 3>(a);
}

void forward(const ScanForwardArgs& a) {
  by_state(a.dtype, a, portable::scan_kernels.forward, [&](auto zero) { forward_type<decltype(zero)>(a); });
}

void backward(const ScanBackwardArgs& a) {
  by_state(a.dtype, a, portable::scan_kernels.backward, [&](auto zero) { backward_type<decltype(zero)>(a); });
}

}  // namespace

extern const ScanKernels scan_kernels = {forward, backward};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
