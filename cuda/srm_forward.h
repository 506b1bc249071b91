// SRM neurons forward on CUDA: one thread walks through all time steps of its neurons with their state in registers. It
// reads the current and writes spikes, in packs of 16 bytes where the layout allows it.
#pragma once

#include "chunks.h"
#include "snnlib/loop/srm.h"
#include "snnlib/neurons/srm.h"

namespace snnlib {
namespace cuda {

// Steps that a thread loads before it needs the first: enough loads on their way to hide the memory's latency.
constexpr int kSrmAheadForward = 5;

template <class S>
SrmDecay<S> srm_decay(const SrmConstants& c) {
  return {S(c.e_m), S(c.e_s), S(c.e_g), S(c.r_s)};
}

// State before the first step of the neuron with index `neuron` in [outer * inner].
template <class S, class Args>
__device__ SrmState<S> first_state(const Args& a, int64_t neuron) {
  if (!a.state_in) return {};
  const S* p = static_cast<const S*>(a.state_in) + neuron;
  const int64_t neurons = a.view.outer * a.view.inner;
  return {p[0], p[neurons], p[2 * neurons]};
}

// Thresholds of V neurons side by side.
template <class S, int V, class Args>
__device__ void load_thresholds(const Args& a, const Places& places, const NeuronPlace& place, S (&limit)[V]) {
  const S* limits = static_cast<const S*>(a.coefficients);
  int64_t at = places.constants(place);
  SNNLIB_UNROLL
  for (int v = 0; v < V; ++v) {
    limit[v] = limits[at];
    at = at + 1 == a.period ? 0 : at + 1;
  }
}

// V neighbours a thread.
template <class T, int V>
__global__ void srm_forward_kernel(SrmForwardArgs a, SrmDecay<typename StateOf<T>::type> k, Places places) {
  using S = typename StateOf<T>::type;
  const int64_t neurons = a.view.outer * a.view.inner, neuron = thread_index() * V;
  if (neuron >= neurons) return;
  const NeuronPlace place = places.of(a.view, neuron);
  SrmState<S> state[V];
  S limit[V];
  load_thresholds(a, places, place, limit);
  SNNLIB_UNROLL
  for (int v = 0; v < V; ++v) state[v] = first_state<S>(a, neuron + v);
  const int64_t stride = a.view.step_stride;
  int64_t at = a.view.offset(place.outer, 0, place.inner);
  for_each_group<kSrmAheadForward>(a.view.steps, [&](auto size, int64_t) {
    constexpr int n = decltype(size)::value;
    Pack<T, V> current[n];
    SNNLIB_UNROLL
    for (int j = 0; j < n; ++j) current[j] = load_pack<T, V>(a.current, at + j * stride);
    SNNLIB_UNROLL
    for (int j = 0; j < n; ++j, at += stride) {
      S x[V], spikes[V];
      to_states(current[j], x);
      SNNLIB_UNROLL
      for (int v = 0; v < V; ++v) spikes[v] = srm_step(state[v], x[v], limit[v], k).spike;
      store_pack(a.spikes, at, to_pack<T>(spikes));
    }
  });
  if (!a.state_out) return;
  S* out = static_cast<S*>(a.state_out) + neuron;
  SNNLIB_UNROLL
  for (int v = 0; v < V; ++v) {
    out[v] = state[v].u;
    out[neurons + v] = state[v].s;
    out[2 * neurons + v] = state[v].g;
  }
}

}  // namespace cuda
}  // namespace snnlib
