// Rows of a sparse matrix as events meet them: added to sums, multiplied with a signal, and their gradients. A row's
// connections and targets come from memory, which waits for nobody: rows are fetched some events ahead.
#pragma once

#include "snnlib/core/threads.h"
#include "snnlib/events/matrix.h"

namespace snnlib {
namespace SNNLIB_ISA {

template <class S>
struct SparseRows {
  const S* weight;
  const int64_t* starts;
  const int32_t* targets;

  int64_t count(int64_t j) const { return starts[j + 1] - starts[j]; }
};

// Events between a row's fetch and its use.
constexpr int64_t kRowsAhead = 4;

// Fetches part `part` of `parts` of the row that comes up, about, with what belongs to its connections.
template <class S>
SNNLIB_INLINE void fetch_row(const SparseRows<S>& rows, const S* values, const int32_t* inputs, int64_t e,
                             int64_t count, int64_t part, int64_t parts) {
  if (e + kRowsAhead >= count) return;
  const int64_t j = inputs[e + kRowsAhead], all = rows.count(j);
  const int64_t first = all * part / parts, length = all * (part + 1) / parts - first;
#if defined(__GNUC__)
  // Not by `prefetch`, of which GCC would leave out the calls that it does not inline.
  for (int64_t c = rows.starts[j] + first, end = c + length; c < end; c += 64 / int64_t(sizeof(int32_t))) {
    __builtin_prefetch(values + c);
    __builtin_prefetch(rows.targets + c);
  }
#else
  (void)values, (void)first, (void)length;
#endif
}

// sum[targets] += amount * weight. Targets of a row differ, so that some sums are read before the first is written.
template <class S>
inline void add_connections(const S* weight, const int32_t* targets, int64_t count, S amount, S* sum) {
  constexpr int64_t kTogether = 8;
  int64_t c = 0;
  for (; c + kTogether <= count; c += kTogether) {
    S sums[kTogether];
    for (int64_t i = 0; i < kTogether; ++i) sums[i] = sum[targets[c + i]] + amount * weight[c + i];
    for (int64_t i = 0; i < kTogether; ++i) sum[targets[c + i]] = sums[i];
  }
  for (; c < count; ++c) sum[targets[c]] = sum[targets[c]] + amount * weight[c];
}

// Some of the targets, those of one of several parts.
struct TargetPart {
  int64_t first, end, outputs, part, parts;
};

// The first connection from `place` on, forwards or backwards, whose target is `bound` or more.
inline int64_t first_target(const int32_t* targets, int64_t count, int64_t place, int64_t bound) {
  while (place > 0 && targets[place - 1] >= bound) --place;
  while (place < count && targets[place] < bound) ++place;
  return place;
}

// sum += the rows of the events, one after the other, at some targets.
template <class S>
SNNLIB_NOINLINE void add_rows(const SparseRows<S>& rows, const Fired<S>& events, const TargetPart& some, S* sum) {
  for (int64_t e = 0; e < events.count; ++e) {
    fetch_row(rows, rows.weight, events.neuron, e, events.count, some.part, some.parts);
    const int64_t j = events.neuron[e], start = rows.starts[j];
    const int32_t* targets = rows.targets + start;
    int64_t first = 0, end = rows.count(j);
    if (some.parts > 1) {
      // Where targets are drawn evenly, the bounds are not far from there.
      const int64_t all = end;
      first = first_target(targets, all, all * some.first / some.outputs, some.first);
      end = first_target(targets, all, all * some.end / some.outputs, some.end);
    }
    add_connections(rows.weight + start + first, targets + first, end - first, events.amount[e], sum);
  }
}

// out[j] = row j times a signal for the rows that are listed: 16 sums of every 16th target, halves onto halves.
template <class S>
SNNLIB_NOINLINE void rows_times(const SparseRows<S>& rows, const int32_t* listed, int64_t count, const S* signal,
                                S* out) {
  for (int64_t n = 0; n < count; ++n) {
    fetch_row(rows, rows.weight, listed, n, count, 0, 1);
    const int64_t j = listed[n], all = rows.count(j);
    const S* weight = rows.weight + rows.starts[j];
    const int32_t* targets = rows.targets + rows.starts[j];
    S sums[kGroup] = {};
    for (int64_t c = 0; c < all; ++c) {
      const int32_t to = targets[c];
      sums[to % kGroup] = sums[to % kGroup] + weight[c] * signal[to];
    }
    for (int64_t half = kGroup / 2; half; half /= 2) {
      for (int64_t i = 0; i < half; ++i) sums[i] = sums[i] + sums[i + half];
    }
    out[j] = sums[0];
  }
}

// grad[c] += amount * signal[targets[c]] for the connections of the events.
template <class S>
SNNLIB_NOINLINE void add_gradients(const SparseRows<S>& rows, const Fired<S>& events, const S* signal, S* grad) {
  for (int64_t e = 0; e < events.count; ++e) {
    fetch_row(rows, static_cast<const S*>(grad), events.neuron, e, events.count, 0, 1);
    const int64_t j = events.neuron[e], start = rows.starts[j], all = rows.count(j);
    const int32_t* __restrict targets = rows.targets + start;
    S* __restrict to = grad + start;
    const S amount = events.amount[e];
    for (int64_t c = 0; c < all; ++c) to[c] = to[c] + amount * signal[targets[c]];
  }
}

// The events of a row from `first` up to `end`, in room for so many and kMoreEvents.
template <class S>
inline void list_events(const S* row, int64_t first, int64_t end, Fired<S>& events) {
  events.count = append_row(row + first, end - first, events.neuron, events.amount);
  for (int64_t e = 0; e < events.count; ++e) events.neuron[e] += int32_t(first);
}

// dL/dw of frames: f(n) calls g(events, signal) with the rows of frame n. Each thread has some inputs, and takes them
// through all frames.
template <class S, class F>
void sparse_weight_gradient(const SparseRows<S>& rows, int64_t inputs, int64_t frames, int threads, S* grad,
                            const F& frame) {
  const int64_t each = (inputs + threads - 1) / threads;
  parallel_for(each ? (inputs + each - 1) / each : 0, threads, [&](int64_t part) {
    thread_local Scratch<int32_t> numbers;
    thread_local Scratch<S> amounts;
    const int64_t first = part * each, end = first + each < inputs ? first + each : inputs;
    Fired<S> events{numbers.reserve(each + kMoreEvents), amounts.reserve(each + kMoreEvents), 0};
    const int64_t start = rows.starts[first];
    std::memset(grad + start, 0, size_t(rows.starts[end] - start) * sizeof(S));
    for (int64_t n = 0; n < frames; ++n) {
      frame(n, [&](const S* row, const S* signal) {
        list_events(row, first, end, events);
        add_gradients(rows, events, signal, grad);
      });
    }
  });
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
