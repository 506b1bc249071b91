// Sequences whose channels arrive later, at the speed of memory.
#include "snnlib/delay.h"

#include "snnlib/kernels/recurrent_rows.h"
#include "snnlib/parallel.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

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

template <class S>
void shift_of(const DelayShiftArgs& a) {
  parallel_for(a.batch, a.executor.threads(),
               [&](int64_t n) { a.earlier ? shift_signal<S>(a, n) : shift_events<S>(a, n); });
}

template <class S>
void shift_sums_of(const DelaySumsArgs& a) {
  parallel_for(a.sequence.batch, a.sequence.executor.threads(), [&](int64_t n) { sums_of_sample<S>(a, n); });
}

void shift(const DelayShiftArgs& a) {
  by_state(a.dtype, a, portable::delay_kernels.shift, [&](auto zero) { shift_of<decltype(zero)>(a); });
}
void shift_sums(const DelaySumsArgs& a) {
  by_state(a.sequence.dtype, a, portable::delay_kernels.shift_sums,
           [&](auto zero) { shift_sums_of<decltype(zero)>(a); });
}
}  // namespace

extern const DelayKernels delay_kernels = {shift, shift_sums};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
