// Recurrent neurons of the linear family on the CPU. A sample walks through all its time steps on one thread: a spike
// adds its row of weights to the next step's currents; backwards, W^T dL/dI is summed only for neurons whose surrogate
// is not zero. The weight gradient follows by spikes, in one order for each neuron that a weight leads from.
#include "snnlib/recurrent.h"

#include <type_traits>

#include "snnlib/kernels/linear_block.h"
#include "snnlib/kernels/outer_products.h"
#include "snnlib/kernels/recurrent_delays.h"
#include "snnlib/kernels/recurrent_rows.h"
#include "snnlib/parallel.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

// What the repeated forward of a sample may occupy in the L2 cache; longer sequences go segment by segment.
constexpr int64_t kScratchBytes = 512 << 10;

// How many steps ahead rows are fetched, those that are written too: one step takes about as long as one fetch, and
// steps of a sample lie too far apart for the processor to foresee.
constexpr int64_t kAhead = 2;

int64_t steps_of(const RecurrentArgs& a, int64_t n) { return a.lengths ? a.lengths[n] : a.view.steps; }

// The options of the default neuron, as constants: a step asks for each of them, and the surrogates that need a call
// would keep its coefficients out of the registers.
template <class S, int K, bool Next>
constexpr bool kHasUsual = std::is_same_v<S, float> && K < 3 && !Next;

bool is_usual_here(const LinearFlags& flags) { return is_usual(flags) && flags.surrogate == SurrogateKind::kTriangle; }

template <bool Usual>
LinearFlags flags_of(const RecurrentArgs& a) {
  return Usual ? usual_flags(SurrogateKind::kTriangle) : a.flags;
}

Own own_of(const RecurrentArgs& a) { return a.period == 1 ? Own::kNothing : Own::kAll; }

// Room of one thread for rows of one sample.
template <class S>
struct Rows {
  Scratch<S> sum, signal, back, amounts;
  Scratch<int32_t> neurons;

  Fired<S> fired(int64_t most) { return {neurons.reserve(most + kMoreEvents), amounts.reserve(most + kMoreEvents), 0}; }
};

template <class S>
const S* state_row(const RecurrentArgs& a, const void* state, int64_t number, int64_t n) {
  const int64_t neurons = a.view.inner;
  return state ? static_cast<const S*>(state) + (number * a.view.outer + n) * neurons : nullptr;
}

template <class S>
S* state_row(const RecurrentArgs& a, void* state, int64_t number, int64_t n) {
  return static_cast<S*>(state) + (number * a.view.outer + n) * a.view.inner;
}

// The row with zeros behind it.
template <class S>
void copy_padded(const S* from, int64_t count, int64_t padded_count, S* to) {
  std::memcpy(to, from, size_t(count) * sizeof(S));
  for (int64_t i = count; i < padded_count; ++i) to[i] = S(0);
}

// One sample forward. Runs are not inlined, as loops that knew this to be an object of the thread would ask for its
// address in every turn: a call that spills all registers.
template <class S, int K, bool Next, bool Quadratic, bool Usual>
class Forward {
  using V = StateVector<S>;
  static constexpr int64_t L = Simd<S>::kLanes;

 public:
  SNNLIB_NOINLINE void run(const RecurrentForwardArgs& a, const LateConnections<S>& connections, int64_t n) {
    const int64_t count = a.view.inner, steps = steps_of(a, n);
    const bool late = a.delays.delay;
    const S* weight = static_cast<const S*>(a.weight);
    block_.load(a, own_of(a), n, 0, count);
    S* sum = rows_.sum.reserve(a.row);
    Fired<S> fired = rows_.fired(count);
    const S* before = state_row<S>(a, a.state_in, K + Next, n);
    if (late) arriving_.start(a, connections, before, a.view.outer * count, fired);
    if (before && !late) fired.count = append_row(before, count, fired.neuron, fired.amount);
    for (int64_t t = 0; t < steps; ++t) {
      const int64_t at = a.view.offset(n, t, 0);
      const S* current = static_cast<const S*>(a.current) + at;
      if (t + kAhead < steps) {
        const int64_t later = at + kAhead * a.view.step_stride;
        prefetch(static_cast<const S*>(a.current) + later, count);
        prefetch(static_cast<const S*>(a.value) + later, count);
        if (a.total) prefetch(static_cast<const S*>(a.total) + later, count);
      }
      copy_padded(current, count, a.row, sum);
      late ? arriving_.add(t, sum) : add_rows(fired, weight, a.row, sum);
      if (a.total) std::memcpy(static_cast<S*>(a.total) + at, sum, size_t(count) * sizeof(S));
      fired.count = 0;
      step(flags_of<Usual>(a), sum, count, static_cast<S*>(a.value) + at, fired);
      if (late) arriving_.send(t, fired);
    }
    for (int64_t t = steps; t < a.view.steps; ++t) {
      const int64_t at = a.view.offset(n, t, 0);
      std::memset(static_cast<S*>(a.value) + at, 0, size_t(count) * sizeof(S));
      if (a.total) std::memset(static_cast<S*>(a.total) + at, 0, size_t(count) * sizeof(S));
    }
    finish(a, n, steps ? static_cast<const S*>(a.value) + a.view.offset(n, steps - 1, 0) : before);
  }

 private:
  void step(const LinearFlags& flags, const S* sum, int64_t count, S* value, Fired<S>& fired) {
    LinearState<K, V>* states = block_.states.data();
    for (int64_t i = 0; i < count; i += L) {
      LinearState<K, V> state = states[i / L];
      const auto out = linear_step<K, Next, Quadratic>(state, load_lanes<S>(sum + i, L), block_.of(i / L), flags, S(1));
      states[i / L] = state;
      const int64_t lanes = count - i < L ? count - i : L;
      store_lanes<S>(value + i, out.spike, lanes);
      // Lanes behind the last neuron count for nothing.
      const uint32_t bits = nonzero_bits<S>(out.spike) & (~uint32_t(0) >> (32 - lanes));
      fired.count += append_events<S>(i, out.spike, bits, fired.neuron + fired.count, fired.amount + fired.count);
    }
  }

  void finish(const RecurrentForwardArgs& a, int64_t n, const S* last) {
    const int64_t count = a.view.inner;
    for (int64_t i = 0; i < count; i += L) {
      const int64_t lanes = count - i < L ? count - i : L;
      const auto& state = block_.states.data()[i / L];
      for (int s = 0; s < K; ++s) store_lanes<S>(state_row<S>(a, a.state_out, s, n) + i, state.y[s], lanes);
      if (Next) store_lanes<S>(state_row<S>(a, a.state_out, K, n) + i, state.fired, lanes);
    }
    if (a.delays.delay) return;
    S* to = state_row<S>(a, a.state_out, K + Next, n);
    last ? std::memcpy(to, last, size_t(count) * sizeof(S)) : std::memset(to, 0, size_t(count) * sizeof(S));
  }

  LinearBlock<S, K> block_;
  Rows<S> rows_;
  ArrivingCurrents<S> arriving_;
};

// Vectors that the repeated forward leaves of a vector of neurons at one step, as in scan.cpp.
template <int K, bool Next, bool WithStates>
constexpr int64_t kSaved = K + (Next ? 1 : 0) + (WithStates ? K : 0);

// One sample backwards; its run is not inlined either.
template <class S, int K, bool Next, bool Learn, bool Quadratic, bool Usual>
class Backward {
  using V = StateVector<S>;
  // Gradients of constants and of products ask for the states before a step.
  static constexpr bool kStates = Learn || Quadratic;
  static constexpr int64_t L = Simd<S>::kLanes, kKept = kSaved<K, Next, kStates>;

 public:
  SNNLIB_NOINLINE void run(const RecurrentBackwardArgs& args, const LateConnections<S>& connections, int64_t sample) {
    a_ = &args, n_ = sample;
    count_ = args.view.inner, vectors_ = (count_ + L - 1) / L;
    const int64_t steps = steps_of(args, sample), fit = kScratchBytes / (kKept * vectors_ * int64_t(sizeof(V)));
    const int64_t segment = fit < 1 ? 1 : fit, segments = (steps + segment - 1) / segment;
    begin();
    if (args.delays.delay) late_.start(args, connections, steps);
    block_.load(args, own_of(args), sample, 0, count_);
    LinearState<K, V>* starts = starts_.reserve(segments * vectors_);
    const int64_t most = steps < segment ? steps : segment;
    saved_.reserve(most * vectors_ * kKept), active_.reserve(most * vectors_);
    for (int64_t s = 0; s < segments; ++s) {
      std::memcpy(static_cast<void*>(starts + s * vectors_), block_.states.data(), size_t(vectors_) * sizeof *starts);
      if (s + 1 < segments) walk<false>(s * segment, (s + 1) * segment);
    }
    for (int64_t s = segments; s-- > 0;) {
      std::memcpy(static_cast<void*>(block_.states.data()), starts + s * vectors_, size_t(vectors_) * sizeof *starts);
      const int64_t end = (s + 1) * segment < steps ? (s + 1) * segment : steps;
      walk<true>(s * segment, end);
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
    rows_.signal.zeroed(a_->row), rows_.back.zeroed(a_->row);
    rows_.neurons.reserve(count_ + kMoreRows);
    for (int64_t i = 0; i < vectors_; ++i) {
      const int64_t lanes = count_ - i * L < L ? count_ - i * L : L;
      for (int s = 0; s < K + Next; ++s) {
        const S* from = state_row<S>(*a_, a_->grad_state_out, s, n_);
        (s < K ? carry_.data()[i].g[s < K ? s : 0] : carry_.data()[i].qs) =
            from ? load_lanes<S>(from + i * L, lanes) : V{};
      }
      if (!Next) carry_.data()[i].qs = V{};
    }
    const S* spikes = a_->delays.delay ? nullptr : state_row<S>(*a_, a_->grad_state_out, K + Next, n_);
    if (spikes) std::memcpy(rows_.back.data(), spikes, size_t(count_) * sizeof(S));
  }

  // Steps forward by the sums of currents on record; what the adjoint needs of them is saved where Keep.
  template <bool Keep>
  void walk(int64_t first, int64_t end) {
    const LinearFlags flags = flags_of<Usual>(*a_);
    V* keep = saved_.data();
    for (int64_t t = first; t < end; ++t) {
      const S* total = static_cast<const S*>(a_->current) + a_->view.offset(n_, t, 0);
      if (t + kAhead < end) prefetch(total + kAhead * a_->view.step_stride, count_);
      for (int64_t i = 0; i < vectors_; ++i) {
        LinearState<K, V> state = block_.states.data()[i];
        if (Keep && Next) keep[K] = state.fired;
        for (int s = 0; Keep && kStates && s < K; ++s) keep[K + Next + s] = state.y[s];
        const auto out = linear_step<K, Next, Quadratic>(state, current(total, i), block_.of(i), flags, S(1));
        for (int s = 0; Keep && s < K; ++s) keep[s] = out.raw[s];
        if (Keep) {
          const V slope = linear_slope<K>(linear_distance<K>(out.h, block_.of(i)), block_.of(i), flags, S(1));
          active_.data()[(t - first) * vectors_ + i] = nonzero_bits<S>(slope);
          keep += kKept;
        }
        block_.states.data()[i] = state;
      }
    }
  }

  V current(const S* total, int64_t i) const {
    return load_lanes<S>(total + i * L, count_ - i * L < L ? count_ - i * L : L);
  }

  LinearSeen<K, V> seen(int64_t kept, int64_t i, const S* total) const {
    const V* keep = saved_.data() + (kept * vectors_ + i) * kKept;
    LinearSeen<K, V> out;
    for (int s = 0; s < K; ++s) out.raw[s] = keep[s];
    if (Next) out.fired_before = keep[K];
    if constexpr (kStates) {
      for (int s = 0; s < K; ++s) out.y[s] = keep[K + Next + s];
      out.x = current(total, i);
    }
    return out;
  }

  // W^T dL/dI of the next step, or of later ones, for the neurons whose surrogate is not zero at this one.
  void back_through_weights(int64_t t, int64_t kept) {
    std::memset(rows_.back.data(), 0, size_t(a_->row) * sizeof(S));
    int32_t* neurons = rows_.neurons.data();
    const uint32_t* active = active_.data() + kept * vectors_;
    int64_t found = 0;
    for (int64_t i = 0; i < vectors_; ++i) {
      const int64_t left = count_ - i * L;
      const uint32_t bits = active[i] & (~uint32_t(0) >> (32 - (left < L ? left : L)));
      found += append_numbers<S>(i * L, bits, neurons + found);
    }
    a_->delays.delay ? late_.see(t, neurons, found, rows_.back.data()) : multiply(neurons, found);
  }

  void multiply(int32_t* neurons, int64_t count) {
    rows_times(neurons, count, static_cast<const S*>(a_->weight), a_->row, rows_.signal.data(), rows_.back.data());
  }

  void back(int64_t t, int64_t kept, bool has_next) {
    const LinearFlags flags = flags_of<Usual>(*a_);
    const int64_t at = a_->view.offset(n_, t, 0);
    if (has_next && flags.through_time) back_through_weights(t, kept);
    const S* total = static_cast<const S*>(a_->current) + at;
    const S* grad = static_cast<const S*>(a_->grad_value) + at;
    S* out = static_cast<S*>(a_->grad_current) + at;
    if (t >= kAhead) {
      prefetch(grad - kAhead * a_->view.step_stride, count_);
      prefetch(out - kAhead * a_->view.step_stride, count_);
    }
    for (int64_t i = 0; i < vectors_; ++i) {
      const int64_t lanes = count_ - i * L < L ? count_ - i * L : L;
      const V q = load_lanes<S>(grad + i * L, lanes) + load_lanes<S>(rows_.back.data() + i * L, L);
      LinearCarry<K, V> carry = carry_.data()[i];
      const V grad_x = linear_back<K, Next, Learn, Quadratic>(carry, q, seen(kept, i, total), block_.of(i), flags, S(1),
                                                              sum_.data()[Learn ? i : 0]);
      carry_.data()[i] = carry;
      store_lanes<S>(out + i * L, grad_x, lanes);
    }
    a_->delays.delay ? late_.keep(t, out) : void(std::memcpy(rows_.signal.data(), out, size_t(count_) * sizeof(S)));
    if (!flags.through_time) std::memset(rows_.back.data(), 0, size_t(a_->row) * sizeof(S));
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
      if (Learn) {
        S* grads = static_cast<S*>(a_->grad_coefficients) + n_ * count_ + i * L;
        for (int64_t row = 0; row < LinearRows<K>::count; ++row)
          store_lanes<S>(grads + row * all, sum_.data()[i].row[row], lanes);
      }
    }
    int32_t* every = rows_.neurons.data();
    for (int64_t j = 0; j < count_; ++j) every[j] = int32_t(j);
    if (a_->delays.delay) return finish_late(every);
    if (steps && a_->flags.through_time) multiply(every, count_);
    std::memcpy(state_row<S>(*a_, a_->grad_state_in, K + Next, n_), rows_.back.data(), size_t(count_) * sizeof(S));
  }

  // The gradients of the spikes before the first step.
  void finish_late(const int32_t* every) {
    const S* silent = rows_.signal.zeroed(a_->row);
    for (int64_t ago = 1; a_->state_in && ago <= a_->delays.longest + 2; ++ago) {
      S* out = state_row<S>(*a_, a_->grad_state_in, K + Next + ago - 1, n_);
      if (a_->flags.through_time) {
        if (ago > 1) late_.keep(1 - ago, silent);
        late_.see(-ago, every, count_, out);
      } else {
        std::memset(out, 0, size_t(count_) * sizeof(S));
      }
    }
  }

  const RecurrentBackwardArgs* a_ = nullptr;
  int64_t n_ = 0, count_ = 0, vectors_ = 0;
  LinearBlock<S, K> block_;
  Scratch<LinearState<K, V>> starts_;
  Scratch<V> saved_;
  Scratch<uint32_t> active_;
  Scratch<LinearCarry<K, V>> carry_;
  Scratch<LinearCoefficients<K, V>> sum_;
  Rows<S> rows_;
  LateSignals<S> late_;
};

// dL/dW of the weights that lead from neurons `first` to `first + sources`.
template <class S>
void weight_gradient(const RecurrentBackwardArgs& a, int states, int64_t first, int64_t sources) {
  const int64_t count = a.view.inner;
  S* grad = static_cast<S*>(a.grad_weight) + first * a.row;
  OuterProducts<S> products(sources, count);
  for (int64_t t = 0; t < a.view.steps; ++t) {
    for (int64_t n = 0; n < a.view.outer; ++n) {
      if (t >= steps_of(a, n)) continue;
      const S* spikes =
          t ? static_cast<const S*>(a.value) + a.view.offset(n, t - 1, 0) : state_row<S>(a, a.state_in, states, n);
      if (!spikes) continue;
      const S* signal = static_cast<const S*>(a.grad_current) + a.view.offset(n, t, 0);
      products.add(spikes + first, signal);
    }
  }
  products.store(grad, a.row);
}

template <class S, int K, bool Next, bool Quadratic = false>
void forward_with(const RecurrentForwardArgs& a) {
  const LateConnections<S> connections(a);
  const auto run = [&](auto as_usual) {
    parallel_for(a.view.outer, a.executor.threads(), [&](int64_t n) {
      thread_local Forward<S, K, Next, Quadratic, decltype(as_usual)::value> forward;
      forward.run(a, connections, n);
    });
  };
  if constexpr (kHasUsual<S, K, Next> && !Quadratic) {
    if (is_usual_here(a.flags)) return run(std::true_type());
  }
  run(std::false_type());
}

template <class S, int K, bool Next, bool Learn, bool Quadratic>
void walk_back(const RecurrentBackwardArgs& a) {
  const LateConnections<S> connections(a);
  const auto run = [&](auto as_usual) {
    parallel_for(a.view.outer, a.executor.threads(), [&](int64_t n) {
      thread_local Backward<S, K, Next, Learn, Quadratic, decltype(as_usual)::value> backward;
      backward.run(a, connections, n);
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
  if (!a.grad_weight) return;
  for_sources(a.view.inner, a.executor.threads(),
              [&](int64_t first, int64_t sources) { weight_gradient<S>(a, K + Next, first, sources); });
}

template <class S, int K>
void forward_states(const RecurrentForwardArgs& a) {
  if constexpr (K > 1) {
    if (a.flags.quadratic) return forward_with<S, K, false, true>(a);
  }
  a.flags.reset_next ? forward_with<S, K, true>(a) : forward_with<S, K, false>(a);
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
void forward_type(const RecurrentForwardArgs& a) {
  if (a.states == 1) return forward_states<S, 1>(a);
  if (a.states == 2) return forward_states<S, 2>(a);
  forward_states<S, 3>(a);
}

template <class S>
void backward_type(const RecurrentBackwardArgs& a) {
  if (a.states == 1) return backward_states<S, 1>(a);
  if (a.states == 2) return backward_states<S, 2>(a);
  backward_states<S, 3>(a);
}

void forward(const RecurrentForwardArgs& a) {
  if (!a.view.inner) return;
  by_state(a.dtype, a, portable::recurrent_kernels.forward, [&](auto zero) { forward_type<decltype(zero)>(a); });
}

void backward(const RecurrentBackwardArgs& a) {
  if (!a.view.inner) return;
  by_state(a.dtype, a, portable::recurrent_kernels.backward, [&](auto zero) { backward_type<decltype(zero)>(a); });
}

}  // namespace

extern const RecurrentKernels recurrent_kernels = {forward, backward};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
