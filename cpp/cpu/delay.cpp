// Sequences whose channels arrive later.
#include "snnlib/delay/delay.h"

#include "snnlib/core/threads.h"
#include "snnlib/events/matrix.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

// Calls f(channel, at) for the elements of a sample at one step that are not zero; `at` counts from the step's first.
template <class S, class F>
inline void for_elements(const DelaySequence& a, const S* x, const F& f) {
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
      if (t + k < a.steps) {
        S* to = out + k * a.step_stride + at;
        *to = add_event(*to, first[c], x[at]);
      }
      if (second[c] != S(0) && t + k + 1 < a.steps) {
        S* to = out + (k + 1) * a.step_stride + at;
        *to = add_event(*to, second[c], x[at]);
      }
    });
  }
}

// A sample of a signal, taken from its two later steps, where the cells of a channel lie together.
template <class S>
void shift_cells(const DelayShiftArgs& a, int64_t n) {
  const S *first = static_cast<const S*>(a.first), *second = static_cast<const S*>(a.second);
  for (int64_t t = 0; t < a.steps; ++t) {
    for (int64_t c = 0; c < a.channels; ++c) {
      const int64_t here = t * a.step_stride + n * a.batch_stride + c * a.space, k = a.delays[c];
      const S* x = static_cast<const S*>(a.x) + here;
      S* out = static_cast<S*>(a.out) + here;
      // Behind the last step there is nothing.
      const S *now = t + k < a.steps ? x + k * a.step_stride : nullptr,
              *next = t + k + 1 < a.steps ? x + (k + 1) * a.step_stride : nullptr;
      for (int64_t i = 0; i < a.space; ++i)
        out[i] = two_taps(first[c], now ? now[i] : S(0), second[c], next ? next[i] : S(0));
    }
  }
}

// Delays of channels that lie together and differ. Blocks of channels and steps are copied next to each
// other, so that their delayed steps lie in the caches.
constexpr int64_t kChannels = 64, kSteps = 128;

// Whole vectors let several rows be under way at once; a copy of any length would not.
template <class S>
inline void copy_channels(const S* from, int64_t count, S* to) {
  constexpr int64_t L = Simd<S>::kLanes;
  if (count == kChannels) {
    for (int64_t i = 0; i < kChannels; i += L) store_lanes<S>(to + i, load_lanes<S>(from + i, L), L);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i];
  }
}

template <class S>
void shift_channels(const DelayShiftArgs& a, int64_t n) {
  thread_local Scratch<S> block;
  const S *first = static_cast<const S*>(a.first), *second = static_cast<const S*>(a.second);
  const int64_t lines = a.space * a.channels;
  for (int64_t low = 0; low < lines; low += kChannels) {
    const int64_t count = lines - low < kChannels ? lines - low : kChannels;
    int32_t delay[kChannels] = {};
    S by[kChannels] = {}, later_by[kChannels] = {};
    int64_t longest = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t c = (low + i) % a.channels;
      delay[i] = int32_t(a.delays[c] * kChannels + i);
      by[i] = first[c], later_by[i] = second[c];
      longest = a.delays[c] > longest ? a.delays[c] : longest;
    }
    for (int64_t start = 0; start < a.steps; start += kSteps) {
      const int64_t steps = a.steps - start < kSteps ? a.steps - start : kSteps, all = steps + longest + 1;
      S* signal = block.zeroed(all * kChannels);
      const int64_t here = start * a.step_stride + n * a.batch_stride + low;
      for (int64_t t = 0; t < all && start + t < a.steps; ++t)
        copy_channels(static_cast<const S*>(a.x) + here + t * a.step_stride, count, signal + t * kChannels);
      S now[kChannels], out[kChannels];
      for (int64_t i = 0; i < kChannels; ++i) now[i] = signal[delay[i]];
      for (int64_t t = 0; t < steps; ++t) {
        const S* later = signal + (t + 1) * kChannels;
        for (int64_t i = 0; i < kChannels; ++i) {
          const S next = later[delay[i]];
          out[i] = two_taps(by[i], now[i], later_by[i], next);
          now[i] = next;
        }
        copy_channels(out, count, static_cast<S*>(a.out) + here + t * a.step_stride);
      }
    }
  }
}

template <class S>
void shift_signal(const DelayShiftArgs& a, int64_t n) {
  a.channel_stride == 1 ? shift_channels<S>(a, n) : shift_cells<S>(a, n);
}

// Adds the products of one event.
template <class S>
inline void add_products(const DelaySequence& a, S x, const S* grad, int64_t t, int64_t c, double* sums) {
  for (int i = 0; i < 3; ++i) {
    const int64_t from = t + a.delays[c] + i - 1;
    if (from >= 0 && from < a.steps) sums[i * a.channels + c] += delay_product(x, grad[(from - t) * a.step_stride]);
  }
}

template <class S>
void sums_of_sample(const DelaySumsArgs& a, int64_t n) {
  double* sums = a.sums + n * 3 * a.channels;
  std::memset(sums, 0, size_t(3 * a.channels) * sizeof(double));
  for (int64_t t = 0; t < a.steps; ++t) {
    const int64_t here = t * a.step_stride + n * a.batch_stride;
    const S *x = static_cast<const S*>(a.x) + here, *grad = static_cast<const S*>(a.grad) + here;
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
  parallel_for(a.batch, a.executor.threads(), [&](int64_t n) { sums_of_sample<S>(a, n); });
}

void shift(const DelayShiftArgs& a) {
  by_state(a.dtype, a, portable::delay_kernels.shift, [&](auto zero) { shift_of<decltype(zero)>(a); });
}
void shift_sums(const DelaySumsArgs& a) {
  by_state(a.dtype, a, portable::delay_kernels.shift_sums, [&](auto zero) { shift_sums_of<decltype(zero)>(a); });
}
}  // namespace

extern const DelayKernels delay_kernels = {shift, shift_sums};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
