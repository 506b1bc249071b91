// A fully connected map whose events arrive later, on the CPU. What a block of outputs needs stays in the caches while
// the events of some samples go by: its weights, its delays and its time steps.
#include "snnlib/delayed_linear.h"

#include <memory>

#include "snnlib/kernels/delayed_channels.h"
#include "snnlib/kernels/delayed_connections.h"
#include "snnlib/kernels/transpose.h"
#include "snnlib/parallel.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

// Samples whose events go through a block of connections, one after the other or at once.
constexpr int64_t kSamples = 8;
// Steps of output of a buffer, at least.
constexpr int64_t kChunk = 256;
// What the buffer of a block of outputs may occupy, about the L1 cache.
constexpr int64_t kBufferBytes = 34 << 10;
// Elements of the input whose events are listed at a time.
constexpr int64_t kListed = 4 << 20;
// What the windows of a block of signals may occupy, about the L1 cache.
constexpr int64_t kWindowBytes = 40 << 10;
// Inputs whose gradients stay in the L2 cache, and steps in registers.
constexpr int64_t kInputs = 128, kSteps = 16, kFewSteps = 8;
// Steps of a task of the gradient of inputs.
constexpr int64_t kTaskSteps = 64;

int64_t smaller_of(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t larger_of(int64_t a, int64_t b) { return a > b ? a : b; }
int64_t parts_of(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

template <class S>
const S* row_of(const DelayedLinearArgs& a, const void* rows, int64_t t, int64_t n, int64_t length) {
  return static_cast<const S*>(rows) + (t * a.step_rows + n * a.batch_rows) * length;
}
template <class S>
S* row_of(const DelayedLinearArgs& a, void* rows, int64_t t, int64_t n, int64_t length) {
  return static_cast<S*>(rows) + (t * a.step_rows + n * a.batch_rows) * length;
}

// f(sample, row) for the rows of x at step t of samples from `first` on. Those of the next step are fetched meanwhile,
// as they lie too far away for the processor to foresee.
template <class S, class F>
inline void for_rows(const DelayedLinearArgs& a, int64_t t, int64_t first, int64_t samples, const F& f) {
  for (int64_t n = 0; n < samples; ++n) {
    if (t + 1 < a.steps) prefetch(row_of<S>(a, a.x, t + 1, first + n, a.inputs), a.inputs);
    f(n, row_of<S>(a, a.x, t, first + n, a.inputs));
  }
}

// Currents of samples from `first` on, by connections with these taps.
template <class S, class Taps>
void connect_samples(const DelayedCurrentsArgs& args, int64_t first, int64_t samples) {
  const DelayedLinearArgs& a = args.linear;
  thread_local EventsByInput<S> lists[kSamples];
  thread_local FoundEvents<S> found[kSamples];
  thread_local Scratch<S> buffer;
  thread_local Scratch<int32_t> all_arrivals;
  const int64_t reach = a.longest + 1, chunk = larger_of(kChunk, 4 * reach);
  for (int64_t start = 0; start < a.steps; start += chunk) {
    const int64_t end = smaller_of(start + chunk, a.steps), from = larger_of(start - reach, 0);
    for (int64_t n = 0; n < samples; ++n) lists[n].clear(a.inputs);
    for (int64_t t = from; t < end; ++t) {
      for_rows<S>(a, t, first, samples, [&](int64_t n, const S* row) { lists[n].add(row, t - from, found[n]); });
    }
    for (int64_t n = 0; n < samples; ++n) lists[n].sort(found[n]);
    // An odd length: outputs do not meet in the same sets of a cache.
    const int64_t row = (end - from + reach + 1) | 1;
    const int64_t fit = kBufferBytes / (row * int64_t(sizeof(S))) / kSumOutputs * kSumOutputs;
    const int64_t tile = larger_of(fit, kSumOutputs);
    for (int64_t low = 0; low < a.outputs; low += tile) {
      const int64_t count = smaller_of(a.outputs - low, tile);
      int32_t* arrivals = all_arrivals.reserve(a.inputs * count);
      for (int64_t i = 0; i < a.inputs; ++i) {
        const int32_t* delays = a.delays + i * a.outputs + low;
        for (int64_t o = 0; o < count; ++o) arrivals[i * count + o] = delays[o] + int32_t(o * row);
      }
      const Taps* taps = static_cast<const Taps*>(a.taps) + low;
      for (int64_t n = 0; n < samples; ++n) {
        S* to = buffer.zeroed(count * row);
        lists[n].unit() ? add_all_taps<S, Taps, true>(lists[n], a.inputs, arrivals, taps, a.outputs, count, to)
                        : add_all_taps<S, Taps, false>(lists[n], a.inputs, arrivals, taps, a.outputs, count, to);
        transpose(to + start - from, row, count, end - start, row_of<S>(a, args.out, start, first + n, a.outputs) + low,
                  a.step_rows * a.outputs);
      }
    }
  }
}

template <class S, bool Two>
void add_all_arrivals(const DelayedCurrentsArgs& args, const EventsByArrival<S>& events, int64_t n) {
  // As many vectors as there are registers for, at two steps.
  constexpr int64_t L = Simd<S>::kLanes, N = kVectorBytes == 64 ? 8 : 4;
  const DelayedLinearArgs& a = args.linear;
  S* out = row_of<S>(a, args.out, 0, n, a.outputs);
  const int64_t step = a.step_rows * a.outputs;
  int64_t low = 0;
  for (; a.outputs - low > 2 * L; low += N * L) add_arrivals<S, N, Two>(events, a, low, out + low, step);
  for (; low < a.outputs; low += L) add_arrivals<S, 1, Two>(events, a, low, out + low, step);
}

// Currents of samples from `first` on, by delays of channels.
template <class S>
void delay_samples(const DelayedCurrentsArgs& args, int64_t first, int64_t samples) {
  const DelayedLinearArgs& a = args.linear;
  thread_local EventsByArrival<S> lists[kSamples];
  for (int64_t n = 0; n < samples; ++n) lists[n].clear(a.inputs, a.steps);
  for (int64_t t = 0; t < a.steps; ++t) {
    for_rows<S>(a, t, first, samples, [&](int64_t n, const S* row) { lists[n].add(row, t, a.delays); });
  }
  for (int64_t n = 0; n < samples; ++n) {
    lists[n].sort(static_cast<const S*>(a.taps));
    a.two ? add_all_arrivals<S, true>(args, lists[n], first + n)
          : add_all_arrivals<S, false>(args, lists[n], first + n);
  }
}

template <class S>
void currents_of(const DelayedCurrentsArgs& args) {
  const DelayedLinearArgs& a = args.linear;
  const int threads = a.executor.threads();
  const int64_t size = smaller_of(kSamples, larger_of(parts_of(a.batch, threads > 1 ? threads : 1), 1));
  parallel_for(parts_of(a.batch, size), threads, [&](int64_t task) {
    const int64_t first = task * size, samples = smaller_of(a.batch - first, size);
    if (a.per_channel) return delay_samples<S>(args, first, samples);
    a.two ? connect_samples<S, Few<S, 2>>(args, first, samples) : connect_samples<S, S>(args, first, samples);
  });
}

// Events of blocks of kSamples samples by input; the time of each sample takes `row` places.
template <class S>
void list_blocks(const DelayedLinearArgs& a, int64_t first, int64_t blocks, int64_t row, EventsByInput<S>* lists) {
  parallel_for(blocks, a.executor.threads(), [&](int64_t block) {
    thread_local FoundEvents<S> found;
    EventsByInput<S>& list = lists[block];
    list.clear(a.inputs);
    const int64_t low = first + block * kSamples, samples = smaller_of(a.batch - low, kSamples);
    for (int64_t t = 0; t < a.steps; ++t)
      for_rows<S>(a, t, low, samples, [&](int64_t n, const S* x) { list.add(x, n * row + t, found); });
    list.sort(found);
  });
}

// Sums of connections to the kGroup outputs from `low` on, over blocks of samples.
template <class S>
void sum_connections(const DelayedSumsArgs& args, int64_t low, int64_t first, int64_t blocks,
                     const EventsByInput<S>* lists) {
  const DelayedLinearArgs& a = args.linear;
  thread_local Scratch<S> signals, totals;
  thread_local Scratch<int32_t> all_delays;
  // One step before the first and those that a delayed event sees behind the last.
  const int64_t time = a.steps + a.longest + 4, row = kSamples * time | kGroup;
  const int64_t count = smaller_of(a.outputs - low, kGroup), halves = parts_of(count, kSumOutputs);
  const int64_t size = a.inputs * kSumOutputs;
  S *signal = signals.reserve(kGroup * row), *sums = totals.zeroed(halves * size * 4);
  int32_t* delays = all_delays.zeroed(halves * size);
  for (int64_t i = 0; i < a.inputs; ++i) {
    for (int64_t o = 0; o < count; ++o)
      delays[o / kSumOutputs * size + i * kSumOutputs + o % kSumOutputs] = a.delays[i * a.outputs + low + o];
  }
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t start = first + block * kSamples, samples = smaller_of(a.batch - start, kSamples);
    std::memset(static_cast<void*>(signal), 0, size_t(kGroup * row) * sizeof(S));
    // Some steps of all samples lie close together.
    for (int64_t t = 0; t < a.steps; t += kGroup) {
      for (int64_t n = 0; n < samples; ++n)
        transpose(row_of<S>(a, args.grad, t, start + n, a.outputs) + low, a.step_rows * a.outputs,
                  smaller_of(a.steps - t, kGroup), count, signal + n * time + t + 1, row);
    }
    for (int64_t half = 0; half < halves; ++half) {
      const S* from = signal + half * kSumOutputs * row;
      S* to = sums + half * size * 4;
      const int32_t* by = delays + half * size;
      lists[block].unit() ? add_all_seen<S, true>(lists[block], a.inputs, by, from, row, to)
                          : add_all_seen<S, false>(lists[block], a.inputs, by, from, row, to);
    }
  }
  for (int64_t j = 0; j < args.count; ++j) {
    for (int64_t i = 0; i < a.inputs; ++i) {
      S* out = static_cast<S*>(args.sums) + (j * a.inputs + i) * a.outputs + low;
      const S* from = sums + i * kSumOutputs * 4 + args.first + 1 + j;
      for (int64_t o = 0; o < count; ++o) out[o] = out[o] + from[o / kSumOutputs * size * 4 + o % kSumOutputs * 4];
    }
  }
}

// The same per channel, for N vectors of outputs from `low` on.
template <class S, int N, int J>
void sum_channels(const DelayedSumsArgs& args, int64_t low, int64_t first, int64_t blocks,
                  const EventsByInput<S>* lists) {
  using V = typename Simd<S>::Vector;
  constexpr int64_t L = Simd<S>::kLanes;
  const DelayedLinearArgs& a = args.linear;
  thread_local Scratch<V> signals, totals;
  const int64_t time = a.steps + a.longest + 4, left = a.outputs - low;
  V *signal = signals.reserve(kSamples * time * N), *sums = totals.zeroed(a.inputs * J * N);
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t start = first + block * kSamples, samples = smaller_of(a.batch - start, kSamples);
    std::memset(static_cast<void*>(signal), 0, size_t(kSamples * time * N) * sizeof(V));
    for (int64_t t = 0; t < a.steps; ++t) {
      for (int64_t n = 0; n < samples; ++n) {
        const S* grad = row_of<S>(a, args.grad, t, start + n, a.outputs) + low;
        V* to = signal + (n * time + t + 1) * N;
        for (int64_t v = 0; v < N && v * L < left; ++v) to[v] = load_lanes<S>(grad + v * L, left - v * L);
      }
    }
    add_all_steps<S, N, J>(lists[block], a.inputs, a.delays, signal + (args.first + 1) * N, sums);
  }
  for (int64_t j = 0; j < J; ++j) {
    for (int64_t i = 0; i < a.inputs; ++i) {
      S* out = static_cast<S*>(args.sums) + (j * a.inputs + i) * a.outputs + low;
      for (int64_t v = 0; v < N && v * L < left; ++v) {
        const V more = sums[(i * J + j) * N + v];
        store_lanes<S>(out + v * L, load_lanes<S>(out + v * L, left - v * L) + more, left - v * L);
      }
    }
  }
}

template <class S, int N>
void sum_channels_of(const DelayedSumsArgs& args, int64_t low, int64_t first, int64_t blocks,
                     const EventsByInput<S>* lists) {
  if (args.count == 1) return sum_channels<S, N, 1>(args, low, first, blocks, lists);
  if (args.count == 2) return sum_channels<S, N, 2>(args, low, first, blocks, lists);
  sum_channels<S, N, 3>(args, low, first, blocks, lists);
}

template <class S>
void sums_of(const DelayedSumsArgs& args) {
  const DelayedLinearArgs& a = args.linear;
  constexpr int64_t N = 4, L = Simd<S>::kLanes;
  const int64_t elements = args.count * a.inputs * a.outputs;
  if (elements) std::memset(args.sums, 0, size_t(elements) * sizeof(S));
  const int64_t row = a.steps + a.longest + 4, sample = larger_of(a.steps * a.inputs, 1);
  const int64_t at_once = larger_of(kListed / (kSamples * sample), 1), all = parts_of(a.batch, kSamples);
  const int64_t width = !a.per_channel ? kGroup : a.outputs > L ? N * L : L;
  const std::unique_ptr<EventsByInput<S>[]> lists(new EventsByInput<S>[size_t(smaller_of(at_once, all))]);
  for (int64_t block = 0; block < all; block += at_once) {
    const int64_t blocks = smaller_of(all - block, at_once), first = block * kSamples;
    list_blocks(a, first, blocks, row, lists.get());
    parallel_for(parts_of(a.outputs, width), a.executor.threads(), [&](int64_t task) {
      const int64_t low = task * width;
      if (!a.per_channel) return sum_connections<S>(args, low, first, blocks, lists.get());
      width == L ? sum_channels_of<S, 1>(args, low, first, blocks, lists.get())
                 : sum_channels_of<S, N>(args, low, first, blocks, lists.get());
    });
  }
}

// The gradient of inputs for a vector of samples and some steps.
template <class S>
class InputGradient {
  using V = typename Simd<S>::Vector;
  static constexpr int64_t L = Simd<S>::kLanes;

 public:
  // Outputs whose windows of the signal stay in the L1 cache.
  static int64_t outputs_at_once(const DelayedLinearArgs& a) {
    const int64_t fit = kWindowBytes / ((kSteps + a.longest + 2) * int64_t(sizeof(V)));
    return fit < 2 ? 2 : fit > 16 ? 16 : fit;
  }

  // Connections [outputs / block][inputs][block].
  static void pack(const DelayedLinearArgs& a, int64_t block, Connection<S>* packed) {
    const S* taps = static_cast<const S*>(a.taps);
    for (int64_t low = 0; low < a.outputs; low += block) {
      const int64_t count = smaller_of(a.outputs - low, block);
      for (int64_t i = 0; i < a.inputs; ++i) {
        for (int64_t o = 0; o < count; ++o) {
          const int64_t at = i * a.outputs + low + o;
          packed[low * a.inputs + i * count + o] = {a.delays[at], taps[a.two ? 2 * at : at],
                                                    a.two ? taps[2 * at + 1] : S(0)};
        }
      }
    }
  }

  void run(const DelayedInputArgs& args, const Connection<S>* packed, int64_t block, int64_t sample, int64_t start) {
    const DelayedLinearArgs& a = args.linear;
    const int64_t end = smaller_of(start + kTaskSteps, a.steps);
    row_ = parts_of(end - start, kFewSteps) * kFewSteps + a.longest + 2;
    lanes_ = smaller_of(a.batch - sample, L);
    load_signal(args, sample, start);
    for (int64_t first = 0; first < a.inputs; first += kInputs) {
      const int64_t inputs = smaller_of(a.inputs - first, kInputs);
      for (int64_t t = start, done; t < end; t += done) {
        done = end - t > kFewSteps ? kSteps : kFewSteps;
        const V* signal = signal_.data() + t - start;
        const int64_t steps = smaller_of(end - t, done);
        if (done == kSteps) {
          a.two ? add<kSteps, true>(a, packed, block, first, inputs, signal)
                : add<kSteps, false>(a, packed, block, first, inputs, signal);
        } else {
          a.two ? add<kFewSteps, true>(a, packed, block, first, inputs, signal)
                : add<kFewSteps, false>(a, packed, block, first, inputs, signal);
        }
        store(args, sample, t, steps, done, first, inputs);
      }
    }
  }

 private:
  void load_signal(const DelayedInputArgs& args, int64_t sample, int64_t start) {
    const DelayedLinearArgs& a = args.linear;
    S* signal = reinterpret_cast<S*>(signal_.zeroed(a.outputs * row_));
    const int64_t end = smaller_of(start + row_, a.steps);
    for (int64_t low = 0; low < a.outputs; low += kGroup) {
      for (int64_t t = start; t < end; ++t)
        transpose(row_of<S>(a, args.grad, t, sample, a.outputs) + low, a.batch_rows * a.outputs, lanes_,
                  smaller_of(a.outputs - low, kGroup), signal + (low * row_ + t - start) * L, row_ * L);
    }
  }

  template <int T, bool Two>
  void add(const DelayedLinearArgs& a, const Connection<S>* packed, int64_t block, int64_t first, int64_t inputs,
           const V* signal) {
    V* sums = sums_.zeroed(inputs * T);
    for (int64_t low = 0; low < a.outputs; low += block) {
      const int64_t count = smaller_of(a.outputs - low, block);
      add_all_signals<S, T, Two>(packed + low * a.inputs + first * count, inputs, count, signal + low * row_, row_,
                                 sums);
    }
  }

  void store(const DelayedInputArgs& args, int64_t sample, int64_t start, int64_t steps, int64_t apart, int64_t first,
             int64_t inputs) {
    const DelayedLinearArgs& a = args.linear;
    const S* sums = reinterpret_cast<const S*>(sums_.data());
    for (int64_t t = 0; t < steps; ++t)
      transpose(sums + t * L, apart * L, inputs, lanes_, row_of<S>(a, args.grad_x, start + t, sample, a.inputs) + first,
                a.batch_rows * a.inputs);
  }

  int64_t row_ = 0, lanes_ = 0;
  Scratch<V> signal_, sums_;
};

template <class S>
void input_of(const DelayedInputArgs& args) {
  const DelayedLinearArgs& a = args.linear;
  constexpr int64_t L = Simd<S>::kLanes;
  const int64_t block = InputGradient<S>::outputs_at_once(a), parts = parts_of(a.steps, kTaskSteps);
  Scratch<Connection<S>> packed;
  InputGradient<S>::pack(a, block, packed.reserve(a.inputs * a.outputs));
  parallel_for(parts_of(a.batch, L) * parts, a.executor.threads(), [&](int64_t task) {
    thread_local InputGradient<S> gradient;
    gradient.run(args, packed.data(), block, task / parts * L, task % parts * kTaskSteps);
  });
}

void currents(const DelayedCurrentsArgs& a) {
  by_state(a.linear.dtype, a, portable::delayed_linear_kernels.currents,
           [&](auto zero) { currents_of<decltype(zero)>(a); });
}
void sums(const DelayedSumsArgs& a) {
  by_state(a.linear.dtype, a, portable::delayed_linear_kernels.sums, [&](auto zero) { sums_of<decltype(zero)>(a); });
}
void input(const DelayedInputArgs& a) {
  by_state(a.linear.dtype, a, portable::delayed_linear_kernels.input, [&](auto zero) { input_of<decltype(zero)>(a); });
}

}  // namespace

extern const DelayedLinearKernels delayed_linear_kernels = {currents, sums, input};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
