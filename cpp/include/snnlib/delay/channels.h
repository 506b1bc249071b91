// Delays per channel in front of a dense matrix: an event adds its row of weights when it arrives. Equations:
// snnlib/delay/linear.h. Currents are summed in the order of the events, sums for gradients by sample and then by
// time.
#pragma once

#include "snnlib/delay/linear.h"
#include "snnlib/events/by_input.h"

namespace snnlib {
namespace SNNLIB_ISA {

// The events of a sample by the step of their arrival.
template <class S>
class EventsByArrival {
 public:
  struct Event {
    int32_t input;
    S first, second;
  };

  void clear(int64_t inputs, int64_t steps) {
    inputs_ = inputs, steps_ = steps, count_ = 0;
    ends_.zeroed(steps + 1);
  }

  // Takes up the row of step t.
  void add(const S* row, int64_t t, const int32_t* delays) {
    const int64_t room = count_ + inputs_ + kMoreEvents;
    int32_t *inputs = input_.grow(room, count_), *arrivals = arrival_.grow(room, count_);
    S* amounts = amount_.grow(room, count_);
    const int64_t end = count_ + append_numbers(row, inputs_, inputs + count_);
    for (int64_t e = count_; e < end; ++e) {
      amounts[e] = row[inputs[e]];
      const int64_t arrival = t + delays[inputs[e]];
      arrivals[e] = int32_t(arrival < steps_ ? arrival : steps_);
      if (arrival < steps_) ++ends_.data()[arrival + 1];
    }
    count_ = end;
  }

  // After the last row; taps are (first, second) of every input.
  void sort(const S* taps) {
    Event* sorted = sorted_.reserve(count_);
    int32_t* ends = ends_.data();
    for (int64_t t = 0; t < steps_; ++t) ends[t + 1] += ends[t];
    for (int64_t e = 0; e < count_; ++e) {
      const int32_t i = input_.data()[e];
      const S amount = amount_.data()[e];
      if (arrival_.data()[e] < steps_)
        sorted[ends[arrival_.data()[e]]++] = {i, taps[2 * i] * amount, taps[2 * i + 1] * amount};
    }
  }

  const Event* begin(int64_t t) const { return sorted_.data() + (t ? ends_.data()[t - 1] : 0); }
  const Event* end(int64_t t) const { return sorted_.data() + ends_.data()[t]; }

 private:
  int64_t inputs_ = 0, steps_ = 0, count_ = 0;
  Scratch<int32_t> input_, arrival_, ends_;
  Scratch<S> amount_;
  Scratch<Event> sorted_;
};

// Currents of all steps of a sample for N vectors of outputs from `low` on; `out` is at step 0, its steps `step`
// elements apart.
template <class S, int N, bool Two>
SNNLIB_NOINLINE void add_arrivals(const EventsByArrival<S>& events, const DelayedLinearArgs& a, int64_t low, S* out,
                                  int64_t step) {
  using V = typename Simd<S>::Vector;
  constexpr int64_t L = Simd<S>::kLanes;
  const S* weight = static_cast<const S*>(a.weight) + low;
  const int64_t left = a.outputs - low;
  V now[N] = {}, later[N] = {};
  for (int64_t t = 0; t < a.steps; ++t, out += step) {
    for (auto *event = events.begin(t), *end = events.end(t); event != end; ++event) {
      const S* row = weight + event->input * a.weight_row;
      for (int64_t v = 0; v < N; ++v) {
        const V w = load_lanes<S>(row + v * L, L);
        now[v] = now[v] + event->first * w;
        if constexpr (Two) later[v] = later[v] + event->second * w;
      }
    }
    for (int64_t v = 0; v < N && v * L < left; ++v) store_lanes<S>(out + v * L, now[v], left - v * L);
    for (int64_t v = 0; v < N; ++v) now[v] = later[v], later[v] = V{};
  }
}

// Sums of one input's events over the J steps of the signal from `signal` on that each sees, in rows of N vectors.
template <class S, int N, int J>
inline void add_steps(const typename SortedEvents<S>::Some& events, const typename Simd<S>::Vector* signal,
                      typename Simd<S>::Vector* sums) {
  using V = typename Simd<S>::Vector;
  V total[J * N];
  for (int64_t v = 0; v < J * N; ++v) total[v] = sums[v];
  for (int64_t e = 0; e < events.count; ++e) {
    const V* from = signal + events.places[e] * N;
    const S amount = events.amounts ? events.amounts[e] : S(1);
    for (int64_t v = 0; v < J * N; ++v) total[v] = total[v] + amount * from[v];
  }
  for (int64_t v = 0; v < J * N; ++v) sums[v] = total[v];
}

// Sums [inputs][J][N] of all events; `delays` are those of the inputs.
template <class S, int N, int J>
SNNLIB_NOINLINE void add_all_steps(SortedEvents<S> events, int64_t inputs, const int32_t* delays,
                                   const typename Simd<S>::Vector* signal, typename Simd<S>::Vector* sums) {
  for (int64_t i = 0; i < inputs; ++i) {
    const auto own = events.of(i);
    if (own.count) add_steps<S, N, J>(own, signal + delays[i] * N, sums + i * J * N);
  }
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
