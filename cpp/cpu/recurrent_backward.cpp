// Backward of recurrent neurons on the CPU. A sample walks through its steps once more and then back in time on one
// thread; W^T dL/dI is summed only for neurons whose surrogate is not zero. The weight gradient follows by spikes, in
// one order for each neuron that a weight leads from.
#include <cmath>

#include "snnlib/core/threads.h"
#include "snnlib/events/outer_products.h"
#include "snnlib/events/sparse.h"
#include "snnlib/loop/recurrent_sample.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

// Bytes of the L2 cache for the repeated forward of a sample; longer sequences go segment by segment.
constexpr int64_t kScratchBytes = 512 << 10;

// Vectors that the repeated forward leaves of a vector of neurons at one step, as in scan.cpp; what is left of a
// refractory time comes behind them.
template <int K, bool Next, bool WithStates>
constexpr int64_t kSaved = K + (Next ? 1 : 0) + (WithStates ? K : 0);

// A sample backwards; its run is not inlined, as in the forward pass.
template <class S, int K, bool Next, bool Learn, bool Quadratic, bool Usual>
class Backward {
  using V = StateVector<S>;
  // Gradients of constants and of products ask for the states before a step.
  static constexpr bool kStates = Learn || Quadratic;
  static constexpr int64_t L = Simd<S>::kLanes, kFirst = kSaved<K, Next, kStates>;

 public:
  SNNLIB_NOINLINE void run(const RecurrentBackwardArgs& args, const LateConnections<S>& connections, int64_t sample) {
    a_ = &args, n_ = sample;
    count_ = args.view.inner, vectors_ = (count_ + L - 1) / L;
    values_ = kFirst + (flags_of<Usual>(args).refractory != 0);
    const int64_t steps = steps_of(args, sample), fit = kScratchBytes / (values_ * vectors_ * int64_t(sizeof(V)));
    // Where few steps fit, so many that what is left of a segment takes as much as what the segments start from.
    const int64_t even = int64_t(std::ceil(std::sqrt(double(steps))));
    const int64_t segment = fit < even ? even : fit, segments = (steps + segment - 1) / segment;
    begin();
    if (args.delays.delay) delayed_.start(args, connections, steps);
    block_.load(args, own_of(args), sample, 0, count_);
    LinearState<K, V>* starts = starts_.reserve(segments * vectors_);
    const int64_t most = steps < segment ? steps : segment;
    saved_.reserve(most * vectors_ * values_), active_.reserve(most * vectors_);
    for (int64_t s = 0; s < segments; ++s) {
      std::memcpy(static_cast<void*>(starts + s * vectors_), block_.states.data(), size_t(vectors_) * sizeof *starts);
      if (s + 1 < segments) walk_parts<false>(s * segment, (s + 1) * segment);
    }
    for (int64_t s = segments; s-- > 0;) {
      std::memcpy(static_cast<void*>(block_.states.data()), starts + s * vectors_, size_t(vectors_) * sizeof *starts);
      const int64_t end = (s + 1) * segment < steps ? (s + 1) * segment : steps;
      walk_parts<true>(s * segment, end);
      for (int64_t t = end; t-- > s * segment;) back(t, t - s * segment, t + 1 < steps);
    }
    for (int64_t t = steps; t < args.view.steps; ++t) {
      S* grad = static_cast<S*>(args.grad_current) + args.view.offset(sample, t, 0);
      std::memset(grad, 0, size_t(count_) * sizeof(S));
    }
    finish(steps);
  }

 private:
  // The adjoint after the last step.
  void begin() {
    carry_.reserve(vectors_), sum_.zeroed(Learn ? vectors_ : 1);
    const int64_t row = by_rows(*a_) ? vectors_ * L : a_->row;
    rows_.signal.zeroed(by_rows(*a_) ? 0 : row), rows_.back.zeroed(row);
    rows_.neurons.reserve(count_ + parts_of(*a_) * kMoreRows);
    for (int64_t i = 0; i < vectors_; ++i) {
      const int64_t lanes = count_ - i * L < L ? count_ - i * L : L;
      for (int s = 0; s < K + Next; ++s) {
        const S* from = state_row<S>(*a_, a_->grad_state_out, s, n_);
        (s < K ? carry_.data()[i].g[s < K ? s : 0] : carry_.data()[i].qs) =
            from ? load_lanes<S>(from + i * L, lanes) : V{};
      }
      if (!Next) carry_.data()[i].qs = V{};
    }
    const S* spikes = a_->delays.delay ? nullptr : state_row<S>(*a_, a_->grad_state_out, K + added_rows(a_->flags), n_);
    if (spikes) std::memcpy(rows_.back.data(), spikes, size_t(count_) * sizeof(S));
  }

  // Steps forward by the sums of currents on record; what the adjoint needs of them is saved where Keep.
  template <bool Keep>
  void walk_parts(int64_t first, int64_t end) {
    for_parts(*a_, vectors_, [&](int64_t, int64_t from, int64_t to) { walk<Keep>(first, end, from, to); });
  }

  // Vectors of neurons from `from` up to `to`.
  template <bool Keep>
  SNNLIB_NOINLINE void walk(int64_t first, int64_t end, int64_t from, int64_t to) {
    const LinearFlags flags = flags_of<Usual>(*a_);
    for (int64_t t = first; t < end; ++t) {
      const S* total = static_cast<const S*>(a_->current) + a_->view.offset(n_, t, 0);
      if (t + kAhead < end && count_ <= kFewNeurons)
        prefetch(total + kAhead * a_->view.step_stride + from * L, (to - from) * L);
      V* keep = saved_.data() + ((t - first) * vectors_ + from) * values_;
      for (int64_t i = from; i < to; ++i) {
        LinearState<K, V> state = load_state<Next>(block_.states.data()[i], flags);
        if (Keep && Next) keep[K] = state.fired;
        for (int s = 0; Keep && kStates && s < K; ++s) keep[K + Next + s] = state.y[s];
        if (Keep && flags.refractory) keep[kFirst] = state.left;
        const auto out = linear_step<K, Next, Quadratic>(state, current(total, i), block_.of(i), flags, S(1));
        for (int s = 0; Keep && s < K; ++s) keep[s] = out.raw[s];
        if (Keep) {
          const V level = linear_level<K>(out.h, block_.of(i));
          V slope = linear_slope<K>(linear_distance<K>(level, block_.of(i), flags, S(1)), block_.of(i), flags, S(1));
          // A neuron that rests reads nothing that comes back to it.
          if (flags.refractory) slope = keep[kFirst] == V{} ? slope : V{};
          active_.data()[(t - first) * vectors_ + i] = nonzero_bits<S>(slope);
          keep += values_;
        }
        store_state<Next>(state, block_.states.data()[i], flags);
      }
    }
  }

  V current(const S* total, int64_t i) const {
    return load_lanes<S>(total + i * L, count_ - i * L < L ? count_ - i * L : L);
  }

  LinearSeen<K, V> seen(int64_t kept, int64_t i, const S* total) const {
    const V* keep = saved_.data() + (kept * vectors_ + i) * values_;
    LinearSeen<K, V> out;
    for (int s = 0; s < K; ++s) out.raw[s] = keep[s];
    if (Next) out.fired_before = keep[K];
    if constexpr (kStates) {
      for (int s = 0; s < K; ++s) out.y[s] = keep[K + Next + s];
      out.x = current(total, i);
    }
    if (flags_of<Usual>(*a_).refractory) out.left = keep[kFirst];
    return out;
  }

  // W^T dL/dI of the next step, or of later ones, for the neurons of some vectors whose surrogate is not zero at this
  // step.
  void back_through_weights(int64_t t, int64_t kept, int64_t part, int64_t from, int64_t to) {
    std::memset(rows_.back.data() + from * L, 0, size_t((to - from) * L) * sizeof(S));
    int32_t* neurons = rows_.neurons.data() + from * L + part * kMoreRows;
    const uint32_t* active = active_.data() + kept * vectors_;
    int64_t found = 0;
    for (int64_t i = from; i < to; ++i) {
      const int64_t left = count_ - i * L;
      const uint32_t bits = active[i] & (~uint32_t(0) >> (32 - (left < L ? left : L)));
      found += append_numbers<S>(i * L, bits, neurons + found);
    }
    a_->delays.delay ? delayed_.see(t, neurons, found, rows_.back.data()) : multiply(neurons, found);
  }

  void multiply(int32_t* neurons, int64_t count) {
    if (a_->starts) return rows_times(rows_of<S>(*a_), neurons, count, signal_, rows_.back.data());
    rows_times(neurons, count, static_cast<const S*>(a_->weight), a_->row, rows_.signal.data(), rows_.back.data());
  }

  void back(int64_t t, int64_t kept, bool has_next) {
    S* out = static_cast<S*>(a_->grad_current) + a_->view.offset(n_, t, 0);
    for_parts(*a_, vectors_,
              [&](int64_t part, int64_t from, int64_t to) { back_part(t, kept, has_next, part, from, to); });
    if (by_rows(*a_)) {
      signal_ = out;
    } else {
      a_->delays.delay ? delayed_.keep(t, out)
                       : void(std::memcpy(rows_.signal.data(), out, size_t(count_) * sizeof(S)));
    }
    if (!a_->spikes_back) std::memset(rows_.back.data(), 0, size_t(count_) * sizeof(S));
  }

  SNNLIB_NOINLINE void back_part(int64_t t, int64_t kept, bool has_next, int64_t part, int64_t from, int64_t to) {
    const LinearFlags flags = flags_of<Usual>(*a_);
    const int64_t at = a_->view.offset(n_, t, 0);
    if (has_next && a_->spikes_back) back_through_weights(t, kept, part, from, to);
    const S* total = static_cast<const S*>(a_->current) + at;
    const S* grad = static_cast<const S*>(a_->grad_value) + at;
    S* out = static_cast<S*>(a_->grad_current) + at;
    if (t >= kAhead && count_ <= kFewNeurons) {
      prefetch(grad - kAhead * a_->view.step_stride + from * L, (to - from) * L);
      prefetch(out - kAhead * a_->view.step_stride + from * L, (to - from) * L);
    }
    for (int64_t i = from; i < to; ++i) {
      const int64_t lanes = count_ - i * L < L ? count_ - i * L : L;
      const V q = load_lanes<S>(grad + i * L, lanes) + load_lanes<S>(rows_.back.data() + i * L, L);
      LinearCarry<K, V> carry = carry_.data()[i];
      const V grad_x = linear_back<K, Next, Learn, Quadratic>(carry, q, seen(kept, i, total), block_.of(i), flags, S(1),
                                                              sum_.data()[Learn ? i : 0]);
      carry_.data()[i] = carry;
      store_lanes<S>(out + i * L, grad_x, lanes);
    }
  }

  // The gradients of the state before the first step and of the coefficients.
  void finish(int64_t steps) {
    const int64_t all = a_->view.outer * count_;
    for (int64_t i = 0; i < vectors_; ++i) {
      const int64_t lanes = count_ - i * L < L ? count_ - i * L : L;
      const LinearCarry<K, V>& carry = carry_.data()[i];
      for (int s = 0; s < K; ++s)
        store_lanes<S>(state_row<S>(*a_, a_->grad_state_in, s, n_) + i * L, carry.g[s], lanes);
      if (Next) store_lanes<S>(state_row<S>(*a_, a_->grad_state_in, K, n_) + i * L, carry.qs, lanes);
      if (a_->flags.refractory) store_lanes<S>(state_row<S>(*a_, a_->grad_state_in, K + Next, n_) + i * L, V{}, lanes);
      if (Learn) {
        S* grads = static_cast<S*>(a_->grad_coefficients) + n_ * count_ + i * L;
        for (int64_t row = 0; row < LinearRows<K>::count; ++row)
          store_lanes<S>(grads + row * all, sum_.data()[i].row[row], lanes);
      }
    }
    int32_t* every = rows_.neurons.data();
    for (int64_t j = 0; j < count_; ++j) every[j] = int32_t(j);
    if (a_->delays.delay) return finish_delayed(every);
    if (a_->starts && !a_->state_in) {
      // Nobody asks for those of spikes before the first step.
      std::memset(rows_.back.data(), 0, size_t(count_) * sizeof(S));
    } else if (steps && a_->spikes_back) {
      multiply(every, count_);
    }
    std::memcpy(state_row<S>(*a_, a_->grad_state_in, K + added_rows(a_->flags), n_), rows_.back.data(),
                size_t(count_) * sizeof(S));
  }

  // The gradients of the spikes before the first step.
  void finish_delayed(const int32_t* every) {
    const S* silent = rows_.signal.zeroed(a_->row);
    for (int64_t ago = 1; a_->state_in && ago <= a_->delays.longest + 2; ++ago) {
      S* out = state_row<S>(*a_, a_->grad_state_in, K + added_rows(a_->flags) + ago - 1, n_);
      if (a_->spikes_back) {
        if (ago > 1) delayed_.keep(1 - ago, silent);
        delayed_.see(-ago, every, count_, out);
      } else {
        std::memset(out, 0, size_t(count_) * sizeof(S));
      }
    }
  }

  const RecurrentBackwardArgs* a_ = nullptr;
  int64_t n_ = 0, count_ = 0, vectors_ = 0, values_ = kFirst;
  LinearBlock<S, K> block_;
  Scratch<LinearState<K, V>> starts_;
  Scratch<V> saved_;
  Scratch<uint32_t> active_;
  Scratch<LinearCarry<K, V>> carry_;
  Scratch<LinearCoefficients<K, V>> sum_;
  SampleRows<S> rows_;
  // dL/dI of the next step, with sparse connections.
  const S* signal_ = nullptr;
  DelayedSignals<S> delayed_;
};

// Calls f(spikes, dL/dI of the next step) of step `t` before a sample's end, if there are spikes.
template <class S, class F>
void with_spikes(const RecurrentBackwardArgs& a, int states, int64_t t, int64_t n, const F& f) {
  if (t >= steps_of(a, n)) return;
  const S* spikes =
      t ? static_cast<const S*>(a.value) + a.view.offset(n, t - 1, 0) : state_row<S>(a, a.state_in, states, n);
  if (spikes) f(spikes, static_cast<const S*>(a.grad_current) + a.view.offset(n, t, 0));
}

// dL/dW; `states` of a neuron lie before the spikes in its state.
template <class S>
void weight_gradient(const RecurrentBackwardArgs& a, int states) {
  const int64_t count = a.view.inner, batch = a.view.outer, frames = a.view.steps * batch;
  if (a.starts) {
    return sparse_weight_gradient(
        rows_of<S>(a), frames, a.executor.threads(), static_cast<S*>(a.grad_weight),
        [&](int64_t frame, const auto& add) { with_spikes<S>(a, states, frame / batch, frame % batch, add); });
  }
  OuterProducts<S> products(count, count, a.executor.threads());
  for (int64_t frame = 0; frame < frames; ++frame) {
    with_spikes<S>(a, states, frame / batch, frame % batch,
                   [&](const S* spikes, const S* signal) { products.add(spikes, signal); });
  }
  products.store(static_cast<S*>(a.grad_weight), a.row);
}

template <class S, int K, bool Next, bool Learn, bool Quadratic>
void walk_back(const RecurrentBackwardArgs& a) {
  const LateConnections<S> connections(a);
  const auto run = [&](auto as_usual) {
    for_samples(a, [&](int64_t n) {
      thread_local Backward<S, K, Next, Learn, Quadratic, decltype(as_usual)::value> backward;
      of_thread(backward).run(a, connections, n);
    });
  };
  if constexpr (kHasUsual<S, K, Next> && !Learn && !Quadratic) {
    if (is_usual_here(a.flags)) return run(std::true_type());
  }
  run(std::false_type());
}

template <class S, int K, bool Next, bool Learn, bool Quadratic = false>
void backward_with(const RecurrentBackwardArgs& a) {
  walk_back<S, K, Next, Learn, Quadratic>(a);
  if (a.grad_weight) weight_gradient<S>(a, K + added_rows(a.flags));
}

template <class S, int K>
void backward_states(const RecurrentBackwardArgs& a) {
  if constexpr (K > 1) {
    if (a.flags.quadratic) {
      return a.grad_coefficients ? backward_with<S, K, false, true, true>(a)
                                 : backward_with<S, K, false, false, true>(a);
    }
  }
  if (a.grad_coefficients) {
    a.flags.reset_next ? backward_with<S, K, true, true>(a) : backward_with<S, K, false, true>(a);
  } else {
    a.flags.reset_next ? backward_with<S, K, true, false>(a) : backward_with<S, K, false, false>(a);
  }
}

template <class S>
void backward_type(const RecurrentBackwardArgs& a) {
  if (a.states == 1) return backward_states<S, 1>(a);
  if (a.states == 2) return backward_states<S, 2>(a);
  backward_states<S, 3>(a);
}

}  // namespace

void recurrent_backward(const RecurrentBackwardArgs& a) {
  if (!a.view.inner) return;
  by_state(a.dtype, a, portable::recurrent_kernels.backward, [&](auto zero) { backward_type<decltype(zero)>(a); });
}

void sparse_recurrent_backward(const SparseRecurrent<RecurrentBackwardArgs>& a) {
  if (!a.view.inner) return;
  by_state(a.dtype, a, portable::sparse_kernels.recurrent_backward,
           [&](auto zero) { backward_type<decltype(zero)>(a); });
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
