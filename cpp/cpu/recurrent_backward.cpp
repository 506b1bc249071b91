// Backward of recurrent neurons, of the linear family or of programs, on the CPU. A sample walks through its steps once
// more and then back in time on one thread; W^T dL/dI is summed only for neurons whose surrogate is not zero. The
// weight gradient follows by spikes, in one order for each neuron that a weight leads from.
#include <cmath>
#include <optional>

#include "snnlib/core/threads.h"
#include "snnlib/events/outer_products.h"
#include "snnlib/events/sparse.h"
#include "snnlib/loop/recurrent_sample.h"
#include "snnlib/program/tile.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

// Bytes of the L2 cache for the repeated forward of a sample; longer sequences go segment by segment.
constexpr int64_t kScratchBytes = 512 << 10;

// Vectors that the repeated forward leaves of a vector of neurons at one step, as in scan.cpp; what is left of a
// refractory time comes behind them.
template <int K, bool Next, bool WithStates>
constexpr int64_t kSaved = K + (Next ? 1 : 0) + (WithStates ? K : 0);

// Steps of a segment, of which a sample has room for `fit`. Where few steps fit, so many that what is left of a segment
// takes as much as what the segments start from.
int64_t steps_of_segment(int64_t steps, int64_t fit) {
  const int64_t even = int64_t(std::ceil(std::sqrt(double(steps))));
  return fit < even ? even : fit;
}

// Neurons of the linear family of a sample backwards.
template <class S, int K, bool Next, bool Learn, bool Quadratic, bool Usual>
class LinearSample {
  using V = StateVector<S>;
  // Gradients of constants and of products ask for the states before a step.
  static constexpr bool kStates = Learn || Quadratic;
  static constexpr int64_t L = Simd<S>::kLanes, kFirst = kSaved<K, Next, kStates>;

 public:
  using Args = RecurrentBackwardArgs;

  // The states before the first step and the adjoint after the last one; returns the steps of a segment.
  int64_t start(const Args& args, int64_t sample, int64_t steps) {
    a_ = &args, n_ = sample;
    count_ = args.view.inner, vectors_ = (count_ + L - 1) / L;
    values_ = kFirst + (flags_of<Usual>(args).refractory != 0);
    block_.load(args, own_of(args), sample, 0, count_);
    carry_.reserve(vectors_), sum_.zeroed(Learn ? vectors_ : 1);
    for (int64_t i = 0; i < vectors_; ++i) {
      const int64_t lanes = count_ - i * L < L ? count_ - i * L : L;
      for (int s = 0; s < K + Next; ++s) {
        const S* from = state_row<S>(*a_, a_->grad_state_out, s, n_);
        (s < K ? carry_.data()[i].g[s < K ? s : 0] : carry_.data()[i].qs) =
            from ? load_lanes<S>(from + i * L, lanes) : V{};
      }
      if (!Next) carry_.data()[i].qs = V{};
    }
    const int64_t segment = steps_of_segment(steps, kScratchBytes / (values_ * vectors_ * int64_t(sizeof(V))));
    const int64_t most = steps < segment ? steps : segment;
    starts_.reserve((steps + segment - 1) / segment * vectors_);
    saved_.reserve(most * vectors_ * values_), active_.reserve(most * vectors_);
    return segment;
  }

  // Notes the states before a segment, and takes them again.
  void note(int64_t s) {
    std::memcpy(static_cast<void*>(starts_.data() + s * vectors_), block_.states.data(),
                size_t(vectors_) * sizeof(*starts_.data()));
  }
  void restart(int64_t s) {
    std::memcpy(static_cast<void*>(block_.states.data()), starts_.data() + s * vectors_,
                size_t(vectors_) * sizeof(*starts_.data()));
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

  // Lanes of a vector of neurons whose surrogate is not zero, at a step that is saved.
  uint32_t active(int64_t kept, int64_t i) const { return active_.data()[kept * vectors_ + i]; }

  // A step back for vectors of neurons from `from` up to `to`; `back` is what comes through recurrent spikes.
  void back(int64_t t, int64_t kept, int64_t from, int64_t to, const S* back) {
    const LinearFlags flags = flags_of<Usual>(*a_);
    const int64_t at = a_->view.offset(n_, t, 0);
    const S* total = static_cast<const S*>(a_->current) + at;
    const S* grad = static_cast<const S*>(a_->grad_value) + at;
    S* out = static_cast<S*>(a_->grad_current) + at;
    for (int64_t i = from; i < to; ++i) {
      const int64_t lanes = count_ - i * L < L ? count_ - i * L : L;
      const V q = load_lanes<S>(grad + i * L, lanes) + load_lanes<S>(back + i * L, L);
      LinearCarry<K, V> carry = carry_.data()[i];
      const V grad_x = linear_back<K, Next, Learn, Quadratic>(carry, q, seen(kept, i, total), block_.of(i), flags, S(1),
                                                              sum_.data()[Learn ? i : 0]);
      carry_.data()[i] = carry;
      store_lanes<S>(out + i * L, grad_x, lanes);
    }
  }

  // The gradients of the state before the first step and of the coefficients.
  void finish() {
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
  }

 private:
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

  const Args* a_ = nullptr;
  int64_t n_ = 0, count_ = 0, vectors_ = 0, values_ = kFirst;
  LinearBlock<S, K> block_;
  Scratch<LinearState<K, V>> starts_;
  Scratch<V> saved_;
  Scratch<uint32_t> active_;
  Scratch<LinearCarry<K, V>> carry_;
  Scratch<LinearCoefficients<K, V>> sum_;
};

// Neurons of a program of a sample backwards, as one tile.
template <class S>
class ProgramSample {
  static constexpr int64_t L = Simd<S>::kLanes;

 public:
  using Args = ProgramRecurrentBackwardArgs;

  int64_t start(const Args& args, int64_t sample, int64_t steps) {
    a_ = &args, n_ = sample, width_ = in_units(args.view.inner);
    const int64_t K = args.states, saved = args.flags.saved;
    const int64_t segment = steps_of_segment(steps, kScratchBytes / ((K + saved) * width_ * int64_t(sizeof(S))));
    const int64_t most = steps < segment ? steps : segment, segments = (steps + segment - 1) / segment;
    tile_.emplace(args, width_, n_, 0, args.view.inner, (most + 1) * K + most * saved + segments * K);
    const Places& at = tile_->at;
    for (int k = 0; k < 2 * K; ++k) tile_->tile(at.g + k);
    tile_->load(at.g, int(K), args.grad_state_out);
    current_ = tile_->tile(at.x), grad_ = tile_->tile(at.q), found_ = tile_->tile(at.value);
    tile_->zero(grad_);
    states_ = tile_->rest(), saved_ = states_ + (most + 1) * K * width_, starts_ = saved_ + most * saved * width_;
    tile_->enter(states_, saved_, 0);
    tile_->load(at.y, int(K), args.state_in);
    return segment;
  }

  void note(int64_t s) { std::memcpy(starts_ + s * row(), states_, size_t(row()) * sizeof(S)); }
  void restart(int64_t s) { std::memcpy(states_, starts_ + s * row(), size_t(row()) * sizeof(S)); }

  template <bool Keep>
  void walk(int64_t first, int64_t end, int64_t, int64_t) {
    for (int64_t t = first; t < end; ++t) {
      enter(t, t - first);
      tile_->run(a_->flags.again);
    }
    if (!Keep) std::memcpy(states_, states_ + (end - first) * row(), size_t(row()) * sizeof(S));
  }

  // Programs do not tell which gradients they read.
  uint32_t active(int64_t, int64_t) const { return ~uint32_t(0); }

  void back(int64_t t, int64_t kept, int64_t, int64_t, const S* back) {
    const int64_t at = enter(t, kept), count = a_->view.inner;
    const S* grad = static_cast<const S*>(a_->grad_value) + at;
    for (int64_t i = 0; i < count; i += L)
      store_lanes<S>(grad_ + i, load_lanes<S>(grad + i, count - i) + load_lanes<S>(back + i, L), L);
    tile_->write(a_->flags.back, static_cast<S*>(a_->grad_current) + at, found_, false);
    tile_->swap(tile_->at.g, tile_->at.h);
  }

  void finish() {
    tile_->store(tile_->at.g, a_->states, a_->grad_state_in);
    if (a_->grad_coefficients) tile_->store(tile_->at.sum, a_->flags.learned, a_->grad_coefficients);
  }

 private:
  int64_t row() const { return a_->states * width_; }

  // The registers of a step; returns where it begins in the sequence.
  int64_t enter(int64_t t, int64_t kept) {
    const int64_t at = a_->view.offset(n_, t, 0);
    tile_->enter(states_, saved_, kept);
    tile_->read(tile_->at.x, static_cast<const S*>(a_->current) + at, current_);
    return at;
  }

  const Args* a_ = nullptr;
  int64_t n_ = 0, width_ = 0;
  std::optional<Tile<S>> tile_;
  S *current_ = nullptr, *grad_ = nullptr, *found_ = nullptr, *states_ = nullptr, *saved_ = nullptr, *starts_ = nullptr;
};

// A sample backwards; its run is not inlined, as in the forward pass.
template <class S, class Neurons>
class Backward {
  using Args = typename Neurons::Args;
  static constexpr int64_t L = Simd<S>::kLanes;

 public:
  SNNLIB_NOINLINE void run(const Args& args, const LateConnections<S>& connections, int64_t sample) {
    a_ = &args, n_ = sample;
    count_ = args.view.inner, vectors_ = (count_ + L - 1) / L;
    const int64_t steps = steps_of(args, sample), segment = neurons_.start(args, sample, steps);
    const int64_t segments = (steps + segment - 1) / segment;
    begin();
    if (args.delays.delay) delayed_.start(args, connections, steps);
    for (int64_t s = 0; s < segments; ++s) {
      neurons_.note(s);
      if (s + 1 < segments) walk_parts<false>(s * segment, (s + 1) * segment);
    }
    for (int64_t s = segments; s-- > 0;) {
      neurons_.restart(s);
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
  // Takes dL/dspikes that come back after the last step.
  void begin() {
    const int64_t row = by_rows(*a_) ? vectors_ * L : a_->row;
    rows_.signal.zeroed(by_rows(*a_) ? 0 : row), rows_.back.zeroed(row);
    rows_.neurons.reserve(count_ + parts_of(*a_) * kMoreRows);
    const int64_t place = a_->states + added_rows(a_->flags);
    const S* spikes = a_->delays.delay ? nullptr : state_row<S>(*a_, a_->grad_state_out, place, n_);
    if (spikes) std::memcpy(rows_.back.data(), spikes, size_t(count_) * sizeof(S));
  }

  // Steps forward by the sums of currents on record; what the adjoint needs of them is saved where Keep.
  template <bool Keep>
  void walk_parts(int64_t first, int64_t end) {
    for_parts(*a_, vectors_,
              [&](int64_t, int64_t from, int64_t to) { neurons_.template walk<Keep>(first, end, from, to); });
  }

  // W^T dL/dI of the next step, or of later ones, for the neurons of some vectors whose surrogate is not zero at this
  // step.
  void back_through_weights(int64_t t, int64_t kept, int64_t part, int64_t from, int64_t to) {
    std::memset(rows_.back.data() + from * L, 0, size_t((to - from) * L) * sizeof(S));
    int32_t* neurons = rows_.neurons.data() + from * L + part * kMoreRows;
    int64_t found = 0;
    for (int64_t i = from; i < to; ++i) {
      const int64_t left = count_ - i * L;
      const uint32_t bits = neurons_.active(kept, i) & (~uint32_t(0) >> (32 - (left < L ? left : L)));
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
    if (has_next && a_->spikes_back) back_through_weights(t, kept, part, from, to);
    if (t >= kAhead && count_ <= kFewNeurons) {
      const int64_t before = a_->view.offset(n_, t - kAhead, from * L);
      prefetch(static_cast<const S*>(a_->grad_value) + before, (to - from) * L);
      prefetch(static_cast<S*>(a_->grad_current) + before, (to - from) * L);
    }
    neurons_.back(t, kept, from, to, rows_.back.data());
  }

  // The gradients of the state before the first step and of the coefficients.
  void finish(int64_t steps) {
    neurons_.finish();
    int32_t* every = rows_.neurons.data();
    for (int64_t j = 0; j < count_; ++j) every[j] = int32_t(j);
    if (a_->delays.delay) return finish_delayed(every);
    if (a_->starts && !a_->state_in) {
      // Nobody asks for those of spikes before the first step.
      std::memset(rows_.back.data(), 0, size_t(count_) * sizeof(S));
    } else if (steps && a_->spikes_back) {
      multiply(every, count_);
    }
    std::memcpy(state_row<S>(*a_, a_->grad_state_in, a_->states + added_rows(a_->flags), n_), rows_.back.data(),
                size_t(count_) * sizeof(S));
  }

  // The gradients of the spikes before the first step.
  void finish_delayed(const int32_t* every) {
    const S* silent = rows_.signal.zeroed(a_->row);
    for (int64_t ago = 1; a_->state_in && ago <= a_->delays.longest + 2; ++ago) {
      S* out = state_row<S>(*a_, a_->grad_state_in, a_->states + added_rows(a_->flags) + ago - 1, n_);
      if (a_->spikes_back) {
        if (ago > 1) delayed_.keep(1 - ago, silent);
        delayed_.see(-ago, every, count_, out);
      } else {
        std::memset(out, 0, size_t(count_) * sizeof(S));
      }
    }
  }

  const Args* a_ = nullptr;
  int64_t n_ = 0, count_ = 0, vectors_ = 0;
  Neurons neurons_;
  SampleRows<S> rows_;
  // dL/dI of the next step, with sparse connections.
  const S* signal_ = nullptr;
  DelayedSignals<S> delayed_;
};

// Calls f(spikes, dL/dI of the next step) of step `t` before a sample's end, if there are spikes.
template <class S, class Args, class F>
void with_spikes(const Args& a, int64_t t, int64_t n, const F& f) {
  if (t >= steps_of(a, n)) return;
  const S* spikes = t ? static_cast<const S*>(a.value) + a.view.offset(n, t - 1, 0)
                      : state_row<S>(a, a.state_in, a.states + added_rows(a.flags), n);
  if (spikes) f(spikes, static_cast<const S*>(a.grad_current) + a.view.offset(n, t, 0));
}

// dL/dW.
template <class S, class Args>
void weight_gradient(const Args& a) {
  const int64_t count = a.view.inner, batch = a.view.outer, frames = a.view.steps * batch;
  if (a.starts) {
    return sparse_weight_gradient(
        rows_of<S>(a), frames, a.executor.threads(), static_cast<S*>(a.grad_weight),
        [&](int64_t frame, const auto& add) { with_spikes<S>(a, frame / batch, frame % batch, add); });
  }
  OuterProducts<S> products(count, count, a.executor.threads());
  for (int64_t frame = 0; frame < frames; ++frame) {
    with_spikes<S>(a, frame / batch, frame % batch,
                   [&](const S* spikes, const S* signal) { products.add(spikes, signal); });
  }
  products.store(static_cast<S*>(a.grad_weight), a.row);
}

template <class S, class Neurons>
void backward_samples(const typename Neurons::Args& a) {
  const LateConnections<S> connections(a);
  for_samples(a, [&](int64_t n) {
    thread_local Backward<S, Neurons> backward;
    of_thread(backward).run(a, connections, n);
  });
  if (a.grad_weight) weight_gradient<S>(a);
}

template <class S, int K, bool Next, bool Learn, bool Quadratic = false>
void backward_with(const RecurrentBackwardArgs& a) {
  if constexpr (kHasUsual<S, K, Next> && !Learn && !Quadratic) {
    if (is_usual_here(a.flags)) return backward_samples<S, LinearSample<S, K, Next, Learn, Quadratic, true>>(a);
  }
  backward_samples<S, LinearSample<S, K, Next, Learn, Quadratic, false>>(a);
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

void program_recurrent_backward(const ProgramRecurrentBackwardArgs& a) {
  if (!a.view.inner) return;
  by_state(a.dtype, a, portable::program_kernels.recurrent_backward, [&](auto zero) {
    using S = decltype(zero);
    backward_samples<S, ProgramSample<S>>(a);
  });
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
