// Shared by the forward and the backward pass of recurrent neurons: a thread has a sample and walks through its steps.
#pragma once

#include <type_traits>

#include "snnlib/events/sparse_rows.h"
#include "snnlib/loop/linear_block.h"
#include "snnlib/loop/recurrent.h"
#include "snnlib/loop/recurrent_delays.h"
#include "snnlib/program/program.h"

namespace snnlib {
namespace SNNLIB_ISA {

// How many steps ahead rows are fetched, those that are written too: one step takes about as long as one fetch, and
// steps of a sample lie too far apart for the processor to foresee.
constexpr int64_t kAhead = 2;

template <class Args>
int64_t steps_of(const Args& a, int64_t n) {
  return a.lengths ? a.lengths[n] : a.view.steps;
}

// The options of the default neuron, as constants: a step asks for each of them, and the surrogates that need a call
// would keep its coefficients out of the registers.
template <class S, int K, bool Next>
constexpr bool kHasUsual = std::is_same_v<S, float> && K < 3 && !Next;

inline bool is_usual_here(const LinearFlags& flags) {
  return options_of(flags) == Options::kUsual && flags.surrogate == SurrogateKind::kTriangle;
}

template <bool Usual>
LinearFlags flags_of(const RecurrentArgs& a) {
  return Usual ? usual_flags(SurrogateKind::kTriangle) : a.flags;
}

// A sample of fewer neurons is not worth several threads, and its rows come into the second cache ahead of their use.
constexpr int64_t kFewNeurons = 8192;

// True if a spike adds a row of sparse connections to the next step's currents.
template <class Args>
bool by_rows(const Args& a) {
  return a.starts && !a.delays.delay;
}

// Parts of a sample's neurons, each with a thread, where there are fewer samples than threads: of sparse connections.
// Programs, whose tile of a sample is a thread's, have one.
template <class Args>
int64_t parts_of(const Args& a) {
  constexpr bool kProgram = std::is_same_v<decltype(a.flags), ProgramFlags>;
  const int64_t threads = a.executor.threads();
  return !kProgram && by_rows(a) && a.view.outer < threads && a.view.inner >= kFewNeurons ? threads : 1;
}

// Calls f(part, first, end) for each part of so many vectors of neurons.
template <class Args, class F>
void for_parts(const Args& a, int64_t vectors, const F& f) {
  const int64_t parts = parts_of(a), each = (vectors + parts - 1) / parts;
  parallel_for(parts, int(parts), [&](int64_t part) {
    const int64_t first = part * each, end = first + each;
    f(part, first < vectors ? first : vectors, end < vectors ? end : vectors);
  });
}

// Calls f(n) in parallel for every sample. Neighbours in memory are of one thread, as far as that leaves each thread
// some parts: two threads that write neighbouring rows would fetch each other's in advance.
template <class Args, class F>
void for_samples(const Args& a, const F& f) {
  constexpr int64_t kMost = 8, kParts = 4;
  const int64_t fit = a.view.outer / (kParts * a.executor.threads()), part = fit < 1 ? 1 : fit < kMost ? fit : kMost;
  parallel_for((a.view.outer + part - 1) / part, parts_of(a) > 1 ? 1 : a.executor.threads(), [&](int64_t task) {
    const int64_t end = (task + 1) * part < a.view.outer ? (task + 1) * part : a.view.outer;
    for (int64_t n = task * part; n < end; ++n) f(n);
  });
}

inline Own own_of(const RecurrentArgs& a) { return a.period == 1 ? Own::kNothing : Own::kAll; }

// Room of one thread for rows of one sample.
template <class S>
struct SampleRows {
  Scratch<S> sum, signal, back, amounts;
  Scratch<int32_t> neurons;

  Fired<S> fired(int64_t most) { return {neurons.reserve(most + kMoreEvents), amounts.reserve(most + kMoreEvents), 0}; }
};

template <class S, class Args>
const S* state_row(const Args& a, const void* state, int64_t number, int64_t n) {
  const int64_t neurons = a.view.inner;
  return state ? static_cast<const S*>(state) + (number * a.view.outer + n) * neurons : nullptr;
}

template <class S, class Args>
S* state_row(const Args& a, void* state, int64_t number, int64_t n) {
  return static_cast<S*>(state) + (number * a.view.outer + n) * a.view.inner;
}

// The row with zeros behind it.
template <class S>
void copy_padded(const S* from, int64_t count, int64_t padded_count, S* to) {
  std::memcpy(to, from, size_t(count) * sizeof(S));
  for (int64_t i = count; i < padded_count; ++i) to[i] = S(0);
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
