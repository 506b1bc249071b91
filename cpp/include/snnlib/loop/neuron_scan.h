// Neurons over whole sequences on a CPU: a block of neurons walks through all time steps with its state in the L1
// cache. The backward pass repeats the forward recurrence for its block, so nothing but the current is saved in
// between.
//
// N is a neuron of neurons/neuron.h, or a family that has the same members.
#pragma once

#include "snnlib/core/threads.h"
#include "snnlib/loop/linear_block.h"
#include "snnlib/loop/lines.h"

namespace snnlib {
namespace SNNLIB_ISA {

// Where every neuron has coefficients of its own, which take 9 to 37 numbers each.
constexpr int64_t kOwnBlockNeurons = 256;

// Groups of steps as in loop/lines.h, or step by step.
template <class N, class F>
SNNLIB_INLINE void for_each_group(int64_t steps, const F& f) {
  if constexpr (N::kGroups) return for_each_step_group(steps, f);
  for (int64_t t = 0; !N::kGroups && t < steps; ++t) f(std::integral_constant<int, 1>(), t);
}

template <class N, class F>
SNNLIB_INLINE void for_each_group_reversed(int64_t steps, const F& f) {
  if constexpr (N::kGroups) return for_each_step_group_reversed(steps, f);
  for (int64_t t = steps; !N::kGroups && t > 0;) f(std::integral_constant<int, 1>(), --t);
}

// Lines as in loop/lines.h. Neurons that take step by step call f at one place only: its large body is not inlined at
// two, and a call for each vector of neurons takes up to half as much time again.
template <class T, class N, class F>
SNNLIB_INLINE void for_each_line_of(int64_t count, const F& f) {
  if constexpr (N::kGroups) return for_each_line<T>(count, f);
  constexpr int64_t L = Line<T>::kNeurons;
  for (int64_t i = 0; !N::kGroups && i < count; i += L) f(i, count - i < L ? count - i : L);
}

inline int64_t block_neurons(Own own) { return own == Own::kAll ? kOwnBlockNeurons : kBlockNeurons; }

template <class T, class N>
NeuronBlock<T, N>& block_of_thread() {
  thread_local NeuronBlock<T, N> block;
  return of_thread(block);
}

// Coefficients of a block: where all neurons are known to share them, a copy on the stack, which no store can change.
template <class T, class N, Own kOwn>
struct Held {
  NeuronBlock<T, N>& block;
  const typename N::template Coefficients<StateVector<T>> shared;
  explicit Held(NeuronBlock<T, N>& from) : block(from), shared(from.coefficients.data()[0]) {}
  SNNLIB_INLINE const auto& of(int64_t vector) const {
    if constexpr (kOwn == Own::kNothing) return shared;
    return block.of(vector);
  }
};

template <class T, class N, Options O, Own kOwn>
void forward_block(const ScanForwardArgsOf<typename N::Flags>& a, Own own, bool streamed, int64_t o, int64_t first,
                   int64_t count) {
  using S = typename StateOf<T>::type;
  constexpr int K = N::kStates;
  constexpr int64_t L = Line<T>::kLanes, V = Line<T>::kVectors;
  auto& block = block_of_thread<T, N>();
  block.load(a, own, o, first, count);
  const Held<T, N, kOwn> held(block);
  const auto flags = known_flags<O>(a.flags);
  const int64_t stride = a.view.step_stride;
  const T* current = static_cast<const T*>(a.current) + a.view.offset(o, 0, first);
  T* value = static_cast<T*>(a.value) + a.view.offset(o, 0, first);
  for_each_group<N>(a.view.steps, [&](auto group, int64_t t) SNNLIB_INLINED {
    constexpr int kRows = decltype(group)::value;
    const T* now = current + t * stride;
    const T* next = t + kRows < a.view.steps ? now + kRows * stride : current + count;
    for_each_line_of<T, N>(count, [&](int64_t i, int64_t neurons) SNNLIB_INLINED {
      Line<T> rows[kRows];
      const auto flags = known_flags<O>(a.flags);
      load_rows(now + i, next + i, stride, neurons, rows);
      for (int64_t j = 0; j < V; ++j) {
        const auto& k = held.of(i / L + j);
        auto& kept = block.states.data()[i / L + j];
        auto state = load_state<N::kNext>(kept, flags);
        for (int row = 0; row < kRows; ++row) {
          StateVector<T>* nothing = nullptr;
          rows[row].vector[j] = N::template step<false, S>(state, rows[row].vector[j], k, flags, nothing);
        }
        store_state<N::kNext>(state, kept, flags);
      }
      for (int row = 0; row < kRows; ++row) {
        T* to = value + (t + row) * stride + i;
        streamed ? rows[row].template store<true>(to, neurons) : rows[row].template store<false>(to, neurons);
      }
    });
  });
  const int64_t all = a.view.outer * a.view.inner, at = o * a.view.inner + first;
  S* out = static_cast<S*>(a.state_out);
  for_each_vector<T>(out ? count : 0, [&](int64_t i, int64_t lanes) {
    const auto& state = block.states.data()[i];
    for (int s = 0; s < K; ++s) store_lanes<S>(out + s * all + at + i * L, state.y[s], lanes);
    if (N::kNext) store_lanes<S>(out + K * all + at + i * L, state.fired, lanes);
    if (flags.refractory) store_lanes<S>(out + (K + N::kNext) * all + at + i * L, state.left, lanes);
  });
  if (streamed) finish_streams();
}

// dL/dcurrent, and of neurons with two signals the inputs'; null where it is not wanted.
template <class Args>
void* signal_of(const Args& a, int signal) {
  if constexpr (std::is_base_of_v<SpikeTimeBackwardArgs, Args>) return signal ? a.input_signal : a.grad_current;
  return a.grad_current;
}

// The steps that are left of a refractory time before a step are kept behind the neuron's own numbers.
template <class T, class N, Options O, Own kOwn, class Args>
void backward_block(const Args& a, Own own, bool streamed, StateVector<T>* saved, int64_t vectors, int64_t o,
                    int64_t first, int64_t count) {
  using S = typename StateOf<T>::type;
  using Vec = StateVector<T>;
  constexpr int K = N::kStates;
  constexpr int64_t L = Line<T>::kLanes, V = Line<T>::kVectors;
  auto& block = block_of_thread<T, N>();
  block.load(a, own, o, first, count);
  const Held<T, N, kOwn> held(block);
  const auto flags = known_flags<O>(a.flags);
  const int64_t stride = a.view.step_stride, start = a.view.offset(o, 0, first);
  const int64_t all = a.view.outer * a.view.inner, at = o * a.view.inner + first;
  const T* current = static_cast<const T*>(a.current) + start;
  const T* grad = static_cast<const T*>(a.grad_value) + start;
  const auto store = [streamed](const Line<T>& line, T* to, int64_t neurons) {
    streamed ? line.template store<true>(to, neurons) : line.template store<false>(to, neurons);
  };
  // Neurons whose channels differ in the threshold alone are alike here.
  const Held<T, N, N::kAlwaysUsual && kOwn == Own::kInput ? Own::kNothing : kOwn> behind(block);
  T* signals[2] = {};
  for (int i = 0; i < 2; ++i) {
    if (signal_of(a, i)) signals[i] = static_cast<T*>(signal_of(a, i)) + start;
  }
  // Numbers that step `row` of a group keeps of vector j of a line.
  const auto place = [&](int64_t line, const auto& known, int row, int64_t j) {
    return saved + (line + row * V + j) * (N::kKept + (known.refractory != 0));
  };
  for_each_group<N>(a.view.steps, [&](auto group, int64_t t) SNNLIB_INLINED {
    constexpr int kRows = decltype(group)::value;
    const T* now = current + t * stride;
    const T* next = t + kRows < a.view.steps ? now + kRows * stride : grad + t * stride;
    for_each_line_of<T, N>(count, [&](int64_t i, int64_t neurons) SNNLIB_INLINED {
      Line<T> rows[kRows];
      const int64_t line = t * vectors + i / L * kRows;
      const auto flags = known_flags<O>(a.flags);
      load_rows(now + i, next + i, stride, neurons, rows);
      for (int64_t j = 0; j < V; ++j) {
        const auto& k = held.of(i / L + j);
        auto& kept = block.states.data()[i / L + j];
        auto state = load_state<N::kNext>(kept, flags);
        for (int row = 0; row < kRows; ++row) {
          Vec* keep = place(line, flags, row, j);
          if (flags.refractory) keep[N::kKept] = state.left;
          N::template step<true, S>(state, rows[row].vector[j], k, flags, keep);
        }
        store_state<N::kNext>(state, kept, flags);
      }
    });
  });
  thread_local Scratch<NeuronCarry<K, Vec>> carries;
  thread_local Scratch<typename N::template Coefficients<Vec>> sums;
  const int64_t used = (count + Line<T>::kNeurons - 1) / Line<T>::kNeurons * V;
  NeuronCarry<K, Vec>* carry = carries.reserve(used);
  auto* sum = sums.zeroed(N::kLearn ? used : 1);
  const S* from = static_cast<const S*>(a.grad_state_out);
  for_each_vector<T>(count, [&](int64_t i, int64_t lanes) {
    for (int s = 0; s < K; ++s) {
      carry[i].g[s] = from ? load_lanes<S>(from + s * all + at + i * L, lanes) : Vec{};
    }
    carry[i].qs = from && N::kNext ? load_lanes<S>(from + K * all + at + i * L, lanes) : Vec{};
  });
  for_each_group_reversed<N>(a.view.steps, [&](auto group, int64_t t) SNNLIB_INLINED {
    constexpr int kRows = decltype(group)::value;
    const T* now = grad + t * stride;
    const T* next = t >= kRows ? now - kRows * stride : current + count;
    for_each_line_of<T, N>(count, [&](int64_t i, int64_t neurons) SNNLIB_INLINED {
      Line<T> rows[kRows], inputs[N::kLearn ? kRows : 1];
      const int64_t line = t * vectors + i / L * kRows;
      const auto flags = known_flags<O>(a.flags);
      load_rows(now + i, next + i, stride, neurons, rows);
      if constexpr (N::kLearn) load_rows(current + t * stride + i, current + t * stride + i, stride, neurons, inputs);
      if constexpr (N::kSignals == 2) {
        // Two signals are fastest stored row by row over all vectors of a line.
        NeuronCarry<K, Vec> back[V];
        for (int64_t j = 0; j < V; ++j) back[j] = carry[i / L + j];
        for (int row = kRows - 1; row >= 0; --row) {
          Line<T> to_weights, to_inputs;
          for (int64_t j = 0; j < V; ++j) {
            const auto& k = behind.of(i / L + j);
            const Vec q = rows[row].vector[j], *keep = place(line, flags, row, j);
            to_weights.vector[j] = N::template back<S>(back[j], q, keep, Vec{}, Vec{}, k, flags, *sum);
            to_inputs.vector[j] = N::back_input(back[j], q, keep, k);
          }
          const int64_t at = (t + row) * stride + i;
          if (signals[0]) store(to_weights, signals[0] + at, neurons);
          if (signals[1]) store(to_inputs, signals[1] + at, neurons);
        }
        for (int64_t j = 0; j < V; ++j) carry[i / L + j] = back[j];
        return;
      }
      for (int64_t j = 0; j < V; ++j) {
        const auto& k = behind.of(i / L + j);
        NeuronCarry<K, Vec> back = carry[i / L + j];
        for (int row = kRows - 1; row >= 0; --row) {
          const Vec* keep = place(line, flags, row, j);
          const Vec left = flags.refractory ? keep[N::kKept] : Vec{};
          const Vec x = N::kLearn ? inputs[N::kLearn ? row : 0].vector[j] : Vec{};
          rows[row].vector[j] =
              N::template back<S>(back, rows[row].vector[j], keep, x, left, k, flags, sum[N::kLearn ? i / L + j : 0]);
        }
        carry[i / L + j] = back;
      }
      for (int row = 0; row < kRows; ++row) {
        store(rows[row], signals[0] + (t + row) * stride + i, neurons);
      }
    });
  });
  S* to = static_cast<S*>(a.grad_state_in);
  for_each_vector<T>(to ? count : 0, [&](int64_t i, int64_t lanes) {
    for (int s = 0; s < K; ++s) store_lanes<S>(to + s * all + at + i * L, carry[i].g[s], lanes);
    if (N::kNext) store_lanes<S>(to + K * all + at + i * L, carry[i].qs, lanes);
    if (flags.refractory) store_lanes<S>(to + (K + N::kNext) * all + at + i * L, Vec{}, lanes);
    if (N::kLearn) {
      S* grads = static_cast<S*>(a.grad_coefficients) + at + i * L;
      for (int64_t row = 0; row < N::Rows::count; ++row) store_lanes<S>(grads + row * all, sum[i].row[row], lanes);
    }
  });
  if (streamed) finish_streams();
}

// Kernels with the usual options as constants are for float32 alone.
template <class T, class N>
constexpr bool kHasUsual = std::is_same_v<T, float> && N::kHasUsual;

// f(options, own) with constants: of neurons with one set of options, what differs between them.
template <class T, class N, class F>
void by_options_of(const typename N::Flags& flags, Own own, const F& f) {
  if constexpr (N::kAlwaysUsual) {
    const std::integral_constant<Options, Options::kUsual> usual;
    if (own == Own::kNothing) return f(usual, std::integral_constant<Own, Own::kNothing>());
    if (own == Own::kInput) return f(usual, std::integral_constant<Own, Own::kInput>());
    return f(usual, std::integral_constant<Own, Own::kAll>());
  } else {
    by_options<kHasUsual<T, N>>(flags, [&](auto options) { f(options, std::integral_constant<Own, Own::kAll>()); });
  }
}

template <class T, class N>
void scan_forward(const ScanForwardArgsOf<typename N::Flags>& a) {
  const bool streamed = streamable_sequence<T>(a.view, a.value);
  const Own own = own_coefficients<typename StateOf<T>::type, typename N::Rows>(a);
  by_options_of<T, N>(a.flags, own, [&](auto options, auto owned) {
    for_each_block(a.view, block_neurons(own), a.executor.threads(), [&](int64_t o, int64_t first, int64_t count) {
      forward_block<T, N, decltype(options)::value, decltype(owned)::value>(a, own, streamed, o, first, count);
    });
  });
}

template <class T, class N, class Args>
void scan_backward(const Args& a) {
  using Vec = StateVector<T>;
  const int64_t values = N::kKept + (a.flags.refractory != 0);
  bool streamed = true;
  for (int signal = 0; signal < N::kSignals; ++signal) {
    streamed &= !signal_of(a, signal) || streamable_sequence<T>(a.view, signal_of(a, signal));
  }
  const Own own = own_coefficients<typename StateOf<T>::type, typename N::Rows>(a);
  const int64_t vectors = backward_vectors<T>(values, a.view.steps, block_neurons(own) / Line<T>::kLanes);
  const int64_t block = vectors * Line<T>::kLanes;
  by_options_of<T, N>(a.flags, own, [&](auto options, auto owned) {
    for_each_block(a.view, block, a.executor.threads(), [&](int64_t o, int64_t first, int64_t count) {
      thread_local Scratch<Vec> scratch;
      Vec* saved = scratch.reserve(values * a.view.steps * vectors);
      backward_block<T, N, decltype(options)::value, decltype(owned)::value>(a, own, streamed, saved, vectors, o, first,
                                                                             count);
    });
  });
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
