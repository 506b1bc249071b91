// Sums over rows r of signal[r] events[r]^T, the weight gradient of a dense matrix whose inputs are events:
//
//   grad[i][o] += sum over r of events[r][i] signal[r][o]
//
// Rows are taken up in blocks. The events of a block are sorted by input, so that a piece of an input's gradient stays
// in registers while the signals of its events are added: they lie packed in the cache. Threads first list the events
// of some blocks, each a block, and then add them, each to a part of the gradient. Every sum goes in the order of the
// rows, on every instruction set and with any number of threads.
#pragma once

#include <memory>

#include "snnlib/core/threads.h"
#include "snnlib/events/by_input.h"

namespace snnlib {
namespace SNNLIB_ISA {

template <class S>
class OuterProducts {
  using V = typename Simd<S>::Vector;
  static constexpr int64_t L = Simd<S>::kLanes;
  // Vectors of a piece: so many chains of additions hide the time that one addition takes.
  static constexpr int64_t kVectors = 8, kPiece = kVectors * L;
  // Rows of a block, and blocks whose events are listed before they are added.
  static constexpr int64_t kRows = 256, kBlocks = 32;

 public:
  // For rows of `inputs` events and `outputs` signals.
  OuterProducts(int64_t inputs, int64_t outputs, int threads)
      : inputs_(inputs), outputs_(outputs), threads_(threads), blocks_(new Block[kBlocks]) {
    rows_.reserve(kRows * kBlocks);
    clear();
  }

  // Forgets all rows.
  void clear() {
    count_ = 0;
    sums_.zeroed(inputs_ * pieces() * kVectors);
  }

  // Adds a row; both stay in place until `store`.
  void add(const S* events, const S* signal) {
    if (!outputs_) return;
    rows_.data()[count_++] = {events, signal};
    if (count_ == kRows * kBlocks) flush();
  }

  // Writes the gradient, with rows of `row` elements.
  void store(S* grad, int64_t row) {
    flush();
    for (int64_t p = 0; p < pieces(); ++p) {
      const int64_t left = outputs_ - p * kPiece, length = left < kPiece ? left : kPiece;
      for (int64_t i = 0; i < inputs_; ++i)
        std::memcpy(grad + i * row + p * kPiece, sums_.data() + (p * inputs_ + i) * kVectors,
                    size_t(length) * sizeof(S));
    }
  }

 private:
  struct Row {
    const S *events, *signal;
  };
  // The rows of a block that have events, and these.
  struct Block {
    const S* signals[kRows];
    int64_t rows;
    EventsByInput<S> events;
  };

  int64_t pieces() const { return (outputs_ + kPiece - 1) / kPiece; }

  void flush() {
    if (!count_) return;
    const int64_t blocks = (count_ + kRows - 1) / kRows;
    parallel_for(blocks, threads_, [&](int64_t block) {
      thread_local FoundEvents<S> found;
      list(block, of_thread(found));
    });
    // As many shares of the inputs as give every thread a part.
    const int64_t shares = (threads_ + pieces() - 1) / pieces(), share = (inputs_ + shares - 1) / shares;
    parallel_for(pieces() * shares, threads_, [&](int64_t part) {
      thread_local Scratch<V> packed;
      const int64_t p = part % pieces(), first = part / pieces() * share, left = outputs_ - p * kPiece;
      const int64_t end = first + share < inputs_ ? first + share : inputs_;
      for (int64_t block = 0; block < blocks; ++block) {
        if (left > 4 * L) {
          add_events<8>(blocks_[block], p, first, end, of_thread(packed));
        } else if (left > 2 * L) {
          add_events<4>(blocks_[block], p, first, end, of_thread(packed));
        } else if (left > L) {
          add_events<2>(blocks_[block], p, first, end, of_thread(packed));
        } else {
          add_events<1>(blocks_[block], p, first, end, of_thread(packed));
        }
      }
    });
    count_ = 0;
  }

  void list(int64_t number, FoundEvents<S>& found) {
    Block& block = blocks_[number];
    block.rows = 0;
    block.events.clear(inputs_);
    const int64_t first = number * kRows, end = first + kRows < count_ ? first + kRows : count_;
    for (int64_t r = first; r < end; ++r) {
      const Row row = rows_.data()[r];
      if (block.events.add(row.events, block.rows, found)) block.signals[block.rows++] = row.signal;
    }
    block.events.sort(found);
  }

  // Adds the events of a block to piece p of the gradients of inputs [first, end), of which N vectors hold outputs.
  template <int N>
  void add_events(const Block& block, int64_t p, int64_t first, int64_t end, Scratch<V>& packed) {
    V* signals = packed.reserve(kRows * N);
    const int64_t left = outputs_ - p * kPiece;
    for (int64_t r = 0; r < block.rows; ++r) {
      const S* signal = block.signals[r] + p * kPiece;
      for (int64_t v = 0; v < N; ++v) {
        if (left >= N * L) {
          signals[r * N + v] = load_lanes<S>(signal + v * L, L);
        } else {
          signals[r * N + v] = v * L < left ? load_lanes<S>(signal + v * L, left - v * L) : V{};
        }
      }
    }
    V* sums = sums_.data() + p * inputs_ * kVectors;
    const SortedEvents<S> events = block.events.sorted();
    for (int64_t i = first; i < end; ++i) {
      const auto some = events.of(i);
      if (some.count) add_piece<N>(some, signals, sums + i * kVectors);
    }
  }

  // Adds the events of one input to a piece of its gradient.
  template <int N>
  static void add_piece(const typename SortedEvents<S>::Some& events, const V* signals, V* to) {
    V sums[N];
    for (int64_t v = 0; v < N; ++v) sums[v] = to[v];
    for (int64_t e = 0; e < events.count; ++e) {
      const V* signal = signals + events.places[e] * N;
      const S amount = events.amounts ? events.amounts[e] : S(1);
      for (int64_t v = 0; v < N; ++v) sums[v] = sums[v] + amount * signal[v];
    }
    for (int64_t v = 0; v < N; ++v) to[v] = sums[v];
  }

  int64_t inputs_, outputs_, count_ = 0;
  int threads_;
  Scratch<Row> rows_;
  std::unique_ptr<Block[]> blocks_;
  Scratch<V> sums_;
};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
