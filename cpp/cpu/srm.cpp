// SRM neuron on the CPU: a block of neurons walks through all time steps with its state in the L1 cache. The backward
// pass repeats the forward recurrence for its block, so nothing but the current is saved in between.
#include "snnlib/srm.h"

#include <new>

#include "snnlib/isa.h"
#include "snnlib/kernels/srm.h"
#include "snnlib/parallel.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

// Neurons per block: a 4 KiB page of float32 for each step and tensor. Smaller blocks pay a page-table walk for a few
// cache lines, as the steps of a large train lie megabytes apart.
constexpr int64_t kBlockNeurons = 1024;
// What the repeated forward of a block may occupy in the L2 cache, which long trains pay with smaller blocks.
constexpr int64_t kScratchBytes = 512 << 10;
// Neurons per task: long enough to hide the scheduling, short enough to balance two busy cores.
constexpr int64_t kTaskNeurons = 8192;

template <class S>
using Vector = typename Simd<S>::Vector;

// Calls f(outer index, first neuron, neurons) for each block of the train.
template <class F>
void for_each_block(const TrainView& view, int64_t block, int threads, const F& f) {
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

// Calls f(vector, lanes) for the vectors of a block. The literal lane count of full vectors makes their loads and
// stores plain ones.
template <class S, class F>
inline void for_each_vector(int64_t neurons, const F& f) {
  constexpr int64_t L = Simd<S>::kLanes;
  const int64_t full = neurons / L;
  for (int64_t i = 0; i < full; ++i) f(i, L);
  if (neurons > full * L) f(full, neurons - full * L);
}

// State and threshold of a block, one vector after the other.
template <class S>
struct Block {
  static constexpr int kLanes = Simd<S>::kLanes;
  static constexpr int64_t kVectors = kBlockNeurons / kLanes;
  SrmState<Vector<S>> state[kVectors];
  Vector<S> threshold[kVectors];

  template <class Args>
  Block(const Args& a, int64_t o, int64_t first, int64_t count) {
    const int64_t neurons = a.view.outer * a.view.inner, at = o * a.view.inner + first;
    const S* limits = static_cast<const S*>(a.threshold);
    for_each_vector<S>(count, [&](int64_t i, int64_t lanes) {
      // Lanes past the end never fire: their current is 0 and their threshold 1.
      S lane[kLanes];
      for (int64_t j = 0; j < kLanes; ++j) {
        lane[j] = j < lanes ? limits[(first + i * kLanes + j) % a.threshold_period] : S(1);
      }
      std::memcpy(&threshold[i], lane, sizeof lane);
      SrmState<Vector<S>>& now = state[i];
      now.u = now.s = now.g = Vector<S>{};
      if (a.state_in) {
        const S* p = static_cast<const S*>(a.state_in) + at + i * kLanes;
        now.u = load_lanes<S>(p, lanes, S(0));
        now.s = load_lanes<S>(p + neurons, lanes, S(0));
        now.g = load_lanes<S>(p + 2 * neurons, lanes, S(0));
      }
    });
  }
};

template <class S>
SrmDecay<S> decay(const SrmConstants& c) {
  return {S(c.e_m), S(c.e_s), S(c.e_g), S(c.r_s)};
}

// Traced: also writes potential and deltas, which only tests and plots ask for.
template <class T, bool Traced>
void forward_block(const SrmForwardArgs& a, int64_t o, int64_t first, int64_t count) {
  using S = typename StateOf<T>::type;
  constexpr int64_t L = Simd<S>::kLanes;
  const SrmDecay<S> k = decay<S>(a.constants);
  Block<S> block(a, o, first, count);
  for (int64_t t = 0; t < a.view.steps; ++t) {
    const int64_t p = a.view.offset(o, t, first);
    for_each_vector<S>(count, [&](int64_t i, int64_t lanes) {
      const int64_t q = p + i * L;
      const Vector<S> current = load_lanes<T>(static_cast<const T*>(a.current) + q, lanes, S(0));
      const SrmStep<Vector<S>> out = srm_step(block.state[i], current, block.threshold[i], k);
      store_lanes<T>(static_cast<T*>(a.spikes) + q, out.spike, lanes);
      if (Traced) {
        store_lanes<T>(static_cast<T*>(a.potential) + q, out.u, lanes);
        store_lanes<T>(static_cast<T*>(a.delta_u) + q, out.delta_u, lanes);
        store_lanes<T>(static_cast<T*>(a.delta_ut) + q, out.delta_ut, lanes);
      }
    });
  }
  if (a.state_out) {
    const int64_t neurons = a.view.outer * a.view.inner;
    S* out = static_cast<S*>(a.state_out) + o * a.view.inner + first;
    for_each_vector<S>(count, [&](int64_t i, int64_t lanes) {
      store_lanes<S>(out + i * L, block.state[i].u, lanes);
      store_lanes<S>(out + neurons + i * L, block.state[i].s, lanes);
      store_lanes<S>(out + 2 * neurons + i * L, block.state[i].g, lanes);
    });
  }
}

template <class T>
void forward_train(const SrmForwardArgs& a) {
  for_each_block(a.view, kBlockNeurons, a.executor.threads(), [&](int64_t o, int64_t first, int64_t count) {
    if (a.potential) {
      forward_block<T, true>(a, o, first, count);
    } else {
      forward_block<T, false>(a, o, first, count);
    }
  });
}

// What the repeated forward leaves for the way back: delta_u (0 where no spike) and delta_ut, [steps][vectors].
// It grows to what a thread has needed so far. No std::vector: its code would be shared between instruction sets.
template <class S>
struct Scratch {
  int64_t size = 0;
  Vector<S>* memory = nullptr;

  Vector<S>* reserve(int64_t wanted) {
    if (wanted > size) {
      release();
      const size_t bytes = size_t(wanted) * sizeof(Vector<S>);
      memory = static_cast<Vector<S>*>(::operator new(bytes, std::align_val_t(sizeof(Vector<S>))));
      size = wanted;
    }
    return memory;
  }
  void release() {
    if (memory) ::operator delete(memory, std::align_val_t(sizeof(Vector<S>)));
    memory = nullptr;
    size = 0;
  }
  ~Scratch() { release(); }
};

template <class T, bool Weight, bool Input>
void backward_block(const SrmBackwardArgs& a, Vector<typename StateOf<T>::type>* delta_u,
                    Vector<typename StateOf<T>::type>* delta_ut, int64_t vectors, int64_t o, int64_t first,
                    int64_t count) {
  using S = typename StateOf<T>::type;
  using V = Vector<S>;
  constexpr int64_t L = Simd<S>::kLanes;
  const SrmDecay<S> k = decay<S>(a.constants);
  const S clamp = S(a.constants.grad_clamp);
  Block<S> block(a, o, first, count);
  for (int64_t t = 0; t < a.view.steps; ++t) {
    const T* current = static_cast<const T*>(a.current) + a.view.offset(o, t, first);
    for_each_vector<S>(count, [&](int64_t i, int64_t lanes) {
      const V input = load_lanes<T>(current + i * L, lanes, S(0));
      const SrmStep<V> out = srm_step(block.state[i], input, block.threshold[i], k);
      delta_u[t * vectors + i] = srm_rise(out);
      if (Input) delta_ut[t * vectors + i] = out.delta_ut;
    });
  }
  SrmCredit<V> credit[Block<S>::kVectors] = {};
  for (int64_t t = a.view.steps - 1; t >= 0; --t) {
    const int64_t p = a.view.offset(o, t, first);
    for_each_vector<S>(count, [&](int64_t i, int64_t lanes) {
      const V q = load_lanes<T>(static_cast<const T*>(a.grad_spikes) + p + i * L, lanes, S(0));
      const V slope = delta_u[t * vectors + i];
      if (Weight) {
        srm_credit_weight(credit[i], q, slope, clamp, k);
        store_lanes<T>(static_cast<T*>(a.weight_signal) + p + i * L, credit[i].au, lanes);
      }
      if (Input) {
        srm_credit_input(credit[i], q, slope, delta_ut[t * vectors + i], k);
        store_lanes<T>(static_cast<T*>(a.input_signal) + p + i * L, credit[i].bg, lanes);
      }
    });
  }
}

template <class T>
void backward_train(const SrmBackwardArgs& a) {
  using S = typename StateOf<T>::type;
  // The largest block whose scratch fits, in whole vectors; at least one.
  const int64_t room = kScratchBytes / (2 * (a.view.steps > 0 ? a.view.steps : 1) * int64_t(sizeof(Vector<S>)));
  const int64_t vectors = room < 1 ? 1 : room < Block<S>::kVectors ? room : Block<S>::kVectors;
  const auto run = a.weight_signal && a.input_signal ? backward_block<T, true, true>
                   : a.weight_signal                 ? backward_block<T, true, false>
                                                     : backward_block<T, false, true>;
  if (!a.weight_signal && !a.input_signal) return;
  for_each_block(a.view, vectors * Simd<S>::kLanes, a.executor.threads(), [&](int64_t o, int64_t first, int64_t count) {
    thread_local Scratch<S> scratch;
    Vector<S>* delta_u = scratch.reserve(2 * a.view.steps * vectors);
    run(a, delta_u, delta_u + a.view.steps * vectors, vectors, o, first, count);
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
