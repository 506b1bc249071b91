// Neurons with exact spike times on the CPU: a block of neurons walks through all time steps with its state in the L1
// cache. The backward pass repeats the forward recurrence for its block, so nothing but the current is saved in
// between.
#include "snnlib/neurons/exact.h"

#include "snnlib/core/threads.h"
#include "snnlib/loop/linear_block.h"
#include "snnlib/loop/lines.h"
#include "snnlib/loop/scan.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

// Neurons of a block: fewer where every neuron has coefficients of its own.
int64_t block_neurons(const ExactArgs& a) { return a.period > 1 ? kBlockNeurons / 8 : kBlockNeurons; }

// Coefficients and states of a block, one vector after the other.
template <class T>
struct Block {
  using V = StateVector<T>;
  static constexpr int64_t kLanes = Line<T>::kLanes;
  Scratch<ExactCoefficients<V>> coefficients;
  Scratch<ExactState<V>> states;
  bool shared = true;

  void load(const ExactArgs& a, int64_t o, int64_t first, int64_t count) {
    const int64_t vectors = (count + Line<T>::kNeurons - 1) / Line<T>::kNeurons * Line<T>::kVectors;
    shared = a.period == 1;
    ExactCoefficients<V>* k = coefficients.reserve(shared ? 1 : vectors);
    load_coefficients<T>(a, first, shared ? 1 : vectors, 0, ExactRows::count,
                         [&](int64_t v, int64_t row) -> V& { return k[v].row[row]; });
    const int64_t neurons = a.view.outer * a.view.inner;
    const T* in = static_cast<const T*>(a.state_in) + o * a.view.inner + first;
    ExactState<V>* state = states.reserve(vectors);
    for_each_vector<T>(count, [&](int64_t i, int64_t lanes) {
      const auto part = [&](int64_t s) { return load_lanes<T>(in + s * neurons + i * kLanes, lanes); };
      state[i] = a.state_in ? ExactState<V>{part(0), part(1), a.flags.refractory ? part(2) : V{}} : ExactState<V>{};
    });
  }
  const ExactCoefficients<V>& of(int64_t vector) const { return coefficients.data()[shared ? 0 : vector]; }
};

template <class T>
Block<T>& block_of_thread() {
  thread_local Block<T> block;
  return of_thread(block);
}

// Calls f(vector, its row of a line) for the neurons of a block at one step, `next` being what is read after it.
template <class T, class F>
void for_each_row(const T* now, const T* next, int64_t count, const F& f) {
  constexpr int64_t L = Line<T>::kNeurons;
  for (int64_t i = 0; i < count; i += L) {
    const int64_t neurons = count - i < L ? count - i : L;
    Line<T> rows[1];
    load_rows(now + i, next + i, 0, neurons, rows);
    f(i, neurons, rows[0]);
  }
}

// What the repeated forward leaves for the backward pass of a vector of neurons at one step; `acts` and `fired` are 1
// or 0.
template <class V>
struct Kept {
  V rise, passed, fired, acts;
};

// All steps of a block of neurons: their values go to `value`, or with Keep what backward needs to `kept`.
template <class T, bool Keep>
Block<T>& walk(const ExactArgs& a, T* value, Kept<StateVector<T>>* kept, int64_t vectors, int64_t o, int64_t first,
               int64_t count) {
  using Vec = StateVector<T>;
  constexpr int64_t L = Line<T>::kLanes, V = Line<T>::kVectors;
  Block<T>& block = block_of_thread<T>();
  block.load(a, o, first, count);
  const Vec zero = Vec{}, one = zero + 1.0f;
  const ExactFlags flags = a.flags;
  const int64_t stride = a.view.step_stride, steps = a.view.steps;
  const T* now = static_cast<const T*>(a.current) + a.view.offset(o, 0, first);
  for (int64_t t = 0; t < steps; ++t, now += stride) {
    for_each_row(now, t + 1 < steps ? now + stride : now, count, [&](int64_t i, int64_t neurons, Line<T>& row) {
      for (int64_t j = 0; j < V; ++j) {
        const auto& k = block.of(i / L + j);
        ExactState<Vec> state = block.states.data()[i / L + j];
        const Vec acts = state.left == zero ? one : zero;
        const ExactStep<Vec> step = exact_step(state, row.vector[j], k, flags);
        block.states.data()[i / L + j] = state;
        row.vector[j] = step.spike;
        if (!Keep) continue;
        const Vec rise = exact_rise(step, k), at_spike = step.spike > zero ? rise : zero;
        kept[t * vectors + i / L + j] = {at_spike, exact_passed(step, at_spike, k, flags),
                                         step.spike > zero ? one : zero, acts};
      }
      if (!Keep) row.template store<false>(value + t * stride + i, neurons);
    });
  }
  return block;
}

template <class T>
void forward_block(const ExactForwardArgs& a, int64_t o, int64_t first, int64_t count) {
  constexpr int64_t L = Line<T>::kLanes;
  T* value = static_cast<T*>(a.value) + a.view.offset(o, 0, first);
  const Block<T>& block = walk<T, false>(a, value, nullptr, 0, o, first, count);
  const int64_t all = a.view.outer * a.view.inner;
  T* out = static_cast<T*>(a.state_out) + o * a.view.inner + first;
  for_each_vector<T>(count, [&](int64_t i, int64_t lanes) {
    const ExactState<StateVector<T>>& state = block.states.data()[i];
    const StateVector<T> parts[] = {state.v, state.i, state.left};
    for (int64_t s = 0; s < a.states; ++s) store_lanes<T>(out + s * all + i * L, parts[s], lanes);
  });
}

template <class T>
void backward_block(const ExactBackwardArgs& a, Kept<StateVector<T>>* kept, int64_t vectors, int64_t o, int64_t first,
                    int64_t count) {
  using Vec = StateVector<T>;
  constexpr int64_t L = Line<T>::kLanes, V = Line<T>::kVectors;
  const Block<T>& block = walk<T, true>(a, nullptr, kept, vectors, o, first, count);
  const ExactFlags flags = a.flags;
  const Vec zero = Vec{};
  const int64_t stride = a.view.step_stride, start = a.view.offset(o, 0, first);
  const T* grad = static_cast<const T*>(a.grad_value) + start;
  thread_local Scratch<ExactCarry<Vec>> carries;
  ExactCarry<Vec>* carry = carries.reserve((count + Line<T>::kNeurons - 1) / Line<T>::kNeurons * V);
  const int64_t all = a.view.outer * a.view.inner, at = o * a.view.inner + first;
  const T* from = static_cast<const T*>(a.grad_state_out) + at;
  for_each_vector<T>(count, [&](int64_t i, int64_t lanes) {
    const auto part = [&](int64_t s) { return load_lanes<T>(from + s * all + i * L, lanes); };
    carry[i] = a.grad_state_out ? ExactCarry<Vec>{part(0), part(1)} : ExactCarry<Vec>{};
  });
  for (int64_t t = a.view.steps - 1; t >= 0; --t) {
    const T* now = grad + t * stride;
    T* out = static_cast<T*>(a.grad_current) + start + t * stride;
    for_each_row(now, t ? now - stride : now, count, [&](int64_t i, int64_t neurons, Line<T>& row) {
      for (int64_t j = 0; j < V; ++j) {
        const Kept<Vec>& keep = kept[t * vectors + i / L + j];
        ExactCarry<Vec> back = carry[i / L + j];
        row.vector[j] = exact_back(back, row.vector[j], keep.rise, keep.passed, keep.fired > zero, keep.acts > zero,
                                   block.of(i / L + j), flags);
        carry[i / L + j] = back;
      }
      row.template store<false>(out + i, neurons);
    });
  }
  T* to = static_cast<T*>(a.grad_state_in) + at;
  for_each_vector<T>(count, [&](int64_t i, int64_t lanes) {
    const Vec parts[] = {carry[i].v, carry[i].i, zero};
    for (int64_t s = 0; s < a.states; ++s) store_lanes<T>(to + s * all + i * L, parts[s], lanes);
  });
}

template <class T>
void backward_with(const ExactBackwardArgs& a) {
  using Vec = StateVector<T>;
  constexpr int64_t kVectorsKept = sizeof(Kept<Vec>) / sizeof(Vec);
  const int64_t vectors = backward_vectors<T>(kVectorsKept, a.view.steps, block_neurons(a) / Line<T>::kLanes);
  for_each_block(a.view, vectors * Line<T>::kLanes, a.executor.threads(), [&](int64_t o, int64_t first, int64_t count) {
    thread_local Scratch<Kept<Vec>> scratch;
    backward_block<T>(a, scratch.reserve(a.view.steps * vectors), vectors, o, first, count);
  });
}

void forward(const ExactForwardArgs& a) {
  by_state(a.dtype, a, portable::exact_kernels.forward, [&](auto zero) {
    for_each_block(a.view, block_neurons(a), a.executor.threads(),
                   [&](int64_t o, int64_t first, int64_t count) { forward_block<decltype(zero)>(a, o, first, count); });
  });
}

void backward(const ExactBackwardArgs& a) {
  by_state(a.dtype, a, portable::exact_kernels.backward, [&](auto zero) { backward_with<decltype(zero)>(a); });
}

}  // namespace

extern const ExactKernels exact_kernels = {forward, backward};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
