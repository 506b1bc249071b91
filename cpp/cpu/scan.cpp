// Neurons of the linear family on the CPU: a block of neurons walks through all time steps with its state in the L1
// cache. The backward pass repeats the forward recurrence for its block, so nothing but the current is saved in
// between.
#include "snnlib/loop/scan.h"

#include "snnlib/core/threads.h"
#include "snnlib/loop/linear_block.h"
#include "snnlib/loop/lines.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

// Where every neuron has coefficients of its own, which take 13 to 37 numbers each.
constexpr int64_t kOwnBlockNeurons = 256;
// Groups of steps as in loop/lines.h; neurons of several states are bound by arithmetic, so they take step by step.
template <int K, class F>
void for_each_group(int64_t steps, const F& f) {
  if constexpr (K == 1) return for_each_step_group(steps, f);
  for (int64_t t = 0; K > 1 && t < steps; ++t) f(std::integral_constant<int, 1>(), t);
}

template <int K, class F>
void for_each_group_reversed(int64_t steps, const F& f) {
  if constexpr (K == 1) return for_each_step_group_reversed(steps, f);
  for (int64_t t = steps; K > 1 && t > 0;) f(std::integral_constant<int, 1>(), --t);
}

// Lines as in loop/lines.h. Neurons of several states call f at one place only: its large body is not inlined at
// two, and a call for each vector of neurons takes up to half as much time again.
template <class T, int K, class F>
void for_each_line_of(int64_t count, const F& f) {
  if constexpr (K == 1) return for_each_line<T>(count, f);
  constexpr int64_t L = Line<T>::kNeurons;
  for (int64_t i = 0; K > 1 && i < count; i += L) f(i, count - i < L ? count - i : L);
}

inline int64_t block_neurons(Own own) { return own == Own::kAll ? kOwnBlockNeurons : kBlockNeurons; }

// The options that most nets have, as constants: a tenth less time backwards. For the neurons that are bound by memory
// but for this.
template <class T, int K, bool Next, bool Learn>
constexpr bool kHasUsual = std::is_same_v<T, float> && K == 1 && !Next && !Learn;

template <class T, int K>
LinearBlock<T, K>& block_of_thread() {
  thread_local LinearBlock<T, K> block;
  return of_thread(block);
}

template <class T, int K, bool Next, bool Quadratic, Options O>
void forward_block(const ScanForwardArgs& a, Own own, bool streamed, int64_t o, int64_t first, int64_t count) {
  using S = typename StateOf<T>::type;
  constexpr int64_t L = Line<T>::kLanes, V = Line<T>::kVectors;
  LinearBlock<T, K>& block = block_of_thread<T, K>();
  block.load(a, own, o, first, count);
  const LinearFlags flags = known_flags<O>(a.flags);
  const int64_t stride = a.view.step_stride;
  const T* current = static_cast<const T*>(a.current) + a.view.offset(o, 0, first);
  T* value = static_cast<T*>(a.value) + a.view.offset(o, 0, first);
  for_each_group<K>(a.view.steps, [&](auto group, int64_t t) {
    constexpr int kRows = decltype(group)::value;
    const T* now = current + t * stride;
    const T* next = t + kRows < a.view.steps ? now + kRows * stride : current + count;
    for_each_line_of<T, K>(count, [&](int64_t i, int64_t neurons) {
      Line<T> rows[kRows];
      load_rows(now + i, next + i, stride, neurons, rows);
      for (int64_t j = 0; j < V; ++j) {
        const auto& k = block.of(i / L + j);
        LinearState<K, StateVector<T>>& kept = block.states.data()[i / L + j];
        LinearState<K, StateVector<T>> state = load_state<Next>(kept, flags);
        for (int row = 0; row < kRows; ++row) {
          const auto out = linear_step<K, Next, Quadratic>(state, rows[row].vector[j], k, flags, S(1));
          rows[row].vector[j] = flags.membrane ? out.h[0] : out.spike;
        }
        store_state<Next>(state, kept, flags);
      }
      for (int row = 0; row < kRows; ++row) {
        T* to = value + (t + row) * stride + i;
        streamed ? rows[row].template store<true>(to, neurons) : rows[row].template store<false>(to, neurons);
      }
    });
  });
  const int64_t all = a.view.outer * a.view.inner, at = o * a.view.inner + first;
  S* out = static_cast<S*>(a.state_out);
  for_each_vector<T>(count, [&](int64_t i, int64_t lanes) {
    for (int s = 0; s < K; ++s) store_lanes<S>(out + s * all + at + i * L, block.states.data()[i].y[s], lanes);
    if (Next) store_lanes<S>(out + K * all + at + i * L, block.states.data()[i].fired, lanes);
    if (flags.refractory) store_lanes<S>(out + (K + Next) * all + at + i * L, block.states.data()[i].left, lanes);
  });
  if (streamed) finish_streams();
}

// Vectors that the repeated forward leaves for the backward pass of a vector of neurons at one step: h before the
// reset, with "next" the last step's spike, and with Learn or Quadratic the state before the step. What is left of a
// refractory time comes behind them.
template <int K, bool Next, bool Learn, bool Quadratic>
constexpr int64_t kSaved = K + (Next ? 1 : 0) + (Learn || Quadratic ? K : 0);

template <class T, int K, bool Next, bool Learn, bool Quadratic, Options O>
void backward_block(const ScanBackwardArgs& a, Own own, bool streamed, StateVector<T>* saved, int64_t vectors,
                    int64_t o, int64_t first, int64_t count) {
  using S = typename StateOf<T>::type;
  using Vec = StateVector<T>;
  constexpr int64_t L = Line<T>::kLanes, V = Line<T>::kVectors;
  constexpr int64_t kFirst = kSaved<K, Next, Learn, Quadratic>;
  LinearBlock<T, K>& block = block_of_thread<T, K>();
  block.load(a, own, o, first, count);
  const LinearFlags flags = known_flags<O>(a.flags);
  const int64_t values = kFirst + (flags.refractory != 0);
  const int64_t stride = a.view.step_stride, start = a.view.offset(o, 0, first);
  const int64_t all = a.view.outer * a.view.inner, at = o * a.view.inner + first;
  const T* current = static_cast<const T*>(a.current) + start;
  const T* grad = static_cast<const T*>(a.grad_value) + start;
  T* grad_current = static_cast<T*>(a.grad_current) + start;
  const auto place = [&](int64_t t, int64_t i, int kRows, int row, int64_t j) {
    return saved + (t * vectors + i / L * kRows + row * V + j) * values;
  };
  for_each_group<K>(a.view.steps, [&](auto group, int64_t t) {
    constexpr int kRows = decltype(group)::value;
    const T* now = current + t * stride;
    const T* next = t + kRows < a.view.steps ? now + kRows * stride : grad + t * stride;
    for_each_line_of<T, K>(count, [&](int64_t i, int64_t neurons) {
      Line<T> rows[kRows];
      load_rows(now + i, next + i, stride, neurons, rows);
      for (int64_t j = 0; j < V; ++j) {
        const auto& k = block.of(i / L + j);
        LinearState<K, Vec>& kept = block.states.data()[i / L + j];
        LinearState<K, Vec> state = load_state<Next>(kept, flags);
        for (int row = 0; row < kRows; ++row) {
          Vec* keep = place(t, i, kRows, row, j);
          if (Next) keep[K] = state.fired;
          if (Learn || Quadratic) {
            for (int s = 0; s < K; ++s) keep[K + Next + s] = state.y[s];
          }
          if (flags.refractory) keep[kFirst] = state.left;
          const auto out = linear_step<K, Next, Quadratic>(state, rows[row].vector[j], k, flags, S(1));
          for (int s = 0; s < K; ++s) keep[s] = out.raw[s];
        }
        store_state<Next>(state, kept, flags);
      }
    });
  });
  thread_local Scratch<LinearCarry<K, Vec>> carries;
  thread_local Scratch<LinearCoefficients<K, Vec>> sums;
  const int64_t used = (count + Line<T>::kNeurons - 1) / Line<T>::kNeurons * V;
  LinearCarry<K, Vec>* carry = carries.reserve(used);
  LinearCoefficients<K, Vec>* sum = sums.zeroed(Learn ? used : 1);
  const S* from = static_cast<const S*>(a.grad_state_out);
  for_each_vector<T>(count, [&](int64_t i, int64_t lanes) {
    for (int s = 0; s < K; ++s) {
      carry[i].g[s] = from ? load_lanes<S>(from + s * all + at + i * L, lanes) : Vec{};
    }
    carry[i].qs = from && Next ? load_lanes<S>(from + K * all + at + i * L, lanes) : Vec{};
  });
  for_each_group_reversed<K>(a.view.steps, [&](auto group, int64_t t) {
    constexpr int kRows = decltype(group)::value;
    const T* now = grad + t * stride;
    const T* next = t >= kRows ? now - kRows * stride : current + count;
    for_each_line_of<T, K>(count, [&](int64_t i, int64_t neurons) {
      Line<T> rows[kRows], inputs[Learn ? kRows : 1];
      load_rows(now + i, next + i, stride, neurons, rows);
      if constexpr (Learn) load_rows(current + t * stride + i, current + t * stride + i, stride, neurons, inputs);
      for (int64_t j = 0; j < V; ++j) {
        const auto& k = block.of(i / L + j);
        LinearCarry<K, Vec> back = carry[i / L + j];
        for (int row = kRows - 1; row >= 0; --row) {
          const Vec* keep = place(t, i, kRows, row, j);
          LinearSeen<K, Vec> seen;
          for (int s = 0; s < K; ++s) seen.raw[s] = keep[s];
          if (Next) seen.fired_before = keep[K];
          if constexpr (Learn || Quadratic) {
            for (int s = 0; s < K; ++s) seen.y[s] = keep[K + Next + s];
          }
          if constexpr (Learn) seen.x = inputs[row].vector[j];
          if (flags.refractory) seen.left = keep[kFirst];
          rows[row].vector[j] = linear_back<K, Next, Learn, Quadratic>(back, rows[row].vector[j], seen, k, flags, S(1),
                                                                       sum[Learn ? i / L + j : 0]);
        }
        carry[i / L + j] = back;
      }
      for (int row = 0; row < kRows; ++row) {
        T* to = grad_current + (t + row) * stride + i;
        streamed ? rows[row].template store<true>(to, neurons) : rows[row].template store<false>(to, neurons);
      }
    });
  });
  S* to = static_cast<S*>(a.grad_state_in);
  for_each_vector<T>(count, [&](int64_t i, int64_t lanes) {
    for (int s = 0; s < K; ++s) store_lanes<S>(to + s * all + at + i * L, carry[i].g[s], lanes);
    if (Next) store_lanes<S>(to + K * all + at + i * L, carry[i].qs, lanes);
    if (flags.refractory) store_lanes<S>(to + (K + Next) * all + at + i * L, Vec{}, lanes);
    if (Learn) {
      S* grads = static_cast<S*>(a.grad_coefficients) + at + i * L;
      for (int64_t row = 0; row < LinearRows<K>::count; ++row)
        store_lanes<S>(grads + row * all, sum[i].row[row], lanes);
    }
  });
  if (streamed) finish_streams();
}

template <class T, int K, bool Next, bool Quadratic>
void forward_with(const ScanForwardArgs& a) {
  const bool streamed = streamable_sequence<T>(a.view, a.value);
  const Own own = own_coefficients<typename StateOf<T>::type, K>(a);
  by_options<kHasUsual<T, K, Next, false>>(a.flags, [&](auto options) {
    for_each_block(a.view, block_neurons(own), a.executor.threads(), [&](int64_t o, int64_t first, int64_t count) {
      forward_block<T, K, Next, Quadratic, decltype(options)::value>(a, own, streamed, o, first, count);
    });
  });
}

template <class T, int K, bool Next, bool Learn, bool Quadratic>
void backward_with(const ScanBackwardArgs& a) {
  using Vec = StateVector<T>;
  const int64_t values = kSaved<K, Next, Learn, Quadratic> + (a.flags.refractory != 0);
  const bool streamed = streamable_sequence<T>(a.view, a.grad_current);
  const Own own = own_coefficients<typename StateOf<T>::type, K>(a);
  const int64_t vectors = backward_vectors<T>(values, a.view.steps, block_neurons(own) / Line<T>::kLanes);
  const int64_t block = vectors * Line<T>::kLanes;
  by_options<kHasUsual<T, K, Next, Learn>>(a.flags, [&](auto options) {
    for_each_block(a.view, block, a.executor.threads(), [&](int64_t o, int64_t first, int64_t count) {
      thread_local Scratch<Vec> scratch;
      Vec* saved = scratch.reserve(values * a.view.steps * vectors);
      backward_block<T, K, Next, Learn, Quadratic, decltype(options)::value>(a, own, streamed, saved, vectors, o, first,
                                                                             count);
    });
  });
}

template <class T, int K>
void forward_states(const ScanForwardArgs& a) {
  if constexpr (K > 1) {
    if (a.flags.quadratic) return forward_with<T, K, false, true>(a);
  }
  a.flags.reset_next ? forward_with<T, K, true, false>(a) : forward_with<T, K, false, false>(a);
}

template <class T, int K, bool Learn>
void backward_learn(const ScanBackwardArgs& a) {
  if constexpr (K > 1) {
    if (a.flags.quadratic) return backward_with<T, K, false, Learn, true>(a);
  }
  a.flags.reset_next ? backward_with<T, K, true, Learn, false>(a) : backward_with<T, K, false, Learn, false>(a);
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
