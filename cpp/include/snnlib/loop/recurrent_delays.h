// Recurrent spikes that arrive later, with a delay for each connection: what they send to the neurons of a sample, and
// what the neurons' signals send back. Equations: snnlib/loop/recurrent.h. Sums are taken in one order on every
// instruction set: of what arrives at a step by time and then by neuron, of signals by neuron, those of the first and
// of the second taps apart.
#pragma once

#include <algorithm>

#include "snnlib/delay/connections.h"
#include "snnlib/events/matrix.h"
#include "snnlib/events/sparse_rows.h"
#include "snnlib/loop/recurrent.h"

namespace snnlib {
namespace SNNLIB_ISA {

template <class S>
SparseRows<S> rows_of(const RecurrentArgs& a) {
  return {static_cast<const S*>(a.weight), a.starts, a.targets, a.view.inner, a.view.inner};
}

// Steps of the future or past of each neuron, side by side: a row holds a window of steps that moves with time. Rows
// are an odd number of cache lines long, or those of many neurons would share few places in the cache.
template <class S>
class StepWindow {
 public:
  // The longest delay spans two steps more with both of its taps.
  static int64_t row_of(int64_t longest) {
    constexpr int64_t line = 64 / int64_t(sizeof(S)), more = 16;
    return ((longest + 2 + more + line - 1) / line | 1) * line;
  }

  void start(int64_t neurons, int64_t longest, int64_t first) {
    neurons_ = neurons, reach_ = longest + 2, row_ = row_of(longest), first_ = first;
    cells_.zeroed(neurons * row_);
  }

  // Row of neuron 0, at this step.
  S* at(int64_t t) const { return cells_.data() + (t - first_); }
  int64_t row() const { return row_; }
  int64_t last() const { return first_ + row_ - 1; }

  // Lets go of all steps before `t`, where step t + longest + 1 has no place yet; new steps are zero.
  void forget_before(int64_t t) {
    if (t + reach_ - 1 <= last()) return;
    const int64_t gone = t - first_, kept = row_ - gone;
    for (int64_t i = 0; i < neurons_; ++i) {
      S* row = cells_.data() + i * row_;
      std::memmove(row, row + gone, size_t(kept) * sizeof(S));
      std::memset(row + kept, 0, size_t(gone) * sizeof(S));
    }
    first_ = t;
  }

  // Lets go of steps after t + longest + 2, where step t has no place yet. What new steps hold is not said.
  void forget_behind(int64_t t) {
    if (t >= first_) return;
    const int64_t gone = last() - (t + reach_);
    for (int64_t i = 0; i < neurons_; ++i) {
      S* row = cells_.data() + i * row_;
      std::memmove(row + gone, row, size_t(row_ - gone) * sizeof(S));
    }
    first_ -= gone;
  }

 private:
  int64_t neurons_ = 0, reach_ = 0, row_ = 0, first_ = 0;
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

// All connections of a call by the neuron that they lead from; none without delays.
template <class S>
class DelayedConnections {
 public:
  explicit DelayedConnections(const RecurrentArgs& a) : neurons_(a.view.inner), starts_(a.starts) {
    if (!a.delays.delay) return;
    const int64_t row = StepWindow<S>::row_of(a.delays.longest);
    const S *delay = static_cast<const S*>(a.delays.delay), *weight = static_cast<const S*>(a.weight);
    const SparseRows<S> rows = rows_of<S>(a);
    DelayedConnection<S>* to = connections_.reserve(first(neurons_));
    const auto add = [&](int64_t i, int64_t c) {
      const SplitDelay<S> split = split_delay(a.delays, delay[c]);
      *to++ = {split.whole + int32_t(i * row), {weight[c] * (S(1) - split.rest), weight[c] * split.rest}};
    };
    for (int64_t j = 0; j < neurons_; ++j) {
      if (starts_) {
        check_starts(rows, j, j + 1);
        if (!are_within(a.targets + starts_[j], rows.count(j), 0, neurons_)) refuse_row(rows, j);
        for (int64_t c = starts_[j]; c < starts_[j + 1]; ++c) add(a.targets[c], c);
      } else {
        for (int64_t i = 0; i < neurons_; ++i) add(i, i * neurons_ + j);
      }
    }
  }
  const DelayedConnection<S>* from(int64_t neuron) const { return connections_.data() + first(neuron); }
  int64_t count(int64_t neuron) const { return first(neuron + 1) - first(neuron); }

 private:
  int64_t first(int64_t neuron) const { return starts_ ? starts_[neuron] : neuron * neurons_; }

  int64_t neurons_;
  const int64_t* starts_;
  Scratch<DelayedConnection<S>> connections_;
};

// The currents of spikes on their way to the neurons of a sample.
template <class S>
class ArrivingCurrents {
 public:
  // Before step 0, with the spikes of the steps before it, the newest first: [longest + 2] rows that lie `stride`
  // apart.
  void start(const RecurrentArgs& a, const DelayedConnections<S>& connections, const S* past, int64_t stride,
             const Fired<S>& room) {
    a_ = &a, connections_ = &connections;
    const int64_t neurons = a.view.inner, kept = a.delays.longest + 2;
    window_.start(neurons, a.delays.longest, -kept);
    for (int64_t ago = kept; past && ago > 0; --ago) {
      Fired<S> fired = room;
      fired.count = append_row(past + (ago - 1) * stride, neurons, fired.neuron, fired.amount);
      send(-ago, fired);
    }
  }

  // sum += what arrives at step t.
  void add(int64_t t, S* sum) const {
    const S* from = window_.at(t);
    for (int64_t i = 0; i < a_->view.inner; ++i) sum[i] = sum[i] + from[i * window_.row()];
  }

  // Spikes of step t.
  SNNLIB_NOINLINE void send(int64_t t, const Fired<S>& fired) {
    window_.forget_before(t + 1);
    S* next = window_.at(t + 1);
    for (int64_t e = 0; e < fired.count; ++e) {
      const DelayedConnection<S>* to = connections_->from(fired.neuron[e]);
      const int64_t count = connections_->count(fired.neuron[e]);
      for (int64_t i = 0; i < count; ++i) {
        Few<S, 2> tap, sum;
        std::memcpy(&tap, to[i].tap, sizeof tap);
        std::memcpy(&sum, next + to[i].place, sizeof sum);
        sum = sum + fired.amount[e] * tap;
        std::memcpy(next + to[i].place, &sum, sizeof sum);
      }
    }
  }

 private:
  const RecurrentArgs* a_ = nullptr;
  const DelayedConnections<S>* connections_ = nullptr;
  StepWindow<S> window_;
};

// dL/dI of the steps behind, as the neurons of a sample that sent spikes into them see it.
template <class S>
class DelayedSignals {
 public:
  void start(const RecurrentArgs& a, const DelayedConnections<S>& connections, int64_t steps) {
    a_ = &a, connections_ = &connections;
    window_.start(a.view.inner, a.delays.longest,
                  steps + a.delays.longest + 2 - StepWindow<S>::row_of(a.delays.longest));
  }

  // dL/dI of step t.
  void keep(int64_t t, const S* signal) {
    window_.forget_behind(t);
    S* to = window_.at(t);
    for (int64_t i = 0; i < a_->view.inner; ++i) to[i * window_.row()] = signal[i];
  }

  // out[j] = sum over i of first_ij dL/dI[t + 1 + k_ij]_i + second_ij dL/dI[t + 2 + k_ij]_i, for the neurons j listed.
  void see(int64_t t, const int32_t* neurons, int64_t count, S* out) const {
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
    const S* next = window_.at(t + 1);
    const DelayedConnection<S>* to[kTogether];
    Few<S, 2> sums[kTogether] = {};
    int64_t shared = connections_->count(neurons[0]);
    for (int64_t m = 0; m < kTogether; ++m) {
      to[m] = connections_->from(neurons[m]);
      shared = std::min(shared, connections_->count(neurons[m]));
    }
    const auto add = [&](int64_t m, int64_t i) {
      Few<S, 2> tap, seen;
      std::memcpy(&tap, to[m][i].tap, sizeof tap);
      std::memcpy(&seen, next + to[m][i].place, sizeof seen);
      sums[m] = sums[m] + seen * tap;
    };
    for (int64_t i = 0; i < shared; ++i) {
      for (int64_t m = 0; m < kTogether; ++m) add(m, i);
    }
    for (int64_t m = 0; m < kTogether; ++m) {
      for (int64_t i = shared; i < connections_->count(neurons[m]); ++i) add(m, i);
      S lane[2];
      std::memcpy(lane, &sums[m], sizeof lane);
      out[neurons[m]] = lane[0] + lane[1];
    }
  }

  const RecurrentArgs* a_ = nullptr;
  const DelayedConnections<S>* connections_ = nullptr;
  StepWindow<S> window_;
};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
