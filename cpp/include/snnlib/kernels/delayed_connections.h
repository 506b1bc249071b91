// Delays per connection: what the events of some samples do to a block of outputs, and what a signal does to inputs.
// Equations: snnlib/delayed_linear.h. Sums are taken in one order on every instruction set: currents by input and then
// by time, sums for gradients by block of samples, time and sample. The dense gradient of inputs alone is added up by
// blocks of outputs and may round multiply and add at once.
#pragma once

#include "snnlib/delayed_linear.h"
#include "snnlib/kernels/events_by_input.h"

namespace snnlib {
namespace SNNLIB_ISA {

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
};
template <class S, int N>
Few<S, N> operator*(S by, const Few<S, N>& p) {
  Few<S, N> product;
  for (int i = 0; i < N; ++i) product.value[i] = by * p.value[i];
  return product;
}
#endif

template <class V, class S>
inline void add_few(S* p, const V& more) {
  V sum;
  std::memcpy(&sum, p, sizeof sum);
  sum = sum + more;
  std::memcpy(p, &sum, sizeof sum);
}

// E events of one input add their taps to `count` outputs, whose time lies in rows; `arrivals` are where an event of
// step 0 arrives.
template <class S, class Taps, int E, bool Unit>
inline void add_taps(const PlacedEvent<S>* events, const int32_t* arrivals, const Taps* taps, int64_t count, S* to) {
  int64_t at[E];
  S amount[E];
  for (int e = 0; e < E; ++e) at[e] = events[e].place, amount[e] = events[e].amount;
  for (int64_t o = 0; o < count; ++o) {
    const Taps tap = taps[o];
    S* arrival = to + arrivals[o];
#if defined(__GNUC__)
    // One sum for all events, which then need no arithmetic for their addresses.
    __asm__("" : "+r"(arrival));
#endif
    for (int e = 0; e < E; ++e) {
      if constexpr (Unit) {
        add_few(arrival + at[e], tap);
      } else {
        add_few(arrival + at[e], amount[e] * tap);
      }
    }
  }
}

// All events add their taps to a block of `count` outputs; `arrivals` is [inputs][count], `taps` that of the first
// input with rows of `row` taps.
template <class S, class Taps, bool Unit>
SNNLIB_NOINLINE void add_all_taps(const EventsByInput<S>& events, int64_t inputs, const int32_t* arrivals,
                                  const Taps* taps, int64_t row, int64_t count, S* to) {
  for (int64_t i = 0; i < inputs; ++i, arrivals += count, taps += row) {
    const PlacedEvent<S>*event = events.begin(i), *end = events.end(i);
    for (; end - event > 4; event += 3) add_taps<S, Taps, 3, Unit>(event, arrivals, taps, count, to);
    if (end - event == 4) add_taps<S, Taps, 4, Unit>(event, arrivals, taps, count, to);
    if (end - event == 3) add_taps<S, Taps, 3, Unit>(event, arrivals, taps, count, to);
    if (end - event == 2) add_taps<S, Taps, 2, Unit>(event, arrivals, taps, count, to);
    if (end - event == 1) add_taps<S, Taps, 1, Unit>(event, arrivals, taps, count, to);
  }
}

// What an event sees of a signal around its arrival: one step before, at, and one and two steps after it.
template <class S>
using Seen = Few<S, 4>;
// Outputs whose sums stay in registers.
constexpr int64_t kSumOutputs = 8;

// Sums of one input's events over what they see of `kSumOutputs` outputs.
template <class S, bool Unit>
inline void add_seen(const PlacedEvent<S>* event, const PlacedEvent<S>* end, const int32_t* delays, const S* signal,
                     int64_t row, S* sums) {
  const S* from[kSumOutputs];
  Seen<S> total[kSumOutputs];
  for (int64_t o = 0; o < kSumOutputs; ++o) {
    from[o] = signal + o * row + delays[o];
  }
  std::memcpy(total, sums, sizeof total);
  for (; event != end; ++event) {
    for (int64_t o = 0; o < kSumOutputs; ++o) {
      Seen<S> seen;
      std::memcpy(&seen, from[o] + event->place, sizeof seen);
      if constexpr (Unit) {
        total[o] = total[o] + seen;
      } else {
        total[o] = total[o] + event->amount * seen;
      }
    }
  }
  std::memcpy(sums, total, sizeof total);
}

// Sums [inputs][kSumOutputs][4] of all events; delays [inputs][kSumOutputs]. `signal` has the outputs' time in rows.
template <class S, bool Unit>
SNNLIB_NOINLINE void add_all_seen(const EventsByInput<S>& events, int64_t inputs, const int32_t* delays,
                                  const S* signal, int64_t row, S* sums) {
  for (int64_t i = 0; i < inputs; ++i) {
    const PlacedEvent<S>*event = events.begin(i), *end = events.end(i);
    if (event == end) continue;
    add_seen<S, Unit>(event, end, delays + i * kSumOutputs, signal, row, sums + i * kSumOutputs * 4);
  }
}

// sum + by v, rounded once where the processor can, as in the dense products of other layers' gradients of inputs.
#if defined(__AVX512F__)
inline Floats multiply_add(float by, Floats v, Floats sum) {
  return Floats(_mm512_fmadd_ps(_mm512_set1_ps(by), __m512(v), __m512(sum)));
}
#elif defined(__FMA__)
inline Floats multiply_add(float by, Floats v, Floats sum) {
  return Floats(_mm256_fmadd_ps(_mm256_set1_ps(by), __m256(v), __m256(sum)));
}
#else
template <class S, class V>
inline V multiply_add(S by, V v, V sum) {
  return sum + by * v;
}
#endif

// A connection as the gradient of inputs needs it.
template <class S>
struct Connection {
  int32_t delay;
  S first, second;
};

// total[t] += first signal[t + k] + second signal[t + k + 1] for T steps of a vector of samples, over `count`
// connections whose signals lie `row` vectors apart.
template <class S, int T, bool Two>
inline void add_signals(const Connection<S>* connections, int64_t count, const typename Simd<S>::Vector* signal,
                        int64_t row, typename Simd<S>::Vector* to) {
  using V = typename Simd<S>::Vector;
  V total[T] = {};
  for (int64_t o = 0; o < count; ++o) {
    const Connection<S> c = connections[o];
    const V* from = signal + o * row + c.delay;
    for (int t = 0; t < T; ++t) total[t] = multiply_add(c.first, from[t], total[t]);
    if constexpr (Two) {
      for (int t = 0; t < T; ++t) total[t] = multiply_add(c.second, from[t + 1], total[t]);
    }
  }
  for (int t = 0; t < T; ++t) to[t] = to[t] + total[t];
}

template <class S, int T, bool Two>
SNNLIB_NOINLINE void add_all_signals(const Connection<S>* connections, int64_t inputs, int64_t count,
                                     const typename Simd<S>::Vector* signal, int64_t row,
                                     typename Simd<S>::Vector* to) {
  for (int64_t i = 0; i < inputs; ++i) add_signals<S, T, Two>(connections + i * count, count, signal, row, to + i * T);
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
