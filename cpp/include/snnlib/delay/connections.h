// Delays per connection: what the events of some samples do to a block of outputs, and what these tell a connection.
// Equations: snnlib/delay/linear.h. Sums are taken in one order on every instruction set: currents by input and then
// by time, sums for gradients by block of samples, time and sample.
#pragma once

#include <type_traits>

#include "snnlib/delay/linear.h"
#include "snnlib/events/by_input.h"

namespace snnlib {
namespace SNNLIB_ISA {

// Outputs whose taps, or whose sums, stay in registers while the events of an input go by.
constexpr int64_t kTileOutputs = 8;

// A delay of whole steps and the rest of a step, which is 0 where delays are rounded.
template <class S>
struct SplitDelay {
  int32_t whole;
  S rest;
};
template <class S, class Args>
inline SplitDelay<S> split_delay(const Args& a, S delay) {
  const S steps = a.two ? delay : delay + S(0.5);
  // Nothing sees an event that arrives so late.
  if (!(steps < S(a.longest + 1))) return {int32_t(a.longest), S(0)};
  const int32_t whole = int32_t(steps);
  return {whole, a.two ? delay - S(whole) : S(0)};
}

// N neighbouring values as one vector, where there are vectors.
#if defined(__GNUC__)
template <class S, int N>
struct FewOf {
  typedef S Type __attribute__((vector_size(N * sizeof(S))));
};
template <class S, int N>
using Few = typename FewOf<S, N>::Type;
#else
template <class S, int N>
struct Few {
  S value[N];
  Few operator+(const Few& b) const {
    Few sum;
    for (int i = 0; i < N; ++i) sum.value[i] = value[i] + b.value[i];
    return sum;
  }
  Few operator*(const Few& b) const {
    Few product;
    for (int i = 0; i < N; ++i) product.value[i] = value[i] * b.value[i];
    return product;
  }
};
template <class S, int N>
Few<S, N> operator*(S by, const Few<S, N>& p) {
  Few<S, N> product;
  for (int i = 0; i < N; ++i) product.value[i] = by * p.value[i];
  return product;
}
#endif

// Few values, one of them as a number.
template <class S, int N>
using Values = std::conditional_t<N == 1, S, Few<S, N>>;

// The taps of connections [inputs][kTileOutputs] to the outputs from `low` on, and where an event of step 0 arrives if
// the outputs' time lies in rows of `row` elements. Outputs behind the last one have taps of 0.
template <class S, int N>
void pack_taps(const DelayedLinearArgs& a, int64_t low, int64_t row, int32_t* arrivals, Values<S, N>* taps) {
  for (int64_t o = 0; o < kTileOutputs; ++o) {
    const bool real = low + o < a.outputs;
    const S* delay = static_cast<const S*>(a.delay) + (real ? (low + o) * a.inputs : 0);
    const S* weight = static_cast<const S*>(a.weight) + (real ? (low + o) * a.inputs : 0);
    for (int64_t i = 0; i < a.inputs; ++i) {
      const SplitDelay<S> split = real ? split_delay(a, delay[i]) : SplitDelay<S>{};
      const S w = real ? weight[i] : S(0), both[2] = {w * (S(1) - split.rest), w * split.rest};
      arrivals[i * kTileOutputs + o] = split.whole + int32_t(o * row);
      std::memcpy(static_cast<void*>(taps + i * kTileOutputs + o), both, sizeof *taps);
    }
  }
}

// Places without taps.
template <class S>
void pack_arrivals(const DelayedLinearArgs& a, int64_t low, int64_t row, int32_t* arrivals) {
  for (int64_t o = 0; o < kTileOutputs; ++o) {
    const bool real = low + o < a.outputs;
    const S* delay = static_cast<const S*>(a.delay) + (real ? (low + o) * a.inputs : 0);
    for (int64_t i = 0; i < a.inputs; ++i)
      arrivals[i * kTileOutputs + o] = (real ? split_delay(a, delay[i]).whole : 0) + int32_t(o * row);
  }
}

// Addresses for places of the same event, which then needs no other arithmetic.
template <class S>
inline void at_arrivals(const int32_t* arrivals, S* base, S** at) {
  for (int64_t o = 0; o < kTileOutputs; ++o) {
    at[o] = base + arrivals[o];
#if defined(__GNUC__)
    __asm__("" : "+r"(at[o]));
#endif
  }
}

// The events of one input add their taps to a tile of outputs.
template <class S, int N, bool Unit>
inline void add_taps(const typename SortedEvents<S>::Some& events, const int32_t* arrivals, const Values<S, N>* taps,
                     S* to) {
  S* at[kTileOutputs];
  Values<S, N> tap[kTileOutputs];
  at_arrivals(arrivals, to, at);
  for (int64_t o = 0; o < kTileOutputs; ++o) tap[o] = taps[o];
  for (int64_t e = 0; e < events.count; ++e) {
    const int64_t place = events.places[e];
    for (int64_t o = 0; o < kTileOutputs; ++o) {
      Values<S, N> sum;
      std::memcpy(&sum, at[o] + place, sizeof sum);
      if constexpr (Unit) {
        sum = sum + tap[o];
      } else {
        sum = sum + events.amounts[e] * tap[o];
      }
      std::memcpy(at[o] + place, &sum, sizeof sum);
    }
  }
}

// All events add their taps; `arrivals` and `taps` are [inputs][kTileOutputs].
template <class S, int N, bool Unit>
SNNLIB_NOINLINE void add_all_taps(SortedEvents<S> events, int64_t inputs, const int32_t* arrivals,
                                  const Values<S, N>* taps, S* to) {
  for (int64_t i = 0; i < inputs; ++i) {
    const auto own = events.of(i);
    if (own.count) add_taps<S, N, Unit>(own, arrivals + i * kTileOutputs, taps + i * kTileOutputs, to);
  }
}

// Sums of one input's events over the N neighbouring steps of the signals that each sees.
template <class S, int N, bool Unit>
inline void add_seen(const typename SortedEvents<S>::Some& events, const int32_t* arrivals, const S* signal,
                     Values<S, N>* sums) {
  const S* at[kTileOutputs];
  Values<S, N> total[kTileOutputs];
  at_arrivals(arrivals, signal, at);
  for (int64_t o = 0; o < kTileOutputs; ++o) total[o] = sums[o];
  for (int64_t e = 0; e < events.count; ++e) {
    const int64_t place = events.places[e];
    for (int64_t o = 0; o < kTileOutputs; ++o) {
      Values<S, N> seen;
      std::memcpy(&seen, at[o] + place, sizeof seen);
      if constexpr (Unit) {
        total[o] = total[o] + seen;
      } else {
        total[o] = total[o] + events.amounts[e] * seen;
      }
    }
  }
  for (int64_t o = 0; o < kTileOutputs; ++o) sums[o] = total[o];
}

// Sums [inputs][kTileOutputs] of all events.
template <class S, int N, bool Unit>
SNNLIB_NOINLINE void add_all_seen(SortedEvents<S> events, int64_t inputs, const int32_t* arrivals, const S* signal,
                                  Values<S, N>* sums) {
  for (int64_t i = 0; i < inputs; ++i) {
    const auto own = events.of(i);
    if (own.count) add_seen<S, N, Unit>(own, arrivals + i * kTileOutputs, signal, sums + i * kTileOutputs);
  }
}

// Gradients of connections to the outputs from `low` on, from sums [inputs][kTileOutputs] over N steps, of which that
// of the arrival is the one numbered `now`.
template <class S, int N>
void gradients_of_sums(const DelayedGradientsArgs& a, int64_t low, const Values<S, N>* sums, int now) {
  for (int64_t o = 0; o < kTileOutputs && low + o < a.outputs; ++o) {
    const int64_t row = (low + o) * a.inputs;
    const S *delay = static_cast<const S*>(a.delay) + row, *weight = static_cast<const S*>(a.weight) + row;
    S *grad_weight = static_cast<S*>(a.grad_weight), *grad_delay = static_cast<S*>(a.grad_delay);
    for (int64_t i = 0; i < a.inputs; ++i) {
      const SplitDelay<S> split = split_delay(a, delay[i]);
      S sum[N];
      std::memcpy(sum, sums + i * kTileOutputs + o, sizeof sum);
      const S after = N > 1 ? sum[N > 1 ? now + 1 : 0] - sum[now] : S(0);
      if (grad_weight) grad_weight[row + i] = a.two ? sum[now] + split.rest * after : sum[now];
      if (!grad_delay) continue;
      const bool both = !a.two && split.whole > 0;
      grad_delay[row + i] = weight[i] * (both ? (sum[N > 1 ? now + 1 : 0] - sum[0]) / S(2) : after);
    }
  }
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
