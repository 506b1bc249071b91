// A fully connected map whose events arrive later, on the CPU. What a block of outputs needs stays in the caches while
// the events of some samples go by: its weights, its delays and its time steps.
#include <memory>

#include "snnlib/core/threads.h"
#include "snnlib/core/transpose.h"
#include "snnlib/delay/channels.h"
#include "snnlib/delay/connections.h"
#include "snnlib/delay/input.h"
#include "snnlib/delay/linear.h"
#include "snnlib/delay/rows.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

// Samples whose events go through a block of connections, one after the other or at once.
constexpr int64_t kSamples = 8;
// Steps of output of a buffer, at least.
constexpr int64_t kChunk = 256;
// Bytes that the buffer of a block of outputs may occupy, about the L1 cache.
constexpr int64_t kBufferBytes = 34 << 10;
// Elements of the input whose events are listed at a time.
constexpr int64_t kListed = 4 << 20;
// How the currents of some samples are summed up, chunk by chunk of steps: every sample has `time` places in the row of
// an output, for the steps of a chunk, those before it whose events still arrive, and those behind it.
struct ConnectionPlaces {
  int64_t chunk, time, samples, row;
};

template <class S>
ConnectionPlaces places_of(const DelayedLinearArgs& a) {
  ConnectionPlaces p{};
  const int64_t reach = a.longest + 1, threads = larger_of(a.executor.threads(), 1);
  p.chunk = larger_of(kChunk, 4 * reach);
  p.time = smaller_of(p.chunk + reach, a.steps) + reach + 1;
  const int64_t fit = kBufferBytes / (kTileOutputs * p.time * int64_t(sizeof(S)));
  p.samples = smaller_of(smaller_of(larger_of(fit, 1), kSamples), larger_of(parts_of(a.batch, threads), 1));
  // An odd length: outputs do not meet in the same sets of a cache.
  p.row = p.samples * p.time | 1;
  return p;
}

// Currents of samples from `first` on; `arrivals` and `taps` are [outputs / kTileOutputs][inputs][kTileOutputs].
template <class S, int N>
void connect_samples(const DelayedCurrentsArgs& a, const ConnectionPlaces& p, int64_t first, const int32_t* arrivals,
                     const Values<S, N>* taps) {
  thread_local EventsByInput<S> local_events;
  thread_local FoundEvents<S> local_found;
  EventsByInput<S>& events = of_thread(local_events);
  FoundEvents<S>& found = of_thread(local_found);
  thread_local Scratch<S> buffer;
  const int64_t samples = smaller_of(a.batch - first, p.samples);
  for (int64_t start = 0; start < a.steps; start += p.chunk) {
    const int64_t end = smaller_of(start + p.chunk, a.steps), from = larger_of(start - a.longest - 1, 0);
    events.clear(a.inputs);
    for (int64_t t = from; t < end; ++t) {
      for_rows<S>(a, t, first, samples,
                  [&](int64_t n, const S* row) { events.add(row, n * p.time + t - from, found); });
    }
    events.sort(found);
    const SortedEvents<S> sorted = events.sorted();
    for (int64_t low = 0; low < a.outputs; low += kGroup) {
      const int64_t count = smaller_of(a.outputs - low, kGroup);
      S* sums = buffer.zeroed(kGroup * p.row);
      for (int64_t o = 0; o < count; o += kTileOutputs) {
        const int64_t tile = (low + o) * a.inputs;
        S* to = sums + o * p.row;
        !sorted.amounts ? add_all_taps<S, N, true>(sorted, a.inputs, arrivals + tile, taps + tile, to)
                        : add_all_taps<S, N, false>(sorted, a.inputs, arrivals + tile, taps + tile, to);
      }
      for (int64_t n = 0; n < samples; ++n)
        transpose(sums + n * p.time + start - from, p.row, count, end - start,
                  row_of<S>(a, a.out, start, first + n, a.outputs) + low, a.step_rows * a.outputs);
    }
  }
}

template <class S, int N>
void connect(const DelayedCurrentsArgs& a) {
  const int threads = a.executor.threads();
  const ConnectionPlaces p = places_of<S>(a);
  const int64_t tiles = parts_of(a.outputs, kTileOutputs), size = a.inputs * kTileOutputs;
  thread_local Scratch<int32_t> all_arrivals;
  thread_local Scratch<Values<S, N>> all_taps;
  int32_t* arrivals = all_arrivals.reserve(tiles * size);
  Values<S, N>* taps = all_taps.reserve(tiles * size);
  parallel_for(tiles, threads, [&](int64_t tile) {
    pack_taps<S, N>(a, tile * kTileOutputs, p.row, arrivals + tile * size, taps + tile * size);
  });
  parallel_for(parts_of(a.batch, p.samples), threads,
               [&](int64_t task) { connect_samples<S, N>(a, p, task * p.samples, arrivals, taps); });
}

template <class S, bool Two>
void add_all_arrivals(const DelayedCurrentsArgs& a, const EventsByArrival<S>& events, int64_t n) {
  // As many vectors as there are registers for, at two steps.
  constexpr int64_t L = Simd<S>::kLanes, N = kVectorBytes == 64 ? 8 : 4;
  S* out = row_of<S>(a, a.out, 0, n, a.outputs);
  const int64_t step = a.step_rows * a.outputs;
  int64_t low = 0;
  for (; a.outputs - low > 2 * L; low += N * L) add_arrivals<S, N, Two>(events, a, low, out + low, step);
  for (; low < a.outputs; low += L) add_arrivals<S, 1, Two>(events, a, low, out + low, step);
}

// Currents of samples from `first` on, by delays of channels.
template <class S>
void delay_samples(const DelayedCurrentsArgs& a, int64_t first, int64_t samples) {
  thread_local EventsByArrival<S> local[kSamples];
  EventsByArrival<S>* lists = &of_thread(local[0]);
  for (int64_t n = 0; n < samples; ++n) lists[n].clear(a.inputs, a.steps);
  for (int64_t t = 0; t < a.steps; ++t) {
    for_rows<S>(a, t, first, samples, [&](int64_t n, const S* row) { lists[n].add(row, t, a.delays); });
  }
  for (int64_t n = 0; n < samples; ++n) {
    lists[n].sort(static_cast<const S*>(a.taps));
    a.two ? add_all_arrivals<S, true>(a, lists[n], first + n) : add_all_arrivals<S, false>(a, lists[n], first + n);
  }
}

template <class S>
void currents_of(const DelayedCurrentsArgs& a) {
  if (!a.per_channel) return a.two ? connect<S, 2>(a) : connect<S, 1>(a);
  const int threads = a.executor.threads();
  const int64_t size = smaller_of(kSamples, larger_of(parts_of(a.batch, threads > 1 ? threads : 1), 1));
  parallel_for(parts_of(a.batch, size), threads,
               [&](int64_t task) { delay_samples<S>(a, task * size, smaller_of(a.batch - task * size, size)); });
}

// Steps of a signal besides those of the sequence and of the longest delay: one before the first, and what an event
// sees behind its arrival.
constexpr int64_t kMoreSteps = 4;

int64_t signal_row(const DelayedLinearArgs& a) { return kSamples * (a.steps + a.longest + kMoreSteps) | kGroup; }

// Events of blocks of kSamples samples by input; the time of each sample takes `row` places.
template <class S>
void list_blocks(const DelayedLinearArgs& a, int64_t first, int64_t blocks, int64_t row, EventsByInput<S>* lists) {
  parallel_for(blocks, a.executor.threads(), [&](int64_t block) {
    thread_local FoundEvents<S> local;
    FoundEvents<S>& found = of_thread(local);
    EventsByInput<S>& list = lists[block];
    list.clear(a.inputs);
    const int64_t low = first + block * kSamples, samples = smaller_of(a.batch - low, kSamples);
    for (int64_t t = 0; t < a.steps; ++t)
      for_rows<S>(a, t, low, samples, [&](int64_t n, const S* x) { list.add(x, n * row + t, found); });
    list.sort(found);
  });
}

// Sums per channel for N vectors of outputs from `low` on, over blocks of samples.
template <class S, int N, int J>
void sum_channels(const DelayedSumsArgs& a, int64_t low, int64_t first, int64_t blocks, const EventsByInput<S>* lists) {
  using V = typename Simd<S>::Vector;
  constexpr int64_t L = Simd<S>::kLanes;
  thread_local Scratch<V> signals, totals;
  const int64_t time = a.steps + a.longest + kMoreSteps, left = a.outputs - low;
  V *signal = signals.reserve(kSamples * time * N), *sums = totals.zeroed(a.inputs * J * N);
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t start = first + block * kSamples, samples = smaller_of(a.batch - start, kSamples);
    std::memset(static_cast<void*>(signal), 0, size_t(kSamples * time * N) * sizeof(V));
    for (int64_t t = 0; t < a.steps; ++t) {
      for (int64_t n = 0; n < samples; ++n) {
        const S* grad = row_of<S>(a, a.grad, t, start + n, a.outputs) + low;
        V* to = signal + (n * time + t + 1) * N;
        for (int64_t v = 0; v < N && v * L < left; ++v) to[v] = load_lanes<S>(grad + v * L, left - v * L);
      }
    }
    add_all_steps<S, N, J>(lists[block].sorted(), a.inputs, a.delays, signal + (a.first + 1) * N, sums);
  }
  for (int64_t j = 0; j < J; ++j) {
    for (int64_t i = 0; i < a.inputs; ++i) {
      S* out = static_cast<S*>(a.sums) + (j * a.inputs + i) * a.outputs + low;
      for (int64_t v = 0; v < N && v * L < left; ++v) {
        const V more = sums[(i * J + j) * N + v];
        store_lanes<S>(out + v * L, load_lanes<S>(out + v * L, left - v * L) + more, left - v * L);
      }
    }
  }
}

template <class S, int N>
void sum_channels_of(const DelayedSumsArgs& a, int64_t low, int64_t first, int64_t blocks,
                     const EventsByInput<S>* lists) {
  if (a.count == 1) return sum_channels<S, N, 1>(a, low, first, blocks, lists);
  if (a.count == 2) return sum_channels<S, N, 2>(a, low, first, blocks, lists);
  sum_channels<S, N, 3>(a, low, first, blocks, lists);
}

// f(first sample, blocks, lists) for all events, listed as many blocks of samples at a time as have room.
template <class S, class F>
void for_listed(const DelayedLinearArgs& a, const F& f) {
  const int64_t row = a.steps + a.longest + kMoreSteps, sample = larger_of(a.steps * a.inputs, 1);
  const int64_t at_once = larger_of(kListed / (kSamples * sample), 1), all = parts_of(a.batch, kSamples);
  const std::unique_ptr<EventsByInput<S>[]> lists(new EventsByInput<S>[size_t(smaller_of(at_once, all))]);
  for (int64_t block = 0; block < all; block += at_once) {
    const int64_t blocks = smaller_of(all - block, at_once);
    list_blocks(a, block * kSamples, blocks, row, lists.get());
    f(block * kSamples, blocks, lists.get());
  }
}

template <class S>
void sums_of(const DelayedSumsArgs& a) {
  constexpr int64_t N = 4, L = Simd<S>::kLanes;
  const int64_t elements = a.count * a.inputs * a.outputs;
  if (elements) std::memset(a.sums, 0, size_t(elements) * sizeof(S));
  const int64_t width = a.outputs > L ? N * L : L;
  for_listed<S>(a, [&](int64_t first, int64_t blocks, const EventsByInput<S>* lists) {
    parallel_for(parts_of(a.outputs, width), a.executor.threads(), [&](int64_t task) {
      width == L ? sum_channels_of<S, 1>(a, task * width, first, blocks, lists)
                 : sum_channels_of<S, N>(a, task * width, first, blocks, lists);
    });
  });
}

// Sums of connections to the kGroup outputs from `low` on, over blocks of samples: [tile][inputs][kTileOutputs]. Events
// see N steps from the one numbered `seen` on, where the one before the arrival has the number 0.
template <class S, int N>
void sum_connections(const DelayedGradientsArgs& a, int64_t low, int64_t first, int64_t blocks, int64_t seen,
                     const EventsByInput<S>* lists, const int32_t* arrivals, Values<S, N>* sums) {
  thread_local Scratch<S> signals;
  const int64_t time = a.steps + a.longest + kMoreSteps, row = signal_row(a), size = a.inputs * kTileOutputs;
  const int64_t count = smaller_of(a.outputs - low, kGroup);
  // Memory around the steps of a sample stays 0; samples behind the last one have no events.
  S* signal = signals.zeroed(kGroup * row);
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t start = first + block * kSamples, samples = smaller_of(a.batch - start, kSamples);
    // Some steps of all samples lie close together.
    for (int64_t t = 0; t < a.steps; t += kGroup) {
      for (int64_t n = 0; n < samples; ++n)
        transpose(row_of<S>(a, a.grad, t, start + n, a.outputs) + low, a.step_rows * a.outputs,
                  smaller_of(a.steps - t, kGroup), count, signal + n * time + t + 1, row);
    }
    const SortedEvents<S> sorted = lists[block].sorted();
    for (int64_t tile = 0; tile * kTileOutputs < count; ++tile) {
      const S* from = signal + tile * kTileOutputs * row + seen;
      const int32_t* by = arrivals + tile * size;
      Values<S, N>* to = sums + tile * size;
      sorted.amounts ? add_all_seen<S, N, false>(sorted, a.inputs, by, from, to)
                     : add_all_seen<S, N, true>(sorted, a.inputs, by, from, to);
    }
  }
}

template <class S, int N>
void connection_gradients(const DelayedGradientsArgs& a, int64_t seen) {
  const int threads = a.executor.threads();
  const int64_t tiles = parts_of(a.outputs, kTileOutputs), size = a.inputs * kTileOutputs;
  const int64_t tasks = parts_of(a.outputs, kGroup), apart = kGroup / kTileOutputs * size;
  thread_local Scratch<int32_t> all_arrivals;
  thread_local Scratch<Values<S, N>> all_sums;
  int32_t* arrivals = all_arrivals.reserve(tiles * size);
  Values<S, N>* sums = all_sums.zeroed(tiles * size);
  parallel_for(tiles, threads,
               [&](int64_t tile) { pack_arrivals<S>(a, tile * kTileOutputs, signal_row(a), arrivals + tile * size); });
  for_listed<S>(a, [&](int64_t first, int64_t blocks, const EventsByInput<S>* lists) {
    parallel_for(tasks, threads, [&](int64_t task) {
      sum_connections<S, N>(a, task * kGroup, first, blocks, seen, lists, arrivals + task * apart, sums + task * apart);
    });
  });
  parallel_for(tiles, threads, [&](int64_t tile) {
    gradients_of_sums<S, N>(a, tile * kTileOutputs, sums + tile * size, int(1 - seen));
  });
}

template <class S>
void gradients_of(const DelayedGradientsArgs& a) {
  // Between steps the arrival and the step behind it, at rounded delays all three or the arrival alone.
  if (a.two) return connection_gradients<S, 2>(a, 1);
  a.grad_delay ? connection_gradients<S, 4>(a, 0) : connection_gradients<S, 1>(a, 1);
}

template <class S>
void input_of(const DelayedInputArgs& a) {
  constexpr int64_t L = Simd<S>::kLanes;
  const int64_t block = InputGradient<S>::outputs_at_once(a), parts = parts_of(a.steps, kTaskSteps);
  Scratch<Connection<S>> packed;
  InputGradient<S>::pack(a, block, packed.reserve(a.inputs * a.outputs));
  parallel_for(parts_of(a.batch, L) * parts, a.executor.threads(), [&](int64_t task) {
    thread_local InputGradient<S> gradient;
    of_thread(gradient).run(a, packed.data(), block, task / parts * L, task % parts * kTaskSteps);
  });
}

void currents(const DelayedCurrentsArgs& a) {
  by_state(a.dtype, a, portable::delayed_linear_kernels.currents, [&](auto zero) { currents_of<decltype(zero)>(a); });
}
void sums(const DelayedSumsArgs& a) {
  by_state(a.dtype, a, portable::delayed_linear_kernels.sums, [&](auto zero) { sums_of<decltype(zero)>(a); });
}
void gradients(const DelayedGradientsArgs& a) {
  by_state(a.dtype, a, portable::delayed_linear_kernels.gradients, [&](auto zero) { gradients_of<decltype(zero)>(a); });
}
void input(const DelayedInputArgs& a) {
  by_state(a.dtype, a, portable::delayed_linear_kernels.input, [&](auto zero) { input_of<decltype(zero)>(a); });
}

}  // namespace

extern const DelayedLinearKernels delayed_linear_kernels = {currents, sums, gradients, input};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
