// SRM neuron on the CPU: a block of neurons walks through all time steps with its state in the L1 cache. The backward
// pass repeats the forward recurrence for its block, so nothing but the current is saved in between.
#include "snnlib/neurons/srm.h"

#include "snnlib/core/threads.h"
#include "snnlib/loop/lines.h"
#include "snnlib/loop/srm.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

// State and threshold of a block, one vector after the other.
template <class T>
struct Block {
  using S = typename StateOf<T>::type;
  static constexpr int64_t kLanes = Line<T>::kLanes;
  static constexpr int64_t kVectors = kBlockNeurons / kLanes;
  SrmState<StateVector<T>> state[kVectors];
  StateVector<T> threshold[kVectors];

  template <class Args>
  Block(const Args& a, int64_t o, int64_t first, int64_t count) {
    const int64_t neurons = a.view.outer * a.view.inner, at = o * a.view.inner + first;
    const S* limits = static_cast<const S*>(a.coefficients);
    int64_t next = first % a.period;
    for_each_vector<T>(count, [&](int64_t i, int64_t lanes) {
      // Lanes past the end never fire: their current is 0 and their threshold 1.
      S lane[kLanes];
      for (int64_t j = 0; j < kLanes; ++j) lane[j] = lanes >= kLanes ? limits[0] : S(1);
      if (lanes < kLanes || a.period > 1) {
        for (int64_t j = 0; j < kLanes && j < lanes; ++j) {
          lane[j] = limits[next];
          if (++next == a.period) next = 0;
        }
      }
      std::memcpy(&threshold[i], lane, sizeof lane);
      SrmState<StateVector<T>>& now = state[i];
      now.u = now.s = now.g = StateVector<T>{};
      if (a.state_in) {
        const S* p = static_cast<const S*>(a.state_in) + at + i * kLanes;
        now.u = load_lanes<S>(p, lanes);
        now.s = load_lanes<S>(p + neurons, lanes);
        now.g = load_lanes<S>(p + 2 * neurons, lanes);
      }
    });
  }

  void store(S* out, int64_t neurons, int64_t count) const {
    for_each_vector<T>(count, [&](int64_t i, int64_t lanes) {
      store_lanes<S>(out + i * kLanes, state[i].u, lanes);
      store_lanes<S>(out + neurons + i * kLanes, state[i].s, lanes);
      store_lanes<S>(out + 2 * neurons + i * kLanes, state[i].g, lanes);
    });
  }
};

template <class S>
SrmDecay<S> decay(const SrmConstants& c) {
  return {S(c.e_m), S(c.e_s), S(c.e_g), S(c.r_s)};
}

// Traced: also writes potential and deltas, which only tests and plots ask for.
template <class T, bool Traced, bool Streamed>
void forward_block(const SrmForwardArgs& a, int64_t o, int64_t first, int64_t count) {
  using S = typename StateOf<T>::type;
  constexpr int64_t L = Line<T>::kLanes, V = Line<T>::kVectors;
  const SrmDecay<S> k = decay<S>(a.flags);
  const T* current = static_cast<const T*>(a.current) + a.view.offset(o, 0, first);
  const int64_t stride = a.view.step_stride;
  Block<T> block(a, o, first, count);
  for_each_step_group(a.view.steps, [&](auto group, int64_t t) {
    constexpr int kRows = decltype(group)::value;
    const T* now = current + t * stride;
    const T* next = t + kRows < a.view.steps ? now + kRows * stride : current + count;
    for_each_line<T>(count, [&](int64_t i, int64_t neurons) {
      Line<T> rows[kRows];
      load_rows(now + i, next + i, stride, neurons, rows);
      SrmState<StateVector<T>> state[V];
      for (int64_t j = 0; j < V; ++j) state[j] = block.state[i / L + j];
      for (int row = 0; row < kRows; ++row) {
        Line<T> spikes, potential, delta_u, delta_ut;
        for (int64_t j = 0; j < V; ++j) {
          const SrmStep<StateVector<T>> out = srm_step(state[j], rows[row].vector[j], block.threshold[i / L + j], k);
          spikes.vector[j] = out.spike;
          potential.vector[j] = out.u;
          delta_u.vector[j] = out.delta_u;
          delta_ut.vector[j] = out.delta_ut;
        }
        const int64_t p = a.view.offset(o, t + row, first) + i;
        spikes.template store<Streamed>(static_cast<T*>(a.spikes) + p, neurons);
        if (Traced) {
          potential.template store<false>(static_cast<T*>(a.potential) + p, neurons);
          delta_u.template store<false>(static_cast<T*>(a.delta_u) + p, neurons);
          delta_ut.template store<false>(static_cast<T*>(a.delta_ut) + p, neurons);
        }
      }
      for (int64_t j = 0; j < V; ++j) block.state[i / L + j] = state[j];
    });
  });
  if (a.state_out) {
    block.store(static_cast<S*>(a.state_out) + o * a.view.inner + first, a.view.outer * a.view.inner, count);
  }
  if (Streamed) finish_streams();
}

template <class T>
void forward_sequence(const SrmForwardArgs& a) {
  const auto run = a.potential                                ? forward_block<T, true, false>
                   : streamable_sequence<T>(a.view, a.spikes) ? forward_block<T, false, true>
                                                              : forward_block<T, false, false>;
  for_each_block(a.view, kBlockNeurons, a.executor.threads(),
                 [&](int64_t o, int64_t first, int64_t count) { run(a, o, first, count); });
}

// What the repeated forward leaves for the backward pass: delta_u (0 where no spike) and delta_ut. The steps of a group
// stand next to each other, line by line: [groups][lines][steps of the group][vectors of a line].
template <class T>
struct Rise {
  StateVector<T>*delta_u, *delta_ut;
};

template <class T, bool Weight, bool Input, bool Streamed>
void backward_block(const SrmBackwardArgs& a, Rise<T> rise, int64_t vectors, int64_t o, int64_t first, int64_t count) {
  using S = typename StateOf<T>::type;
  constexpr int64_t L = Line<T>::kLanes, V = Line<T>::kVectors;
  const SrmDecay<S> k = decay<S>(a.flags);
  const S clamp = S(a.flags.grad_clamp);
  const int64_t stride = a.view.step_stride, start = a.view.offset(o, 0, first);
  const T* current = static_cast<const T*>(a.current) + start;
  const T* grad = static_cast<const T*>(a.grad_spikes) + start;
  Block<T> block(a, o, first, count);
  for_each_step_group(a.view.steps, [&](auto group, int64_t t) {
    constexpr int kRows = decltype(group)::value;
    const T* now = current + t * stride;
    const T* next = t + kRows < a.view.steps ? now + kRows * stride : grad + t * stride;
    for_each_line<T>(count, [&](int64_t i, int64_t neurons) {
      Line<T> rows[kRows];
      load_rows(now + i, next + i, stride, neurons, rows);
      SrmState<StateVector<T>> state[V];
      for (int64_t j = 0; j < V; ++j) state[j] = block.state[i / L + j];
      for (int row = 0; row < kRows; ++row) {
        for (int64_t j = 0; j < V; ++j) {
          const SrmStep<StateVector<T>> out = srm_step(state[j], rows[row].vector[j], block.threshold[i / L + j], k);
          const int64_t at = t * vectors + i / L * kRows + row * V + j;
          rise.delta_u[at] = srm_rise(out);
          if (Input) rise.delta_ut[at] = out.delta_ut;
        }
      }
      for (int64_t j = 0; j < V; ++j) block.state[i / L + j] = state[j];
    });
  });
  SrmCredit<StateVector<T>> credits[Block<T>::kVectors] = {};
  for_each_step_group_reversed(a.view.steps, [&](auto group, int64_t t) {
    constexpr int kRows = decltype(group)::value;
    const T* now = grad + t * stride;
    const T* next = t >= kRows ? now - kRows * stride : current + count;
    for_each_line<T>(count, [&](int64_t i, int64_t neurons) {
      Line<T> rows[kRows];
      load_rows(now + i, next + i, stride, neurons, rows);
      SrmCredit<StateVector<T>> credit[V];
      for (int64_t j = 0; j < V; ++j) credit[j] = credits[i / L + j];
      for (int row = kRows - 1; row >= 0; --row) {
        Line<T> weight, input;
        for (int64_t j = 0; j < V; ++j) {
          const int64_t at = t * vectors + i / L * kRows + row * V + j;
          const StateVector<T> q = rows[row].vector[j], delta_u = rise.delta_u[at];
          const auto fired = delta_u > StateVector<T>{};
          if (Weight) srm_credit_weight(credit[j], fired, q * srm_slope(delta_u, clamp, RiseReciprocal()), k);
          if (Input) srm_credit_input(credit[j], fired, q * srm_gain(rise.delta_ut[at], RiseReciprocal()), k);
          weight.vector[j] = credit[j].au;
          input.vector[j] = credit[j].bg;
        }
        const int64_t p = start + (t + row) * stride + i;
        if (Weight) weight.template store<Streamed>(static_cast<T*>(a.weight_signal) + p, neurons);
        if (Input) input.template store<Streamed>(static_cast<T*>(a.input_signal) + p, neurons);
      }
      for (int64_t j = 0; j < V; ++j) credits[i / L + j] = credit[j];
    });
  });
  if (Streamed) finish_streams();
}

template <class T, bool Streamed>
void backward_with(const SrmBackwardArgs& a) {
  const int64_t vectors = backward_vectors<T>(2, a.view.steps, Block<T>::kVectors);
  const auto run = a.weight_signal && a.input_signal ? backward_block<T, true, true, Streamed>
                   : a.weight_signal                 ? backward_block<T, true, false, Streamed>
                                                     : backward_block<T, false, true, Streamed>;
  for_each_block(a.view, vectors * Line<T>::kLanes, a.executor.threads(), [&](int64_t o, int64_t first, int64_t count) {
    thread_local Scratch<StateVector<T>> scratch;
    StateVector<T>* delta_u = scratch.reserve(2 * a.view.steps * vectors);
    run(a, {delta_u, delta_u + a.view.steps * vectors}, vectors, o, first, count);
  });
}

template <class T>
void backward_sequence(const SrmBackwardArgs& a) {
  if (!a.weight_signal && !a.input_signal) return;
  const bool streamed = (!a.weight_signal || streamable_sequence<T>(a.view, a.weight_signal)) &&
                        (!a.input_signal || streamable_sequence<T>(a.view, a.input_signal));
  streamed ? backward_with<T, true>(a) : backward_with<T, false>(a);
}

void forward(const SrmForwardArgs& a) {
  by_element(a.dtype, a, portable::srm_kernels.forward, [&](auto zero) { forward_sequence<decltype(zero)>(a); });
}

void backward(const SrmBackwardArgs& a) {
  by_element(a.dtype, a, portable::srm_kernels.backward, [&](auto zero) { backward_sequence<decltype(zero)>(a); });
}

}  // namespace

extern const SrmKernels srm_kernels = {forward, backward};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
