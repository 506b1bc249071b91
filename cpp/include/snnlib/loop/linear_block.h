// Neurons that walk through time together: their coefficients and states as vectors.
#pragma once

#include "snnlib/core/threads.h"
#include "snnlib/loop/lines.h"
#include "snnlib/loop/scan.h"

namespace snnlib {
namespace SNNLIB_ISA {

// Differences between the neurons of a call: nothing, what they make of their input (B and d, as with batch norm by
// channel), or any coefficient.
enum class Own { kNothing, kInput, kAll };

template <class S, class R, class Args>
Own own_coefficients(const Args& a) {
  if (a.period == 1) return Own::kNothing;
  const S* rows = static_cast<const S*>(a.coefficients);
  for (int64_t row = 0; row < R::count; ++row) {
    if (row >= R::b && row < R::c) continue;
    const S* values = rows + row * a.period;
    for (int64_t i = 1; i < a.period; ++i) {
      if (values[i] != values[0]) return Own::kAll;
    }
  }
  return Own::kInput;
}

// A state's copy, number by number: it stays in registers, where a copy of the whole goes by the stack.
template <bool Next, int K, class V, class Flags>
inline NeuronState<K, V> load_state(const NeuronState<K, V>& kept, const Flags& flags) {
  NeuronState<K, V> state;
  for (int s = 0; s < K; ++s) state.y[s] = kept.y[s];
  state.fired = Next ? kept.fired : V{};
  state.left = V{};
  if (flags.refractory) state.left = kept.left;
  return state;
}

template <bool Next, int K, class V, class Flags>
inline void store_state(const NeuronState<K, V>& state, NeuronState<K, V>& kept, const Flags& flags) {
  for (int s = 0; s < K; ++s) kept.y[s] = state.y[s];
  if (Next) kept.fired = state.fired;
  if (flags.refractory) kept.left = state.left;
}

// Rows [from, from + count) of the coefficients of the vectors of a block: f(vector, row) is where they go.
template <class T, class Args, class F>
void load_coefficients(const Args& a, int64_t first, int64_t vectors, int64_t from, int64_t count, const F& f) {
  using S = typename StateOf<T>::type;
  constexpr int64_t kLanes = Line<T>::kLanes;
  const S* rows = static_cast<const S*>(a.coefficients);
  int64_t at = first % a.period;
  for (int64_t v = 0; v < vectors; ++v) {
    for (int64_t row = from; row < from + count; ++row) {
      S lane[kLanes];
      const S* values = rows + row * a.period;
      // Beyond the block's end lie other neurons, whose results are not stored.
      for (int64_t j = 0, i = at; j < kLanes; ++j, i = i + 1 < a.period ? i + 1 : 0) lane[j] = values[i];
      std::memcpy(&f(v, row), lane, sizeof lane);
    }
    at += kLanes;
    while (at >= a.period) at -= a.period;
  }
}

// Coefficients and state of a block, one vector of neurons after the other. N has the number of states, the rows and
// the type of the coefficients.
template <class T, class N>
struct NeuronBlock {
  using S = typename StateOf<T>::type;
  using V = StateVector<T>;
  using Rows = typename N::Rows;
  using Coefficients = typename N::template Coefficients<V>;
  static constexpr int K = N::kStates, kOwnRows = Rows::c - Rows::b;
  static constexpr int64_t kLanes = Line<T>::kLanes;
  struct Input {
    V row[kOwnRows ? kOwnRows : 1];
  };

  Scratch<Coefficients> coefficients;
  Scratch<Input> inputs;
  Scratch<NeuronState<K, V>> states;
  Own own = Own::kNothing;

  template <class Args>
  void load(const Args& a, Own own_, int64_t o, int64_t first, int64_t count) {
    const int64_t vectors = (count + Line<T>::kNeurons - 1) / Line<T>::kNeurons * Line<T>::kVectors;
    own = own_;
    Coefficients* all = coefficients.reserve(own == Own::kAll ? vectors : 1);
    load_coefficients<T>(a, first, own == Own::kAll ? vectors : 1, 0, Rows::count,
                         [&](int64_t v, int64_t row) -> V& { return all[v].row[row]; });
    if (own == Own::kInput) {
      Input* input = inputs.reserve(vectors);
      load_coefficients<T>(a, first, vectors, Rows::b, kOwnRows,
                           [&](int64_t v, int64_t row) -> V& { return input[v].row[row - Rows::b]; });
    }
    const int64_t neurons = a.view.outer * a.view.inner, at = o * a.view.inner + first;
    NeuronState<K, V>* state = states.reserve(vectors);
    const S* in = static_cast<const S*>(a.state_in);
    for_each_vector<T>(count, [&](int64_t i, int64_t lanes) {
      for (int s = 0; s < K; ++s) state[i].y[s] = in ? load_lanes<S>(in + s * neurons + at + i * kLanes, lanes) : V{};
      const auto added = [&](bool given, int64_t row) {
        return in && given ? load_lanes<S>(in + row * neurons + at + i * kLanes, lanes) : V{};
      };
      state[i].fired = added(a.flags.reset_next, K);
      state[i].left = added(a.flags.refractory, K + a.flags.reset_next);
    });
  }

  const Coefficients& of(int64_t vector) {
    if (own == Own::kInput) {
      for (int i = 0; i < kOwnRows; ++i) coefficients.data()->row[Rows::b + i] = inputs.data()[vector].row[i];
    }
    return coefficients.data()[own == Own::kAll ? vector : 0];
  }
};

// Neurons of the linear family (neurons/linear.h) as NeuronBlock wants them.
template <int K>
struct LinearFamily {
  using Flags = LinearFlags;
  using Rows = LinearRows<K>;
  static constexpr int kStates = K, kSignals = 1;
  static constexpr bool kAlwaysUsual = false;
  template <class F>
  using Coefficients = LinearCoefficients<K, F>;
};
template <class T, int K>
using LinearBlock = NeuronBlock<T, LinearFamily<K>>;

}  // namespace SNNLIB_ISA
}  // namespace snnlib
