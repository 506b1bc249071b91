// SRM neurons backward on CUDA. A thread takes V neurons through a chunk of steps:
//
//   copy       current and gradient of all steps into its scratch, asynchronously: all of them are on their way at
//              once, and none waits in a register
//   forwards   repeats the recurrence; what it read of a step makes room for q slope and q gain
//   backwards  the two signals, by decay alone between spikes
//
// Every tensor moves once, up to the steps that scratch holds. Sequences longer than that go in even chunks and read
// the current a second time, to find the state at the start of every chunk.
#pragma once

#include "chunks.h"
#include "reciprocal.h"
#include "srm_forward.h"

namespace snnlib {
namespace cuda {

// Steps that are unrolled together.
constexpr int kSrmAheadBackward = 12;

// A step of a thread in scratch: V currents and V gradients, then q slope (and with Input q gain) of V neurons.
template <class T, int V, bool Input>
struct SrmSlot {
  using S = typename StateOf<T>::type;
  static constexpr int kKept = Input ? 2 : 1;
  using Copied = Pack<T, 2 * V>;
  using Kept = Pack<S, kKept * V>;
  static constexpr int kBytes = sizeof(Copied) > sizeof(Kept) ? sizeof(Copied) : sizeof(Kept);

  alignas(kBytes) unsigned char bytes[kBytes];
};

// Stands for q slope where the neuron did not fire: all bits set, which no arithmetic gives.
__device__ inline float no_spike(float) { return bits_float(~uint32_t(0)); }
__device__ inline double no_spike(double) { return same_bits<double>(~uint64_t(0)); }
__device__ inline bool is_spike(float x) { return float_bits(x) != ~uint32_t(0); }
__device__ inline bool is_spike(double x) { return same_bits<uint64_t>(x) != ~uint64_t(0); }

template <class T, int V, bool Input>
__global__ void srm_backward_kernel(SrmBackwardArgs a, SrmDecay<typename StateOf<T>::type> k, Places places,
                                    Chunks chunks) {
  using S = typename StateOf<T>::type;
  using Slot = SrmSlot<T, V, Input>;
  using Parked = StateInColumn<T, SrmState<S>>;
  const int64_t neurons = a.view.outer * a.view.inner, neuron = thread_index() * V;
  if (neuron >= neurons) return;
  const NeuronPlace place = places.of(a.view, neuron);
  const int64_t stride = a.view.step_stride, start = a.view.offset(place.outer, 0, place.inner);
  const T* current = static_cast<const T*>(a.current) + start;
  const T* grad_spikes = static_cast<const T*>(a.grad_spikes) + start;
  // Where it is not wanted, the input signal of each step overwrites it.
  T* weight_signal = static_cast<T*>(a.weight_signal ? a.weight_signal : a.input_signal);
  T* input_signal = static_cast<T*>(a.input_signal);
  T* spare = weight_signal + start;
  const S clamp = S(a.flags.grad_clamp);
  constexpr int kPack = V * sizeof(T);
  S limit[V];
  load_thresholds(a, places, place, limit);
  Slot* slots = scratch<Slot>();
  SrmState<S> state[V];

  const auto begin = [&] {
    SNNLIB_UNROLL
    for (int v = 0; v < V; ++v) state[v] = first_state<S>(a, neuron + v);
  };
  // Repeats a chunk for the state behind it.
  const auto skip = [&](int64_t first) {
    const T* at = current + first * stride;
    for_each_group<kSrmAheadBackward>(chunks.steps, [&](auto size, int) {
      constexpr int n = decltype(size)::value;
      Pack<T, V> x[n];
      SNNLIB_UNROLL
      for (int j = 0; j < n; ++j, at += stride) x[j] = read_pack<Pack<T, V>>(at);
      SNNLIB_UNROLL
      for (int j = 0; j < n; ++j) {
        SNNLIB_UNROLL
        for (int v = 0; v < V; ++v) srm_step(state[v], to_state(x[j].lane[v]), limit[v], k);
      }
    });
  };
  const auto copy = [&](int64_t first, int count) {
    const T* x = current + first * stride;
    const T* q = grad_spikes + first * stride;
    Slot* slot = slots;
    for_each_group<kSrmAheadBackward>(count, [&](auto size, int) {
      constexpr int n = decltype(size)::value;
      SNNLIB_UNROLL
      for (int j = 0; j < n; ++j) {
        copy_async<kPack>(slot[j * kScratchThreads].bytes, x + j * stride);
        copy_async<kPack>(slot[j * kScratchThreads].bytes + kPack, q + j * stride);
      }
      x += n * stride;
      q += n * stride;
      slot += n * kScratchThreads;
    });
    copies_wait();
  };
  // Gives false where a reciprocal may not be right, which never happens to exact ones.
  const auto forwards = [&](int count, auto fast) {
    constexpr bool kFast = decltype(fast)::value;
    float doubt = 0.0f;
    SNNLIB_UNROLL
    for (int v = 0; v < V; ++v) {
      // Below the threshold before, at it now: delta_u > 0 at every spike but those of a state that was above it.
      if (!(state[v].u < limit[v] && limit[v] > S(0))) doubt = 1.0f;
    }
    Slot* slot = slots;
    for_each_group<kSrmAheadBackward>(count, [&](auto size, int) {
      constexpr int n = decltype(size)::value;
      SNNLIB_UNROLL
      for (int j = 0; j < n; ++j, slot += kScratchThreads) {
        S moved[2 * V];
        to_states(read_pack<typename Slot::Copied>(slot->bytes), moved);
        typename Slot::Kept kept;
        SNNLIB_UNROLL
        for (int v = 0; v < V; ++v) {
          const SrmStep<S> out = srm_step(state[v], moved[v], limit[v], k);
          const bool fired = out.u >= limit[v];
          const S q = moved[V + v];
          S slope, gain = S(0);
          if constexpr (kFast) {
            float of_slope, of_gain = 0.0f;
            slope = srm_slope(out.delta_u, clamp, FastReciprocal{of_slope});
            if (Input) gain = fmaxf(srm_gain(out.delta_ut, FastReciprocal{of_gain}), 0.0f);
            const float error = Input ? of_slope + of_gain : of_slope;
            if (fired) doubt += error;
          } else {
            slope = srm_slope(out.delta_u, clamp, RiseReciprocal());
            if (Input) gain = srm_gain(out.delta_ut, RiseReciprocal());
          }
          kept.lane[v * Slot::kKept] = fired ? q * slope : no_spike(S());
          if (Input) kept.lane[v * Slot::kKept + 1] = q * gain;
        }
        write_pack(slot->bytes, kept);
      }
    });
    return doubt < FastReciprocal::kMostDoubt;
  };
  SrmCredit<S> credit[V] = {};
  const auto backwards = [&](int64_t first, int count) {
    int64_t at = start + (first + count) * stride;
    const Slot* slot = slots + count * kScratchThreads;
    for_each_group<kSrmAheadBackward>(count, [&](auto size, int) {
      constexpr int n = decltype(size)::value;
      at -= n * stride;
      slot -= n * kScratchThreads;
      SNNLIB_UNROLL
      for (int j = n - 1; j >= 0; --j) {
        const auto kept = read_pack<typename Slot::Kept>(slot[j * kScratchThreads].bytes);
        S to_weights[V], to_inputs[V];
        SNNLIB_UNROLL
        for (int v = 0; v < V; ++v) {
          const S amount = kept.lane[v * Slot::kKept];
          const bool fired = is_spike(amount);
          srm_credit_weight(credit[v], fired, amount, k);
          to_weights[v] = credit[v].au;
          if (Input) {
            srm_credit_input(credit[v], fired, kept.lane[v * Slot::kKept + 1], k);
            to_inputs[v] = credit[v].bg;
          }
        }
        store_pack(weight_signal, at + j * stride, to_pack<T>(to_weights));
        if (Input) store_pack(input_signal, at + j * stride, to_pack<T>(to_inputs));
      }
    });
  };

  const int64_t last = chunks.last;
  begin();
  for (int64_t chunk = 0; chunk < last; ++chunk) {
    T* column = spare + chunk * chunks.steps * stride;
    SNNLIB_UNROLL
    for (int v = 0; v < V && chunk > 0; ++v) Parked::store(column + v, stride, state[v]);
    skip(chunk * chunks.steps);
  }
  for (int64_t chunk = last; chunk >= 0; --chunk) {
    const int64_t first = chunk * chunks.steps;
    const int count = chunk == last ? int(a.view.steps - first) : chunks.steps;
    if (chunk == 0) {
      begin();
    } else if (chunk < last) {
      SNNLIB_UNROLL
      for (int v = 0; v < V; ++v) state[v] = Parked::load(spare + first * stride + v, stride);
    }
    copy(first, count);
    if constexpr (sizeof(S) == 4) {
      SrmState<S> before[V];
      SNNLIB_UNROLL
      for (int v = 0; v < V; ++v) before[v] = state[v];
      if (!forwards(count, std::true_type{})) {
        SNNLIB_UNROLL
        for (int v = 0; v < V; ++v) state[v] = before[v];
        copy(first, count);
        forwards(count, std::false_type{});
      }
    } else {
      forwards(count, std::false_type{});
    }
    backwards(first, count);
  }
}

}  // namespace cuda
}  // namespace snnlib
