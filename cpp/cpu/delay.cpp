// Delays on the CPU. Per channel, a shift of the sequence, at the speed of memory. Per connection, an event adds its
// two taps to a buffer that has the time of each output in one piece, so that both are one small vector.
#include "snnlib/delay.h"

#include "snnlib/kernels/recurrent_rows.h"
#include "snnlib/parallel.h"
#include "snnlib/scratch.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

// Steps that the buffer of a sample takes up before they are written out.
constexpr int64_t kChunk = 16;
// What the windows of a tile of outputs may occupy in the L1 cache.
constexpr int64_t kWindowBytes = 20 << 10;
// What the sums of a task's connections may occupy in the L2 cache.
constexpr int64_t kSumBytes = 384 << 10;

// Calls f(channel, at) for the elements of a sample at one step that are not zero; `at` counts from the step's first.
template <class S, class F>
inline void for_elements(const DelayShiftArgs& a, const S* x, const F& f) {
  constexpr int64_t L = Simd<S>::kLanes;
  const bool by_channel = a.channel_stride == 1;
  const int64_t lines = by_channel ? a.space : a.channels, length = by_channel ? a.channels : a.space;
  for (int64_t line = 0; line < lines; ++line) {
    const int64_t start = line * length;
    for (int64_t i = 0; i < length; i += L) {
      for (uint32_t bits = nonzero_bits<S>(load_lanes<S>(x + start + i, length - i)); bits; bits &= bits - 1) {
        const int64_t e = i + lowest_bit(bits);
        f(by_channel ? e : line, start + e);
      }
    }
  }
}

// A sample's events, each added at its two later steps.
template <class S>
void shift_events(const DelayShiftArgs& a, int64_t n) {
  const int64_t count = a.channels * a.space;
  const S *first = static_cast<const S*>(a.first), *second = static_cast<const S*>(a.second);
  for (int64_t t = 0; t < a.steps; ++t)
    std::memset(static_cast<S*>(a.out) + t * a.step_stride + n * a.batch_stride, 0, size_t(count) * sizeof(S));
  for (int64_t t = 0; t < a.steps; ++t) {
    const int64_t here = t * a.step_stride + n * a.batch_stride;
    const S* x = static_cast<const S*>(a.x) + here;
    S* out = static_cast<S*>(a.out) + here;
    for_elements(a, x, [&](int64_t c, int64_t at) {
      const int64_t k = a.delays[c];
      if (t + k < a.steps) out[k * a.step_stride + at] = out[k * a.step_stride + at] + first[c] * x[at];
      if (second[c] != S(0) && t + k + 1 < a.steps) {
        S* to = out + (k + 1) * a.step_stride + at;
        *to = *to + second[c] * x[at];
      }
    });
  }
}

// A sample of a signal, taken from its two later steps.
template <class S>
void shift_signal(const DelayShiftArgs& a, int64_t n) {
  const bool by_channel = a.channel_stride == 1;
  const int64_t lines = by_channel ? a.space : a.channels, length = by_channel ? a.channels : a.space;
  const S *first = static_cast<const S*>(a.first), *second = static_cast<const S*>(a.second);
  const auto tap = [&](const S* from, int64_t t, int64_t steps) {
    return t + steps < a.steps ? from[steps * a.step_stride] : S(0);
  };
  for (int64_t t = 0; t < a.steps; ++t) {
    for (int64_t line = 0; line < lines; ++line) {
      const int64_t here = t * a.step_stride + n * a.batch_stride + line * length;
      const S* x = static_cast<const S*>(a.x) + here;
      S* out = static_cast<S*>(a.out) + here;
      for (int64_t i = 0; i < length; ++i) {
        const int64_t c = by_channel ? i : line, k = a.delays[c];
        out[i] = first[c] * tap(x + i, t, k) + second[c] * tap(x + i, t, k + 1);
      }
    }
  }
}

// Adds the products of one event.
template <class S>
inline void add_products(const DelayShiftArgs& a, S x, const S* grad, int64_t t, int64_t c, double* sums) {
  for (int i = 0; i < 3; ++i) {
    const int64_t from = t + a.delays[c] + i - 1;
    if (from >= 0 && from < a.steps) sums[i * a.channels + c] += double(x) * double(grad[(from - t) * a.step_stride]);
  }
}

template <class S>
void sums_of_sample(const DelaySumsArgs& args, int64_t n) {
  const DelayShiftArgs& a = args.sequence;
  double* sums = args.sums + n * 3 * a.channels;
  std::memset(sums, 0, size_t(3 * a.channels) * sizeof(double));
  for (int64_t t = 0; t < a.steps; ++t) {
    const int64_t here = t * a.step_stride + n * a.batch_stride;
    const S *x = static_cast<const S*>(a.x) + here, *grad = static_cast<const S*>(args.grad) + here;
    for_elements(a, x, [&](int64_t c, int64_t at) { add_products(a, x[at], grad + at, t, c, sums); });
  }
}

// So many outputs at a time that their windows of `steps` stay in the L1 cache.
template <class S>
int64_t tile_of(int64_t steps) {
  const int64_t fit = kWindowBytes / (steps * int64_t(sizeof(S)));
  return fit < kGroup ? kGroup : fit;
}

// Two neighbouring values as one vector, where there are vectors.
#if defined(__GNUC__)
template <class S>
struct PairOf;
template <>
struct PairOf<float> {
  typedef float Type __attribute__((vector_size(8)));
};
template <>
struct PairOf<double> {
  typedef double Type __attribute__((vector_size(16)));
};
template <class S>
using Pair = typename PairOf<S>::Type;
#else
template <class S>
struct Pair {
  S value[2];
  Pair operator+(Pair b) const { return {{value[0] + b.value[0], value[1] + b.value[1]}}; }
};
template <class S>
Pair<S> operator*(S by, Pair<S> p) {
  return {{by * p.value[0], by * p.value[1]}};
}
#endif

template <class S>
inline Pair<S> load_pair(const S* p) {
  Pair<S> pair;
  std::memcpy(&pair, p, sizeof pair);
  return pair;
}

template <class S>
inline void add_pair(S* p, Pair<S> more) {
  const Pair<S> sum = load_pair(p) + more;
  std::memcpy(p, &sum, sizeof sum);
}

// Events of several steps in the order of time.
template <class S>
struct Events {
  Scratch<int32_t> step, input;
  Scratch<S> amount;
  int64_t count = 0;

  // Takes up those of a row of `inputs`.
  void add(const S* x, int64_t inputs, int64_t t) {
    const int64_t room = count + inputs + kMoreEvents;
    int32_t *steps = step.grow(room, count), *numbers = input.grow(room, count);
    const int64_t found = append_row(x, inputs, numbers + count, amount.grow(room, count) + count);
    for (int64_t e = count; e < count + found; ++e) steps[e] = int32_t(t);
    count += found;
  }
};

template <class S>
const S* row_of(const DelayedLinearArgs& a, const void* rows, int64_t t, int64_t n, int64_t length) {
  return static_cast<const S*>(rows) + (t * a.step_rows + n * a.batch_rows) * length;
}

template <class S>
void linear_of_sample(const DelayedLinearArgs& a, int64_t n) {
  thread_local Scratch<S> scratch;
  thread_local Events<S> events;
  // An odd length: outputs do not meet in the same sets of a cache.
  const int64_t padded = (kChunk + a.longest + 2) | 1, tile = tile_of<S>(padded);
  S* buffer = scratch.zeroed(a.outputs * padded);
  for (int64_t first = 0; first < a.steps; first += kChunk) {
    const int64_t end = first + kChunk < a.steps ? first + kChunk : a.steps, done = end - first;
    events.count = 0;
    for (int64_t t = first; t < end; ++t) events.add(row_of<S>(a, a.x, t, n, a.inputs), a.inputs, t - first);
    for (int64_t low = 0; low < a.outputs; low += tile) {
      const int64_t count = a.outputs - low < tile ? a.outputs - low : tile;
      for (int64_t e = 0; e < events.count; ++e) {
        const int64_t at = events.input.data()[e] * a.outputs + low;
        const S amount = events.amount.data()[e];
        const int32_t* delays = a.delays + at;
        const S* taps = static_cast<const S*>(a.taps) + 2 * at;
        S* to = buffer + low * padded + events.step.data()[e];
        for (int64_t o = 0; o < count; ++o, to += padded) add_pair(to + delays[o], amount * load_pair(taps + 2 * o));
      }
      for (int64_t t = 0; t < done; ++t) {
        S* out = const_cast<S*>(row_of<S>(a, a.out, first + t, n, a.outputs)) + low;
        for (int64_t o = 0; o < count; ++o) out[o] = buffer[(low + o) * padded + t];
      }
      for (int64_t o = low; o < low + count; ++o) {
        S* row = buffer + o * padded;
        std::memmove(row, row + done, size_t(padded - done) * sizeof(S));
        std::memset(static_cast<void*>(row + padded - done), 0, size_t(done) * sizeof(S));
      }
    }
  }
}

// The sums of the connections that lead from inputs `first` to `first + count`.
template <class S>
void sums_of_inputs(const DelayedSumsArgs& args, int64_t first, int64_t count) {
  const DelayedLinearArgs& a = args.linear;
  thread_local Events<S> events;
  const int64_t tile = tile_of<S>(a.longest + kChunk);
  S* sums = static_cast<S*>(args.sums) + first * a.outputs * 2;
  std::memset(static_cast<void*>(sums), 0, size_t(count * a.outputs * 2) * sizeof(S));
  for (int64_t n = 0; n < a.batch; ++n) {
    events.count = 0;
    for (int64_t t = 0; t < a.steps; ++t) events.add(row_of<S>(a, a.x, t, n, a.inputs) + first, count, t);
    for (int64_t low = 0; low < a.outputs; low += tile) {
      const int64_t size = a.outputs - low < tile ? a.outputs - low : tile;
      const S* grad = static_cast<const S*>(args.grad) + (n * a.outputs + low) * args.padded + args.before;
      for (int64_t e = 0; e < events.count; ++e) {
        const int64_t i = events.input.data()[e];
        const S amount = events.amount.data()[e];
        const int32_t* delays = a.delays + (first + i) * a.outputs + low;
        const S* from = grad + events.step.data()[e];
        S* to = sums + (i * a.outputs + low) * 2;
        for (int64_t o = 0; o < size; ++o, from += args.padded)
          add_pair(to + 2 * o, amount * load_pair(from + delays[o]));
      }
    }
  }
}

template <class S>
void shift_of(const DelayShiftArgs& a) {
  parallel_for(a.batch, a.executor.threads(),
               [&](int64_t n) { a.earlier ? shift_signal<S>(a, n) : shift_events<S>(a, n); });
}

template <class S>
void shift_sums_of(const DelaySumsArgs& a) {
  parallel_for(a.sequence.batch, a.sequence.executor.threads(), [&](int64_t n) { sums_of_sample<S>(a, n); });
}

template <class S>
void linear_of(const DelayedLinearArgs& a) {
  parallel_for(a.batch, a.executor.threads(), [&](int64_t n) { linear_of_sample<S>(a, n); });
}

template <class S>
void linear_sums_of(const DelayedSumsArgs& a) {
  const int64_t inputs = a.linear.inputs, bytes = a.linear.outputs * 2 * int64_t(sizeof(S)) + 1;
  const int64_t threads = a.linear.executor.threads() > 1 ? a.linear.executor.threads() : 1;
  const int64_t share = (inputs + threads - 1) / threads, fit = kSumBytes / bytes;
  const int64_t size = share < fit ? share : fit < kGroup ? kGroup : fit;
  if (!inputs) return;
  parallel_for((inputs + size - 1) / size, int(threads), [&](int64_t task) {
    const int64_t first = task * size, left = inputs - first;
    sums_of_inputs<S>(a, first, left < size ? left : size);
  });
}

void shift(const DelayShiftArgs& a) {
  by_state(a.dtype, a, portable::delay_kernels.shift, [&](auto zero) { shift_of<decltype(zero)>(a); });
}
void shift_sums(const DelaySumsArgs& a) {
  by_state(a.sequence.dtype, a, portable::delay_kernels.shift_sums,
           [&](auto zero) { shift_sums_of<decltype(zero)>(a); });
}
void linear(const DelayedLinearArgs& a) {
  by_state(a.dtype, a, portable::delay_kernels.linear, [&](auto zero) { linear_of<decltype(zero)>(a); });
}
void linear_sums(const DelayedSumsArgs& a) {
  by_state(a.linear.dtype, a, portable::delay_kernels.linear_sums,
           [&](auto zero) { linear_sums_of<decltype(zero)>(a); });
}

}  // namespace

extern const DelayKernels delay_kernels = {shift, shift_sums, linear, linear_sums};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
