// Delays per connection: the dense gradient of inputs. Equations: snnlib/delay/linear.h. Outputs are added up in
// their order, block by block, with the bits of every instruction set: products are rounded before they are added.
#pragma once

#include "snnlib/core/transpose.h"
#include "snnlib/delay/connections.h"
#include "snnlib/delay/rows.h"

namespace snnlib {
namespace SNNLIB_ISA {

// Bytes that the windows of a block of signals may occupy, about the L1 cache.
constexpr int64_t kWindowBytes = 40 << 10;
// Inputs whose gradients stay in the L2 cache, and steps in registers.
constexpr int64_t kInputs = 128, kSteps = 16, kFewSteps = 8;
// Steps of a task of the gradient of inputs.
constexpr int64_t kTaskSteps = 64;

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
  V total[T];
  for (int t = 0; t < T; ++t) total[t] = to[t];
  for (int64_t o = 0; o < count; ++o) {
    const Connection<S> c = connections[o];
    const V* from = signal + o * row + c.delay;
    for (int t = 0; t < T; ++t) total[t] = total[t] + c.first * from[t];
    if constexpr (Two) {
      for (int t = 0; t < T; ++t) total[t] = total[t] + c.second * from[t + 1];
    }
  }
  for (int t = 0; t < T; ++t) to[t] = total[t];
}

template <class S, int T, bool Two>
SNNLIB_NOINLINE void add_all_signals(const Connection<S>* connections, int64_t inputs, int64_t count,
                                     const typename Simd<S>::Vector* signal, int64_t row,
                                     typename Simd<S>::Vector* to) {
  for (int64_t i = 0; i < inputs; ++i) add_signals<S, T, Two>(connections + i * count, count, signal, row, to + i * T);
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
    for (int64_t low = 0; low < a.outputs; low += block) {
      const int64_t count = smaller_of(a.outputs - low, block);
      for (int64_t i = 0; i < a.inputs; ++i) {
        for (int64_t o = 0; o < count; ++o) {
          const int64_t at = (low + o) * a.inputs + i;
          const SplitDelay<S> split = split_delay(a, static_cast<const S*>(a.delay)[at]);
          const S w = static_cast<const S*>(a.weight)[at];
          packed[low * a.inputs + i * count + o] = {split.whole, w * (S(1) - split.rest), w * split.rest};
        }
      }
    }
  }

  void run(const DelayedInputArgs& a, const Connection<S>* packed, int64_t block, int64_t sample, int64_t start) {
    const int64_t end = smaller_of(start + kTaskSteps, a.steps);
    row_ = parts_of(end - start, kFewSteps) * kFewSteps + a.longest + 2;
    lanes_ = smaller_of(a.batch - sample, L);
    load_signal(a, sample, start);
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
        store(a, sample, t, steps, done, first, inputs);
      }
    }
  }

 private:
  void load_signal(const DelayedInputArgs& a, int64_t sample, int64_t start) {
    S* signal = reinterpret_cast<S*>(signal_.zeroed(a.outputs * row_));
    const int64_t end = smaller_of(start + row_, a.steps);
    for (int64_t low = 0; low < a.outputs; low += kGroup) {
      for (int64_t t = start; t < end; ++t)
        transpose(row_of<S>(a, a.grad, t, sample, a.outputs) + low, a.batch_rows * a.outputs, lanes_,
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

  void store(const DelayedInputArgs& a, int64_t sample, int64_t start, int64_t steps, int64_t apart, int64_t first,
             int64_t inputs) {
    const S* sums = reinterpret_cast<const S*>(sums_.data());
    for (int64_t t = 0; t < steps; ++t)
      transpose(sums + t * L, apart * L, inputs, lanes_, row_of<S>(a, a.grad_x, start + t, sample, a.inputs) + first,
                a.batch_rows * a.inputs);
  }

  int64_t row_ = 0, lanes_ = 0;
  Scratch<V> signal_, sums_;
};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
