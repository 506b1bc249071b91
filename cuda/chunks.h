// Shared by the scans: where a thread finds its neuron, and how it walks through time in groups and chunks of steps.
#pragma once

#include <initializer_list>
#include <type_traits>

#include "divider.h"
#include "element.h"
#include "launch.h"
#include "snnlib/core/call.h"

namespace snnlib {
namespace cuda {

// A neuron by its index in [outer * inner]; `inner` counts within one step and outer index.
struct NeuronPlace {
  int64_t outer, inner;
};

// Where a thread finds its neurons and their constants, which repeat after `period` neurons of a step.
struct Places {
  Divider<uint64_t> inner, period;

  Places(const SequenceView& view, int64_t every) : inner(view.inner), period(every) {}
  __device__ NeuronPlace of(const SequenceView& view, int64_t neuron) const {
    const int64_t outer = view.outer == 1 ? 0 : int64_t(inner.quotient(uint64_t(neuron)));
    return {outer, neuron - outer * view.inner};
  }
  __device__ int64_t constants(const NeuronPlace& place) const {
    return period.size == 1 ? 0 : int64_t(period.remainder(uint64_t(place.inner)));
  }
};

// True if packs of V elements can be loaded at every step of every tensor.
template <class T, int V>
bool fits_packs(const SequenceView& view, std::initializer_list<const void*> tensors) {
  uintptr_t bits = 0;
  for (const void* tensor : tensors) bits |= reinterpret_cast<uintptr_t>(tensor);
  return bits % (sizeof(T) * V) == 0 && (view.inner | view.outer_stride | view.step_stride) % V == 0;
}

// Calls f(constant, first) for groups of N of `count` steps, then for what is left by a quarter as many, down to one:
// loops over a constant number of steps unroll without a condition in between. By half as many an H200 is slower.
template <int N, class I, class F>
__device__ void for_each_group(I count, const F& f, I t = 0) {
  for (; t + N <= count; t += N) f(std::integral_constant<int, N>{}, t);
  if constexpr (N > 1) for_each_group<(N > 4 ? N / 4 : 1)>(count, f, t);
}

// The state at the start of a chunk waits in the chunk's own place of an output, which nobody has written yet: no
// further memory. `column` points to the neuron's element of the chunk's first step; values move as bits.
template <class T, class State>
struct StateInColumn {
  static constexpr int kParts = sizeof(State) / sizeof(T);

  static __device__ void store(T* column, int64_t stride, const State& state) {
    Word<T> parts[kParts];
    memcpy(parts, &state, sizeof state);
    SNNLIB_UNROLL
    for (int i = 0; i < kParts; ++i) reinterpret_cast<Word<T>*>(column)[i * stride] = parts[i];
  }
  static __device__ State load(const T* column, int64_t stride) {
    Word<T> parts[kParts];
    SNNLIB_UNROLL
    for (int i = 0; i < kParts; ++i) parts[i] = reinterpret_cast<const Word<T>*>(column)[i * stride];
    State state;
    memcpy(&state, parts, sizeof state);
    return state;
  }
};

// Even chunks of a sequence whose `Bytes` per step fit into the shared memory that any device has: steps of all chunks
// but the last, and the index of the last. A chunk that is not the last has room for a state.
struct Chunks {
  int steps;
  int64_t last;
};

template <int Bytes>
Chunks even_chunks(int64_t steps) {
  if (steps == 0) return {1, -1};
  constexpr int64_t kMost = kScratchBytes / Bytes;
  const int64_t chunks = (steps + kMost - 1) / kMost, size = (steps + chunks - 1) / chunks;
  return {int(size), (steps - 1) / size};
}

}  // namespace cuda
}  // namespace snnlib
