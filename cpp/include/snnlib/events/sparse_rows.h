// Rows of a sparse matrix as events meet them: added to sums, multiplied with a signal, and their gradients. A row's
// connections and targets come from memory, which waits for nobody: rows are fetched some events ahead.
#pragma once

#include <cstdio>
#include <stdexcept>

#include "snnlib/core/threads.h"
#include "snnlib/events/matrix.h"

namespace snnlib {
namespace SNNLIB_ISA {

template <class S>
struct SparseRows {
  const S* weight;
  const int64_t* starts;  // the last one is right, which the caller has seen to
  const int32_t* targets;
  int64_t inputs, outputs;

  int64_t count(int64_t j) const { return starts[j + 1] - starts[j]; }
};

// Some of the targets, those of one of several parts.
struct TargetPart {
  int64_t first, end, part, parts;
};

// An error for the indices of row j, which has wrong ones.
template <class S>
[[noreturn]] SNNLIB_NOINLINE void refuse_row(const SparseRows<S>& rows, int64_t j) {
  char text[160];
  using Number = long long;
  const int64_t start = rows.starts[j], end = rows.starts[j + 1], all = rows.starts[rows.inputs];
  if (start < 0 || end < start || end > all) {
    std::snprintf(text, sizeof text, "starts: expected 0 to %lld in rising order, got [%lld, %lld] in row %lld",
                  Number(all), Number(start), Number(end), Number(j));
  } else {
    int64_t c = start, least = 0;
    for (; c + 1 < end && rows.targets[c] >= least && rows.targets[c] < rows.outputs; ++c) least = rows.targets[c] + 1;
    std::snprintf(text, sizeof text, "targets: expected outputs from 0 to %lld in rising order, got %lld in row %lld",
                  Number(rows.outputs - 1), Number(rows.targets[c]), Number(j));
  }
  throw std::invalid_argument(text);
}

// Refuses starts that are not in order from row `first` up to row `end`.
template <class S>
void check_starts(const SparseRows<S>& rows, int64_t first, int64_t end) {
  const int64_t all = rows.starts[rows.inputs];
  for (int64_t j = first; j < end; ++j) {
    if (rows.starts[j] < 0 || rows.count(j) < 0 || rows.starts[j + 1] > all) refuse_row(rows, j);
  }
}

// True if targets are from `first` on and below `end`. One below is a large number above `first`.
inline bool are_within(const int32_t* targets, int64_t count, int64_t first, int64_t end) {
  constexpr int64_t kMost = int64_t(1) << 31;
  uint32_t most = 0;
  for (int64_t c = 0; c < count; ++c) {
    const uint32_t above = uint32_t(targets[c]) - uint32_t(first);
    most = above > most ? above : most;
  }
  return !count || most < (end < kMost ? end : kMost) - first;
}

// Rows that are fetched at once, while as many others are used: one after the other they would wait for their pages.
constexpr int64_t kRowsAhead = 4;

// Fetches a part of a row, about, with what belongs to its connections.
template <class S>
SNNLIB_INLINE void fetch_row(const SparseRows<S>& rows, const S* values, int64_t j, const TargetPart& some) {
  check_starts(rows, j, j + 1);
  const int64_t all = rows.count(j), first = all * some.part / some.parts;
  const int64_t length = all * (some.part + 1) / some.parts - first;
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

// The first connection from `place` on, forwards or backwards, whose target is `bound` or more.
inline int64_t first_target(const int32_t* targets, int64_t count, int64_t place, int64_t bound) {
  while (place > 0 && targets[place - 1] >= bound) --place;
  while (place < count && targets[place] < bound) ++place;
  return place;
}

// Calls f(e, start, count) with the connections of row listed[e] that lead to some targets, for each e in turn, whose
// indices are checked.
template <class S, class F>
SNNLIB_INLINE void for_rows(const SparseRows<S>& rows, const S* values, const int32_t* listed, int64_t count,
                            const TargetPart& some, const F& f) {
  for (int64_t e = 0; e < count; ++e) {
    if (e % kRowsAhead == 0) {
      const int64_t last = e + 2 * kRowsAhead < count ? e + 2 * kRowsAhead : count;
      for (int64_t n = e ? e + kRowsAhead : 0; n < last; ++n) fetch_row(rows, values, listed[n], some);
    }
    const int64_t j = listed[e], start = rows.starts[j], all = rows.count(j);
    const int32_t* targets = rows.targets + start;
    // Where targets are drawn evenly, the bounds are not far from there.
    const auto place = [&](int64_t bound) { return first_target(targets, all, all * bound / rows.outputs, bound); };
    const int64_t first = some.part ? place(some.first) : 0, end = some.part + 1 < some.parts ? place(some.end) : all;
    if (end < first || !are_within(targets + first, end - first, some.first, some.end)) refuse_row(rows, j);
    f(e, start + first, end - first);
  }
}

// Connections that are taken together: as many as there are free registers for.
constexpr int64_t kTogether = 8;

// sum[targets] += amount * weight. Targets of a row differ, so that some sums are read before the first is written.
template <class S>
inline void add_connections(const S* weight, const int32_t* targets, int64_t count, S amount, S* sum) {
  int64_t c = 0;
  for (; c + kTogether <= count; c += kTogether) {
    S sums[kTogether];
    for (int64_t i = 0; i < kTogether; ++i) sums[i] = sum[targets[c + i]] + amount * weight[c + i];
    for (int64_t i = 0; i < kTogether; ++i) sum[targets[c + i]] = sums[i];
  }
  for (; c < count; ++c) sum[targets[c]] = sum[targets[c]] + amount * weight[c];
}

// sum += the rows of the events, one after the other, at some targets.
template <class S>
SNNLIB_NOINLINE void add_rows(const SparseRows<S>& rows, const Fired<S>& events, const TargetPart& some, S* sum) {
  for_rows(rows, rows.weight, events.neuron, events.count, some, [&](int64_t e, int64_t start, int64_t count) {
    add_connections(rows.weight + start, rows.targets + start, count, events.amount[e], sum);
  });
}

// out[j] = row j times a signal for the rows that are listed: 16 sums of every 16th target, halves onto halves.
template <class S>
SNNLIB_NOINLINE void rows_times(const SparseRows<S>& rows, const int32_t* listed, int64_t count, const S* signal,
                                S* out) {
  for_rows(rows, rows.weight, listed, count, {0, rows.outputs, 0, 1}, [&](int64_t n, int64_t start, int64_t all) {
    S sums[kGroup] = {};
    for (int64_t c = start; c < start + all; ++c) {
      const uint32_t to = uint32_t(rows.targets[c]);
      sums[to % kGroup] = sums[to % kGroup] + rows.weight[c] * signal[to];
    }
    for (int64_t half = kGroup / 2; half; half /= 2) {
      for (int64_t i = 0; i < half; ++i) sums[i] = sums[i] + sums[i + half];
    }
    out[listed[n]] = sums[0];
  });
}

// grad[c] += amount * signal[targets[c]]. Of all connections at once GCC would make gathers, which take longer.
template <class S>
inline void add_signal(const int32_t* targets, int64_t count, S amount, const S* signal, S* grad) {
  int64_t c = 0;
  for (; c + kTogether <= count; c += kTogether) {
    S sums[kTogether];
    std::memcpy(sums, grad + c, sizeof sums);
    for (int64_t i = 0; i < kTogether; ++i) sums[i] = sums[i] + amount * signal[targets[c + i]];
    std::memcpy(grad + c, sums, sizeof sums);
  }
  for (; c < count; ++c) grad[c] = grad[c] + amount * signal[targets[c]];
}

// grad[c] += amount * signal[targets[c]] for the connections of the events.
template <class S>
SNNLIB_NOINLINE void add_gradients(const SparseRows<S>& rows, const Fired<S>& events, const S* signal, S* grad) {
  const TargetPart every{0, rows.outputs, 0, 1};
  for_rows(rows, static_cast<const S*>(grad), events.neuron, events.count, every,
           [&](int64_t e, int64_t start, int64_t count) {
             add_signal(rows.targets + start, count, events.amount[e], signal, grad + start);
           });
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
void sparse_weight_gradient(const SparseRows<S>& rows, int64_t frames, int threads, S* grad, const F& frame) {
  const int64_t inputs = rows.inputs, each = (inputs + threads - 1) / threads;
  parallel_for(each ? (inputs + each - 1) / each : 0, threads, [&](int64_t part) {
    thread_local Scratch<int32_t> numbers;
    thread_local Scratch<S> amounts;
    const int64_t first = part * each, end = first + each < inputs ? first + each : inputs;
    Fired<S> events{numbers.reserve(each + kMoreEvents), amounts.reserve(each + kMoreEvents), 0};
    const int64_t start = rows.starts[first];
    check_starts(rows, first, end);
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
