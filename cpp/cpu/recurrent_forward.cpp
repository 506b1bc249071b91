// Recurrent neurons of the linear family, or of programs, on the CPU. A sample walks through all its time steps on one
// thread: a spike adds its row of weights to the next step's currents, or to those of later steps where spikes are
// delayed.
#include <optional>

#include "snnlib/core/threads.h"
#include "snnlib/events/sparse.h"
#include "snnlib/loop/recurrent_sample.h"
#include "snnlib/program/tile.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

// Neurons of the linear family of a sample.
template <class S, int K, bool Next, bool Quadratic, bool Usual>
class LinearSample {
  using V = StateVector<S>;
  static constexpr int64_t L = Simd<S>::kLanes;

 public:
  using Args = RecurrentForwardArgs;

  void start(const Args& a, int64_t n) { block_.load(a, own_of(a), n, 0, a.view.inner); }

  // Neurons from `first` up to `count`; `sums` numbers may be read of `sum`, which ends with the last neuron where
  // sparse connections add to a tensor in place.
  void step(const Args& a, const S* sum, int64_t sums, int64_t first, int64_t count, S* value, Fired<S>& fired) {
    const LinearFlags flags = flags_of<Usual>(a);
    LinearState<K, V>* states = block_.states.data();
    for (int64_t i = first; i < count; i += L) {
      LinearState<K, V> state = load_state<Next>(states[i / L], flags);
      const V current = load_lanes<S>(sum + i, sums - i);
      const auto out = linear_step<K, Next, Quadratic>(state, current, block_.of(i / L), flags, S(1));
      store_state<Next>(state, states[i / L], flags);
      const int64_t lanes = count - i < L ? count - i : L;
      store_lanes<S>(value + i, out.spike, lanes);
      // Lanes behind the last neuron count for nothing.
      const uint32_t bits = nonzero_bits<S>(out.spike) & (~uint32_t(0) >> (32 - lanes));
      fired.count += append_events<S>(i, out.spike, bits, fired.neuron + fired.count, fired.amount + fired.count);
    }
  }

  void finish(const Args& a, int64_t n) {
    const int64_t count = a.view.inner;
    for (int64_t i = 0; i < count; i += L) {
      const int64_t lanes = count - i < L ? count - i : L;
      const auto& state = block_.states.data()[i / L];
      for (int s = 0; s < K; ++s) store_lanes<S>(state_row<S>(a, a.state_out, s, n) + i, state.y[s], lanes);
      if (Next) store_lanes<S>(state_row<S>(a, a.state_out, K, n) + i, state.fired, lanes);
      if (a.flags.refractory) store_lanes<S>(state_row<S>(a, a.state_out, K + Next, n) + i, state.left, lanes);
    }
  }

 private:
  LinearBlock<S, K> block_;
};

// Neurons of a program of a sample, as one tile.
template <class S>
class ProgramSample {
 public:
  using Args = ProgramRecurrentForwardArgs;

  void start(const Args& a, int64_t n) {
    tile_.emplace(a, in_units(a.view.inner), n, 0, a.view.inner, 0);
    const Places& at = tile_->at;
    for (int k = 0; k < 2 * a.states; ++k) tile_->tile(at.y + k);
    tile_->load(at.y, a.states, a.state_in);
    current_ = tile_->tile(at.x), found_ = tile_->tile(at.value);
  }

  void step(const Args& a, const S* sum, int64_t, int64_t, int64_t count, S* value, Fired<S>& fired) {
    tile_->read(tile_->at.x, sum, current_);
    tile_->write(a.flags.forward, value, found_, false);
    tile_->swap(tile_->at.y, tile_->at.z);
    fired.count = append_row(value, count, fired.neuron, fired.amount);
  }

  void finish(const Args& a, int64_t) { tile_->store(tile_->at.y, a.states, a.state_out); }

 private:
  std::optional<Tile<S>> tile_;
  S *current_ = nullptr, *found_ = nullptr;
};

// A sample forward. Runs are not inlined, as loops that knew this to be an object of the thread would ask for its
// address in every turn: a call that spills all registers.
template <class S, class Neurons>
class Forward {
  using Args = typename Neurons::Args;
  static constexpr int64_t L = Simd<S>::kLanes;

 public:
  SNNLIB_NOINLINE void run(const Args& a, const LateConnections<S>& connections, int64_t n) {
    const int64_t count = a.view.inner, steps = steps_of(a, n);
    const bool delayed = a.delays.delay;
    const S* weight = static_cast<const S*>(a.weight);
    neurons_.start(a, n);
    // Sums are taken where they are kept, if rows have no zeros behind them.
    const bool in_place = a.total && (by_rows(a) || a.row == count);
    S* room = rows_.sum.reserve(by_rows(a) ? count : a.row);
    Fired<S> fired = rows_.fired(count);
    const S* before = state_row<S>(a, a.state_in, a.states + added_rows(a.flags), n);
    if (delayed) arriving_.start(a, connections, before, a.view.outer * count, fired);
    if (before && !delayed) fired.count = append_row(before, count, fired.neuron, fired.amount);
    if (by_rows(a)) start_parts(a, fired);
    for (int64_t t = 0; t < steps; ++t) {
      const int64_t at = a.view.offset(n, t, 0);
      const S* current = static_cast<const S*>(a.current) + at;
      if (t + kAhead < steps && count <= kFewNeurons) {
        const int64_t later = at + kAhead * a.view.step_stride;
        prefetch(static_cast<const S*>(a.current) + later, count);
        prefetch(static_cast<const S*>(a.value) + later, count);
        if (a.total) prefetch(static_cast<const S*>(a.total) + later, count);
      }
      S* sum = in_place ? static_cast<S*>(a.total) + at : room;
      if (by_rows(a)) {
        step_by_parts(a, t, current, sum, static_cast<S*>(a.value) + at);
        continue;
      }
      copy_padded(current, count, a.row, sum);
      delayed ? arriving_.add(t, sum) : add_rows(fired, weight, a.row, sum);
      if (a.total && !in_place) std::memcpy(static_cast<S*>(a.total) + at, sum, size_t(count) * sizeof(S));
      fired.count = 0;
      neurons_.step(a, sum, a.row, 0, count, static_cast<S*>(a.value) + at, fired);
      if (delayed) arriving_.send(t, fired);
    }
    for (int64_t t = steps; t < a.view.steps; ++t) {
      const int64_t at = a.view.offset(n, t, 0);
      std::memset(static_cast<S*>(a.value) + at, 0, size_t(count) * sizeof(S));
      if (a.total) std::memset(static_cast<S*>(a.total) + at, 0, size_t(count) * sizeof(S));
    }
    finish(a, n, steps ? static_cast<const S*>(a.value) + a.view.offset(n, steps - 1, 0) : before);
  }

 private:
  // The lists of the parts of the neurons of sparse connections, of this step's spikes and the last one's, which are
  // those of `fired` as a list of the first part.
  void start_parts(const Args& a, const Fired<S>& fired) {
    const int64_t parts = parts_of(a), count = a.view.inner, room = count + parts * kMoreEvents;
    lists_.reserve(2 * parts);
    int32_t* neurons = numbers_.reserve(2 * room);
    S* amounts = amounts_.reserve(2 * room);
    for_parts(a, (count + L - 1) / L, [&](int64_t part, int64_t first, int64_t) {
      const int64_t at = first * L + part * kMoreEvents;
      lists_.data()[part] = {neurons + at, amounts + at, 0};
      lists_.data()[parts + part] = {neurons + room + at, amounts + room + at, 0};
    });
    lists_.data()[parts] = fired;
  }

  // Each part adds the rows of all neurons that fired to its own sums, and makes its step.
  void step_by_parts(const Args& a, int64_t t, const S* current, S* sum, S* value) {
    for_parts(a, (a.view.inner + L - 1) / L, [&](int64_t part, int64_t first, int64_t end) {
      step_part(a, t, part, first * L, end * L < a.view.inner ? end * L : a.view.inner, current, sum, value);
    });
  }

  SNNLIB_NOINLINE void step_part(const Args& a, int64_t t, int64_t part, int64_t first, int64_t end, const S* current,
                                 S* sum, S* value) {
    const int64_t parts = parts_of(a);
    const Fired<S>* last = lists_.data() + (t + 1) % 2 * parts;
    if (end > first) std::memcpy(sum + first, current + first, size_t(end - first) * sizeof(S));
    for (int64_t p = 0; p < parts; ++p) add_rows(rows_of<S>(a), last[p], {first, end, part, parts}, sum);
    Fired<S>& own = lists_.data()[t % 2 * parts + part];
    own.count = 0;
    neurons_.step(a, sum, end, first, end, value, own);
  }

  void finish(const Args& a, int64_t n, const S* last) {
    const int64_t count = a.view.inner;
    neurons_.finish(a, n);
    if (a.delays.delay) return;
    S* to = state_row<S>(a, a.state_out, a.states + added_rows(a.flags), n);
    last ? std::memcpy(to, last, size_t(count) * sizeof(S)) : std::memset(to, 0, size_t(count) * sizeof(S));
  }

  Neurons neurons_;
  SampleRows<S> rows_;
  ArrivingCurrents<S> arriving_;
  Scratch<Fired<S>> lists_;
  Scratch<int32_t> numbers_;
  Scratch<S> amounts_;
};

template <class S, class Neurons>
void forward_samples(const typename Neurons::Args& a) {
  const LateConnections<S> connections(a);
  for_samples(a, [&](int64_t n) {
    thread_local Forward<S, Neurons> forward;
    of_thread(forward).run(a, connections, n);
  });
}

template <class S, int K, bool Next, bool Quadratic = false>
void forward_with(const RecurrentForwardArgs& a) {
  if constexpr (kHasUsual<S, K, Next> && !Quadratic) {
    if (is_usual_here(a.flags)) return forward_samples<S, LinearSample<S, K, Next, Quadratic, true>>(a);
  }
  forward_samples<S, LinearSample<S, K, Next, Quadratic, false>>(a);
}

template <class S, int K>
void forward_states(const RecurrentForwardArgs& a) {
  if constexpr (K > 1) {
    if (a.flags.quadratic) return forward_with<S, K, false, true>(a);
  }
  a.flags.reset_next ? forward_with<S, K, true>(a) : forward_with<S, K, false>(a);
}

template <class S>
void forward_type(const RecurrentForwardArgs& a) {
  if (a.states == 1) return forward_states<S, 1>(a);
  if (a.states == 2) return forward_states<S, 2>(a);
  forward_states<S, 3>(a);
}

void forward(const RecurrentForwardArgs& a) {
  if (!a.view.inner) return;
  by_state(a.dtype, a, portable::recurrent_kernels.forward, [&](auto zero) { forward_type<decltype(zero)>(a); });
}

}  // namespace

void sparse_recurrent_forward(const SparseRecurrent<RecurrentForwardArgs>& a) {
  if (!a.view.inner) return;
  by_state(a.dtype, a, portable::sparse_kernels.recurrent_forward, [&](auto zero) { forward_type<decltype(zero)>(a); });
}

void program_recurrent_forward(const ProgramRecurrentForwardArgs& a) {
  if (!a.view.inner) return;
  by_state(a.dtype, a, portable::program_kernels.recurrent_forward, [&](auto zero) {
    using S = decltype(zero);
    forward_samples<S, ProgramSample<S>>(a);
  });
}

void recurrent_backward(const RecurrentBackwardArgs& a);
extern const RecurrentKernels recurrent_kernels = {forward, recurrent_backward};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
