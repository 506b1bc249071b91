// Recurrent spikes that arrive later, with a delay for each connection: what they send to the neurons of a sample, and
// what the neurons' signals send back. Equations: snnlib/loop/recurrent.h. Sums are taken in one order on every
// instruction set: of what arrives at a step by time and then by neuron, of signals by neuron, those of the first and
// of the second taps apart. Sparse connections meet a window with the neurons of a step side by side, and take the sums
// of events/sparse_rows.h.
#pragma once

#include "snnlib/delay/connections.h"
#include "snnlib/events/matrix.h"
#include "snnlib/events/sparse_rows.h"
#include "snnlib/loop/recurrent.h"

namespace snnlib {
namespace SNNLIB_ISA {

template <class S, class Args>
SparseRows<S> rows_of(const Args& a) {
  return {static_cast<const S*>(a.weight), a.starts, a.targets, a.view.inner, a.view.inner};
}

// Steps of the future or past of each neuron, side by side: a row holds a window of steps that moves with time. Rows
// are an odd number of cache lines long, or those of many neurons would share few places in the cache. With sparse
// connections there is one row, of steps that are as wide as there are neurons.
template <class S>
class StepWindow {
 public:
  // The longest delay spans two steps more with both of its taps.
  static int64_t row_of(int64_t longest) {
    constexpr int64_t line = 64 / int64_t(sizeof(S)), more = 16;
    return ((longest + 2 + more + line - 1) / line | 1) * line;
  }

  template <class Args>
  void start(const Args& a, int64_t first) {
    const int64_t neurons = a.view.inner, longest = a.delays.longest;
    rows_ = a.starts ? 1 : neurons, width_ = a.starts ? neurons : 1;
    reach_ = longest + 2, row_ = row_of(longest), first_ = first;
    cells_.zeroed(neurons * row_);
  }

  // Neuron 0 at this step.
  S* at(int64_t t) const { return cells_.data() + (t - first_) * width_; }
  // From a neuron to the next one.
  int64_t stride() const { return rows_ > 1 ? row_ : 1; }
  int64_t last() const { return first_ + row_ - 1; }

  // Lets go of all steps before `t`, where step t + longest + 1 has no place yet; new steps are zero.
  void forget_before(int64_t t) {
    if (t + reach_ - 1 <= last()) return;
    const int64_t gone = t - first_, kept = row_ - gone;
    for (int64_t i = 0; i < rows_; ++i) {
      S* row = cells_.data() + i * row_ * width_;
      std::memmove(row, row + gone * width_, size_t(kept * width_) * sizeof(S));
      std::memset(row + kept * width_, 0, size_t(gone * width_) * sizeof(S));
    }
    first_ = t;
  }

  // Lets go of steps after t + longest + 2, where step t has no place yet. What new steps hold is not said.
  void forget_behind(int64_t t) {
    if (t >= first_) return;
    const int64_t gone = last() - (t + reach_);
    for (int64_t i = 0; i < rows_; ++i) {
      S* row = cells_.data() + i * row_ * width_;
      std::memmove(row + gone * width_, row, size_t((row_ - gone) * width_) * sizeof(S));
    }
    first_ -= gone;
  }

 private:
  int64_t rows_ = 0, width_ = 0, reach_ = 0, row_ = 0, first_ = 0;
  Scratch<S> cells_;
};

// A connection's place in the window of the neuron that it leads to, for spikes that arrive at the next step without
// delay, and its taps at that step and the one behind. Where delays are rounded the second is 0: one alone would be no
// faster.
template <class S>
struct DelayedConnection {
  int32_t place;
  S tap[2];
};

// All connections of a full matrix, [from][to]; none without delays.
template <class S>
class DelayedConnections {
 public:
  template <class Args>
  explicit DelayedConnections(const Args& a) : neurons_(a.view.inner) {
    if (!a.delays.delay || a.starts) return;
    const int64_t row = StepWindow<S>::row_of(a.delays.longest);
    const S *delay = static_cast<const S*>(a.delays.delay), *weight = static_cast<const S*>(a.weight);
    DelayedConnection<S>* to = connections_.reserve(neurons_ * neurons_);
    for (int64_t j = 0; j < neurons_; ++j) {
      for (int64_t i = 0; i < neurons_; ++i, ++to) {
        const SplitDelay<S> split = split_delay(a.delays, delay[i * neurons_ + j]);
        const S w = weight[i * neurons_ + j];
        *to = {split.whole + int32_t(i * row), {w * (S(1) - split.rest), w * split.rest}};
      }
    }
  }
  const DelayedConnection<S>* from(int64_t neuron) const { return connections_.data() + neuron * neurons_; }

 private:
  int64_t neurons_;
  Scratch<DelayedConnection<S>> connections_;
};

// The taps of all sparse connections of a call as rows of connections to the neurons of every step of a window; none
// without delays. Where delays are rounded there are first taps alone.
template <class S>
class DelayedRows {
 public:
  template <class Args>
  explicit DelayedRows(const Args& a) {
    if (!a.delays.delay || !a.starts) return;
    const int64_t neurons = a.view.inner, taps = a.delays.two ? 2 : 1, all = taps * a.starts[neurons];
    const S* delay = static_cast<const S*>(a.delays.delay);
    const SparseRows<S> rows = rows_of<S>(a);
    int64_t* starts = starts_.reserve(neurons + 1);
    int32_t* targets = targets_.reserve(all);
    S* weights = weights_.reserve(all);
    for (int64_t j = 0; j < neurons; ++j) {
      check_starts(rows, j, j + 1);
      if (!are_within(a.targets + a.starts[j], rows.count(j), 0, neurons)) refuse_row(rows, j);
      starts[j] = taps * a.starts[j];
      for (int64_t c = a.starts[j]; c < a.starts[j + 1]; ++c) {
        const SplitDelay<S> split = split_delay(a.delays, delay[c]);
        const S shares[2] = {S(1) - split.rest, split.rest};
        for (int64_t tap = 0; tap < taps; ++tap) {
          targets[taps * c + tap] = int32_t((split.whole + tap) * neurons + a.targets[c]);
          weights[taps * c + tap] = rows.weight[c] * shares[tap];
        }
      }
    }
    starts[neurons] = all;
    rows_ = {weights, starts, targets, neurons, (a.delays.longest + 2) * neurons};
  }
  const SparseRows<S>& rows() const { return rows_; }

 private:
  SparseRows<S> rows_{};
  Scratch<int64_t> starts_;
  Scratch<int32_t> targets_;
  Scratch<S> weights_;
};

// The connections of a call with delays, full or sparse.
template <class S>
struct LateConnections {
  template <class Args>
  explicit LateConnections(const Args& a) : full(a), sparse(a) {}
  DelayedConnections<S> full;
  DelayedRows<S> sparse;
};

// The currents of spikes on their way to the neurons of a sample.
template <class S>
class ArrivingCurrents {
 public:
  // Before step 0, with the spikes of the steps before it, the newest first: [longest + 2] rows that lie `stride`
  // apart.
  template <class Args>
  void start(const Args& a, const LateConnections<S>& connections, const S* past, int64_t stride,
             const Fired<S>& room) {
    neurons_ = a.view.inner, sparse_ = a.starts, connections_ = &connections;
    const int64_t neurons = neurons_, kept = a.delays.longest + 2;
    window_.start(a, -kept);
    for (int64_t ago = kept; past && ago > 0; --ago) {
      Fired<S> fired = room;
      fired.count = append_row(past + (ago - 1) * stride, neurons, fired.neuron, fired.amount);
      send(-ago, fired);
    }
  }

  // sum += what arrives at step t.
  void add(int64_t t, S* sum) const {
    const S* from = window_.at(t);
    for (int64_t i = 0; i < neurons_; ++i) sum[i] = sum[i] + from[i * window_.stride()];
  }

  // Spikes of step t.
  SNNLIB_NOINLINE void send(int64_t t, const Fired<S>& fired) {
    window_.forget_before(t + 1);
    const int64_t neurons = neurons_;
    S* next = window_.at(t + 1);
    const SparseRows<S>& rows = connections_->sparse.rows();
    if (sparse_) return add_rows(rows, fired, {0, rows.outputs, 0, 1}, next);
    for (int64_t e = 0; e < fired.count; ++e) {
      const DelayedConnection<S>* to = connections_->full.from(fired.neuron[e]);
      for (int64_t i = 0; i < neurons; ++i) {
        Few<S, 2> tap, sum;
        std::memcpy(&tap, to[i].tap, sizeof tap);
        std::memcpy(&sum, next + to[i].place, sizeof sum);
        sum = sum + fired.amount[e] * tap;
        std::memcpy(next + to[i].place, &sum, sizeof sum);
      }
    }
  }

 private:
  int64_t neurons_ = 0;
  bool sparse_ = false;
  const LateConnections<S>* connections_ = nullptr;
  StepWindow<S> window_;
};

// dL/dI of the steps behind, as the neurons of a sample that sent spikes into them see it.
template <class S>
class DelayedSignals {
 public:
  template <class Args>
  void start(const Args& a, const LateConnections<S>& connections, int64_t steps) {
    neurons_ = a.view.inner, sparse_ = a.starts, connections_ = &connections;
    window_.start(a, steps + a.delays.longest + 2 - StepWindow<S>::row_of(a.delays.longest));
  }

  // dL/dI of step t.
  void keep(int64_t t, const S* signal) {
    window_.forget_behind(t);
    S* to = window_.at(t);
    for (int64_t i = 0; i < neurons_; ++i) to[i * window_.stride()] = signal[i];
  }

  // out[j] = sum over i of first_ij dL/dI[t + 1 + k_ij]_i + second_ij dL/dI[t + 2 + k_ij]_i, for the neurons j listed.
  void see(int64_t t, const int32_t* neurons, int64_t count, S* out) const {
    if (sparse_) return rows_times(connections_->sparse.rows(), neurons, count, window_.at(t + 1), out);
    int64_t n = 0;
    for (; n + kTogether <= count; n += kTogether) see_some(t, neurons + n, out);
    if (n == count) return;
    // The last neuron fills up the rest.
    int32_t rest[kTogether];
    for (int64_t m = 0; m < kTogether; ++m) rest[m] = neurons[n + m < count ? n + m : count - 1];
    see_some(t, rest, out);
  }

 private:
  // Neurons that look at once: their sums do not wait for each other.
  static constexpr int64_t kTogether = 8;

  SNNLIB_NOINLINE void see_some(int64_t t, const int32_t* neurons, S* out) const {
    const int64_t count = neurons_;
    const S* next = window_.at(t + 1);
    const DelayedConnection<S>* to[kTogether];
    Few<S, 2> sums[kTogether] = {};
    for (int64_t m = 0; m < kTogether; ++m) to[m] = connections_->full.from(neurons[m]);
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t m = 0; m < kTogether; ++m) {
        Few<S, 2> tap, seen;
        std::memcpy(&tap, to[m][i].tap, sizeof tap);
        std::memcpy(&seen, next + to[m][i].place, sizeof seen);
        sums[m] = sums[m] + seen * tap;
      }
    }
    for (int64_t m = 0; m < kTogether; ++m) {
      S lane[2];
      std::memcpy(lane, &sums[m], sizeof lane);
      out[neurons[m]] = lane[0] + lane[1];
    }
  }

  int64_t neurons_ = 0;
  bool sparse_ = false;
  const LateConnections<S>* connections_ = nullptr;
  StepWindow<S> window_;
};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
