// SRM neuron on the CPU: a task takes some thousand neurons, a block of them stays in registers for all time steps.
// The backward pass repeats the forward recurrence for its block, so nothing but the current is saved in between.
#include "snnlib/srm.h"

#include <new>

#include "snnlib/isa.h"
#include "snnlib/kernels/srm.h"
#include "snnlib/parallel.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

// Vectors per block: enough independent recurrences to hide the latency of one step.
constexpr int kVectors = 4;
// Neurons per task: long enough to hide the scheduling, short enough to balance two busy cores.
constexpr int64_t kTaskNeurons = 8192;

template <class S>
struct Block {
  using V = typename Simd<S>::Vector;
  static constexpr int kLanes = Simd<S>::kLanes;
  static constexpr int64_t kNeurons = kVectors * kLanes;
};

// Calls f(outer index, first neuron, neurons) for each block of the train.
template <class S, class F>
void for_each_block(const TrainView& view, int threads, const F& f) {
  constexpr int64_t block = Block<S>::kNeurons;
  const int64_t blocks = (view.inner + block - 1) / block;
  const int64_t total = view.outer * blocks;
  const int64_t per_task = kTaskNeurons / block;
  parallel_for((total + per_task - 1) / per_task, threads, [&](int64_t task) {
    const int64_t end = (task + 1) * per_task < total ? (task + 1) * per_task : total;
    for (int64_t j = task * per_task; j < end; ++j) {
      const int64_t first = j % blocks * block;
      f(j / blocks, first, view.inner - first < block ? view.inner - first : block);
    }
  });
}

template <class S>
void load_block(typename Simd<S>::Vector* v, const S* p, int64_t count, S fill) {
  constexpr int L = Simd<S>::kLanes;
  for (int i = 0; i < kVectors; ++i) v[i] = load_lanes<S>(p + i * L, count - i * L, fill);
}

template <class S>
void load_threshold(typename Simd<S>::Vector* v, const void* threshold, int64_t period, int64_t first, int64_t count) {
  S lanes[Block<S>::kNeurons];
  // Lanes past the end never fire: their current is 0 and their threshold 1.
  for (int64_t i = 0; i < Block<S>::kNeurons; ++i) {
    lanes[i] = i < count ? static_cast<const S*>(threshold)[(first + i) % period] : S(1);
  }
  std::memcpy(v, lanes, sizeof lanes);
}

template <class S>
void load_state(SrmState<typename Simd<S>::Vector>* state, const void* state_in, int64_t neurons, int64_t at,
                int64_t count) {
  using V = typename Simd<S>::Vector;
  V u[kVectors] = {}, s[kVectors] = {}, g[kVectors] = {};
  if (state_in) {
    const S* p = static_cast<const S*>(state_in) + at;
    load_block<S>(u, p, count, S(0));
    load_block<S>(s, p + neurons, count, S(0));
    load_block<S>(g, p + 2 * neurons, count, S(0));
  }
  for (int i = 0; i < kVectors; ++i) state[i] = {u[i], s[i], g[i]};
}

template <class S>
SrmDecay<S> decay(const SrmConstants& c) {
  return {S(c.e_m), S(c.e_s), S(c.e_g), S(c.r_s)};
}

// Traced: also writes potential and deltas, which only tests and plots ask for.
template <class T, bool Traced>
void forward_block(const SrmForwardArgs& a, int64_t o, int64_t first, int64_t count) {
  using S = typename StateOf<T>::type;
  using V = typename Simd<S>::Vector;
  constexpr int L = Simd<S>::kLanes;
  const SrmDecay<S> k = decay<S>(a.constants);
  const int64_t neurons = a.view.outer * a.view.inner, at = o * a.view.inner + first;
  SrmState<V> state[kVectors];
  V threshold[kVectors];
  load_state<S>(state, a.state_in, neurons, at, count);
  load_threshold<S>(threshold, a.threshold, a.threshold_period, first, count);
  const bool full = count == Block<S>::kNeurons;
  for (int64_t t = 0; t < a.view.steps; ++t) {
    const int64_t p = a.view.offset(o, t, first);
    for (int i = 0; i < kVectors; ++i) {
      // A constant lane count lets the compiler turn a full block into plain vector loads and stores.
      const int64_t lanes = full ? L : count - i * L;
      if (lanes <= 0) break;
      const int64_t q = p + i * L;
      const V current = load_lanes<T>(static_cast<const T*>(a.current) + q, lanes, S(0));
      const SrmStep<V> out = srm_step(state[i], current, threshold[i], k);
      store_lanes<T>(static_cast<T*>(a.spikes) + q, out.spike, lanes);
      if (Traced) {
        if (a.potential) store_lanes<T>(static_cast<T*>(a.potential) + q, out.u, lanes);
        if (a.delta_u) store_lanes<T>(static_cast<T*>(a.delta_u) + q, out.delta_u, lanes);
        if (a.delta_ut) store_lanes<T>(static_cast<T*>(a.delta_ut) + q, out.delta_ut, lanes);
      }
    }
  }
  if (a.state_out) {
    S* out = static_cast<S*>(a.state_out) + at;
    for (int i = 0; i < kVectors && count > i * L; ++i) {
      store_lanes<S>(out + i * L, state[i].u, count - i * L);
      store_lanes<S>(out + neurons + i * L, state[i].s, count - i * L);
      store_lanes<S>(out + 2 * neurons + i * L, state[i].g, count - i * L);
    }
  }
}

template <class T>
void forward_train(const SrmForwardArgs& a) {
  using S = typename StateOf<T>::type;
  const bool traced = a.potential || a.delta_u || a.delta_ut;
  for_each_block<S>(a.view, a.threads, [&](int64_t o, int64_t first, int64_t count) {
    if (traced) {
      forward_block<T, true>(a, o, first, count);
    } else {
      forward_block<T, false>(a, o, first, count);
    }
  });
}

// What the repeated forward leaves for the way back: delta_u (0 where no spike) and delta_ut, [steps][kVectors].
// It grows to the longest train a thread has seen. No std::vector: its code would be shared between instruction sets.
template <class S>
struct Scratch {
  using V = typename Simd<S>::Vector;
  int64_t steps = 0;
  V* delta_u = nullptr;
  V* delta_ut = nullptr;

  void reserve(int64_t wanted) {
    if (wanted <= steps) return;
    release();
    delta_u = static_cast<V*>(::operator new(size_t(2 * wanted * kVectors) * sizeof(V), std::align_val_t(sizeof(V))));
    delta_ut = delta_u + wanted * kVectors;
    steps = wanted;
  }
  void release() {
    if (delta_u) ::operator delete(delta_u, std::align_val_t(sizeof(V)));
    delta_u = nullptr;
    steps = 0;
  }
  ~Scratch() { release(); }
};

template <class T>
void backward_block(const SrmBackwardArgs& a, Scratch<typename StateOf<T>::type>& scratch, int64_t o, int64_t first,
                    int64_t count) {
  using S = typename StateOf<T>::type;
  using V = typename Simd<S>::Vector;
  constexpr int L = Simd<S>::kLanes;
  const SrmDecay<S> k = decay<S>(a.constants);
  const S clamp = S(a.constants.grad_clamp);
  SrmState<V> state[kVectors];
  V threshold[kVectors];
  load_state<S>(state, a.state_in, a.view.outer * a.view.inner, o * a.view.inner + first, count);
  load_threshold<S>(threshold, a.threshold, a.threshold_period, first, count);
  const bool full = count == Block<S>::kNeurons;
  for (int64_t t = 0; t < a.view.steps; ++t) {
    const T* current = static_cast<const T*>(a.current) + a.view.offset(o, t, first);
    for (int i = 0; i < kVectors; ++i) {
      const int64_t lanes = full ? L : count - i * L;
      if (lanes <= 0) break;
      const SrmStep<V> out = srm_step(state[i], load_lanes<T>(current + i * L, lanes, S(0)), threshold[i], k);
      scratch.delta_u[t * kVectors + i] = out.spike > V{} ? out.delta_u : V{};
      scratch.delta_ut[t * kVectors + i] = out.delta_ut;
    }
  }
  SrmCredit<V> credit[kVectors] = {};
  for (int64_t t = a.view.steps - 1; t >= 0; --t) {
    const int64_t p = a.view.offset(o, t, first);
    for (int i = 0; i < kVectors; ++i) {
      const int64_t lanes = full ? L : count - i * L;
      if (lanes <= 0) break;
      const V q = load_lanes<T>(static_cast<const T*>(a.grad_spikes) + p + i * L, lanes, S(0));
      const V delta_u = scratch.delta_u[t * kVectors + i];
      if (a.weight_signal) {
        srm_credit_weight(credit[i], q, delta_u, clamp, k);
        store_lanes<T>(static_cast<T*>(a.weight_signal) + p + i * L, credit[i].au, lanes);
      }
      if (a.input_signal) {
        srm_credit_input(credit[i], q, delta_u, scratch.delta_ut[t * kVectors + i], k);
        store_lanes<T>(static_cast<T*>(a.input_signal) + p + i * L, credit[i].bg, lanes);
      }
    }
  }
}

template <class T>
void backward_train(const SrmBackwardArgs& a) {
  using S = typename StateOf<T>::type;
  for_each_block<S>(a.view, a.threads, [&](int64_t o, int64_t first, int64_t count) {
    thread_local Scratch<S> scratch;
    scratch.reserve(a.view.steps);
    backward_block<T>(a, scratch, o, first, count);
  });
}

void forward(const SrmForwardArgs& a) {
  by_dtype(a.dtype, a, forward_train<float>, forward_train<double>, forward_train<BFloat16>, forward_train<Float16>);
}

void backward(const SrmBackwardArgs& a) {
  by_dtype(a.dtype, a, backward_train<float>, backward_train<double>, backward_train<BFloat16>,
           backward_train<Float16>);
}

}  // namespace

extern const SrmKernels srm_kernels = {forward, backward};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
