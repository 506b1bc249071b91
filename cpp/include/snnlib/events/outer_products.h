// Sums over rows r of signal[r] events[r]^T, the weight gradient of a dense matrix whose inputs are events:
//
//   grad[i][o] += sum over r of events[r][i] signal[r][o]
//
// Rows are taken up in blocks. Within a block the events are sorted by input, so that a piece of an input's gradient
// stays in registers while the signals of its events are added: they lie packed in the L1 cache. Every sum goes in the
// order of the rows, on every instruction set.
#pragma once

#include "snnlib/core/dtype.h"
#include "snnlib/core/threads.h"
#include "snnlib/events/matrix.h"

namespace snnlib {
namespace SNNLIB_ISA {

// Calls f(first, inputs) in parallel for an equal share of the inputs of a gradient.
template <class F>
void for_sources(int64_t inputs, int threads, const F& f) {
  const int64_t shares = threads > 1 ? threads : 1, share = (inputs + shares - 1) / shares;
  if (!inputs) return;
  parallel_for((inputs + share - 1) / share, threads, [&](int64_t task) {
    const int64_t first = task * share, left = inputs - first;
    f(first, left < share ? left : share);
  });
}

template <class S>
class OuterProducts {
  using V = typename Simd<S>::Vector;
  static constexpr int64_t L = Simd<S>::kLanes;
  // Vectors of a piece: so many chains of additions hide the time that one addition takes.
  static constexpr int64_t kVectors = 8, kPiece = kVectors * L;
  // Rows of a block.
  static constexpr int64_t kRows = 128;

 public:
  // For rows of `inputs` events and `outputs` signals.
  OuterProducts(int64_t inputs, int64_t outputs) : inputs_(inputs), outputs_(outputs) { clear(); }

  // Forgets all rows.
  void clear() {
    rows_ = count_ = 0;
    counts_.zeroed(inputs_ + 1);
    sums_.zeroed(inputs_ * pieces() * kVectors);
  }

  // One more row; both stay in place until `store`.
  void add(const S* events, const S* signal) {
    const int64_t room = count_ + inputs_ + kMoreEvents;
    int32_t* input = input_.grow(room, count_);
    S* amount = amount_.grow(room, count_);
    const int64_t found = append_row(events, inputs_, input + count_, amount + count_);
    if (!found) return;
    count_ += found;
    signals_[rows_] = signal, ends_[rows_++] = count_;
    if (rows_ == kRows) flush();
  }

  // Writes the gradient, with rows of `row` elements.
  void store(S* grad, int64_t row) {
    if (rows_) flush();
    for (int64_t p = 0; p < pieces(); ++p) {
      const int64_t left = outputs_ - p * kPiece, length = left < kPiece ? left : kPiece;
      for (int64_t i = 0; i < inputs_; ++i)
        std::memcpy(grad + i * row + p * kPiece, sums_.data() + (p * inputs_ + i) * kVectors,
                    size_t(length) * sizeof(S));
    }
  }

 private:
  struct Event {
    S amount;
    int32_t row;
  };

  int64_t pieces() const { return (outputs_ + kPiece - 1) / kPiece; }

  void flush() {
    sort();
    for (int64_t p = 0; p < pieces(); ++p) {
      const int64_t left = outputs_ - p * kPiece;
      if (left > 4 * L) {
        add_events<8>(p);
      } else if (left > 2 * L) {
        add_events<4>(p);
      } else if (left > L) {
        add_events<2>(p);
      } else {
        add_events<1>(p);
      }
    }
    std::memset(counts_.data(), 0, size_t(inputs_ + 1) * sizeof(int32_t));
    rows_ = count_ = 0;
  }

  // Events by input, and of each input by row; counts_[i] becomes the end of input i.
  void sort() {
    Event* sorted = sorted_.reserve(count_);
    int32_t* starts = counts_.data();
    for (int64_t e = 0; e < count_; ++e) ++starts[input_.data()[e] + 1];
    for (int64_t i = 0; i < inputs_; ++i) starts[i + 1] += starts[i];
    for (int64_t r = 0, e = 0; r < rows_; ++r) {
      for (; e < ends_[r]; ++e) sorted[starts[input_.data()[e]]++] = {amount_.data()[e], int32_t(r)};
    }
  }

  // Adds the events of a block to piece p of the gradient, of which N vectors hold outputs.
  template <int N>
  void add_events(int64_t p) {
    V* signals = packed_.reserve(kRows * N);
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t v = 0; v < N; ++v) {
        const int64_t at = p * kPiece + v * L;
        signals[r * N + v] = at < outputs_ ? load_lanes<S>(signals_[r] + at, outputs_ - at) : V{};
      }
    }
    V* sums = sums_.data() + p * inputs_ * kVectors;
    for (int64_t i = 0, at = 0; i < inputs_; at = counts_.data()[i++])
      if (at < counts_.data()[i]) add_piece<N>(at, counts_.data()[i], sums + i * kVectors);
  }

  // Adds events [at, end) of one input to a piece of its gradient.
  template <int N>
  void add_piece(int64_t at, int64_t end, V* to) {
    V sums[N];
    for (int64_t v = 0; v < N; ++v) sums[v] = to[v];
    for (; at < end; ++at) {
      const Event event = sorted_.data()[at];
      const V* signal = packed_.data() + event.row * N;
      for (int64_t v = 0; v < N; ++v) sums[v] = sums[v] + event.amount * signal[v];
    }
    for (int64_t v = 0; v < N; ++v) to[v] = sums[v];
  }

  int64_t inputs_, outputs_, rows_ = 0, count_ = 0;
  const S* signals_[kRows];
  int64_t ends_[kRows];
  Scratch<int32_t> input_, counts_;
  Scratch<S> amount_;
  Scratch<Event> sorted_;
  Scratch<V> packed_, sums_;
};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
