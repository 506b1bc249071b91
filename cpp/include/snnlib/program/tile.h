// Registers of the tiles that a thread runs programs on.
#pragma once

#include "snnlib/loop/lines.h"
#include "snnlib/program/machine.h"

namespace snnlib {
namespace SNNLIB_ISA {

// Numbers of the first register of each kind.
struct Places {
  int x, q, y, z, value, g, h, saved, temporary, sum, count;
  explicit Places(const ProgramArgs& a) {
    const ProgramFlags& f = a.flags;
    x = f.literals + f.constants, q = x + 1, y = q + 1, z = y + a.states, value = z + a.states;
    g = value + 1, h = g + a.states, saved = h + a.states, temporary = saved + f.saved;
    sum = temporary + f.temporaries, count = sum + f.learned;
  }
};

// The least whole units with room for so many neurons.
inline int64_t in_units(int64_t neurons) { return (neurons + kProgramUnit - 1) / kProgramUnit * kProgramUnit; }

// Registers of a thread and the memory of their tiles. Nothing here is inlined: a call takes a row of a tile at least.
template <class S>
class Tile {
 public:
  static constexpr int64_t kStep = Simd<S>::kLanes;
  const Places at;

  // Neurons [first, first + count) of one outer index in tiles of so many, whole units; `more` tiles of room behind
  // those that all passes have.
  SNNLIB_NOINLINE Tile(const ProgramArgs& a, int64_t tile_neurons, int64_t o, int64_t first, int64_t count,
                       int64_t more)
      : at(a), args_(a), tile_(tile_neurons), count_(count), padded_(in_units(count)) {
    const ProgramFlags& f = a.flags;
    thread_local Scratch<Register<S>> registers;
    thread_local Scratch<S> memory;
    r_ = of_thread(registers).reserve(at.count);
    const bool own = a.period > 1;
    const int64_t numbers = (f.literals + (own ? 0 : f.constants)) * kProgramUnit;
    const int64_t tiles = (own ? f.constants : 0) + 4 * a.states + f.temporaries + f.learned + 3 + more;
    next_ = of_thread(memory).reserve(numbers + tiles * tile_);
    for (int i = 0; i < f.literals; ++i) number(i, static_cast<const S*>(f.literal_values)[i]);
    for (int i = 0; i < f.constants; ++i) {
      const S* row = static_cast<const S*>(a.coefficients) + i * a.period;
      if (!own) {
        number(f.literals + i, *row);
        continue;
      }
      S* to = tile(f.literals + i);
      for (int64_t j = 0; j < padded_; ++j) to[j] = row[(first + (j < count ? j : 0)) % a.period];
    }
    for (int i = 0; i < f.temporaries; ++i) tile(at.temporary + i);
    for (int i = 0; i < f.learned; ++i) zero(tile(at.sum + i));
    all_ = a.view.outer * a.view.inner, offset_ = o * a.view.inner + first;
  }

  // A register with a tile of its own.
  SNNLIB_NOINLINE S* tile(int i) {
    place(i, next_);
    next_ += tile_;
    return r_[i].at;
  }
  // Room for further tiles.
  S* rest() const { return next_; }
  void place(int i, S* p) { r_[i] = {p, kStep}; }
  S* of(int i) const { return r_[i].at; }
  SNNLIB_NOINLINE void swap(int i, int j) {
    for (int k = 0; k < args_.states; ++k) {
      S* p = of(i + k);
      place(i + k, of(j + k));
      place(j + k, p);
    }
  }
  // Has the states around a step, and its saved values, at place `kept` of memory for steps.
  SNNLIB_NOINLINE void enter(S* states, S* saved, int64_t kept) {
    const int64_t K = args_.states, count = args_.flags.saved;
    for (int64_t k = 0; k < K; ++k) {
      place(at.y + int(k), states + (kept * K + k) * tile_);
      place(at.z + int(k), states + ((kept + 1) * K + k) * tile_);
    }
    for (int64_t k = 0; k < count; ++k) place(at.saved + int(k), saved + (kept * count + k) * tile_);
  }
  void zero(S* p) const { std::memset(p, 0, size_t(padded_) * sizeof(S)); }
  void run(const ProgramCode& code) const { run_code(code, r_, padded_); }

  // Has a register read a row of the sequence: where it lies, or as a copy in `copy`.
  template <class T>
  SNNLIB_NOINLINE void read(int i, const T* row, S* copy) {
    if constexpr (std::is_same_v<T, S>) {
      // No instruction writes it.
      if (count_ == padded_) return place(i, const_cast<S*>(row));
    }
    for (int64_t j = 0; j < padded_; j += kStep) {
      const auto lanes = load_lanes<T>(row + (j < count_ ? j : 0), count_ - j);
      std::memcpy(copy + j, &lanes, sizeof lanes);
    }
    place(i, copy);
  }
  // Runs a program whose result is a row of the sequence.
  template <class T>
  SNNLIB_NOINLINE void write(const ProgramCode& code, T* row, S* copy, bool streamed) {
    if constexpr (std::is_same_v<T, S>) {
      if (count_ == padded_ && !streamed) {
        place(at.value, row);
        return run(code);
      }
    }
    place(at.value, copy);
    run(code);
    for_each_line<T>(count_, [&](int64_t j, int64_t neurons) {
      Line<T> line;
      for (int64_t v = 0; v < Line<T>::kVectors; ++v)
        std::memcpy(&line.vector[v], copy + j + v * kStep, sizeof(line.vector[v]));
      streamed ? line.template store<true>(row + j, neurons) : line.template store<false>(row + j, neurons);
    });
  }
  // Numbers [rows][all neurons] of these neurons, from and to registers.
  SNNLIB_NOINLINE void load(int i, int rows, const void* from) const {
    for (int k = 0; k < rows; ++k) {
      zero(of(i + k));
      if (from) std::memcpy(of(i + k), static_cast<const S*>(from) + k * all_ + offset_, size_t(count_) * sizeof(S));
    }
  }
  SNNLIB_NOINLINE void store(int i, int rows, void* to) const {
    for (int k = 0; k < rows; ++k)
      std::memcpy(static_cast<S*>(to) + k * all_ + offset_, of(i + k), size_t(count_) * sizeof(S));
  }

 private:
  void number(int i, S value) {
    r_[i] = {next_, 0};
    for (int64_t j = 0; j < kStep; ++j) next_[j] = value;
    next_ += kProgramUnit;
  }

  const ProgramArgs& args_;
  const int64_t tile_, count_, padded_;
  int64_t all_, offset_;
  Register<S>* r_;
  S* next_;
};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
