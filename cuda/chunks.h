// What the scans share: where a thread finds its neuron, and how it walks through time in groups and chunks of steps.
#pragma once

#include <type_traits>

#include "element.h"
#include "launch.h"
#include "snnlib/train_view.h"

namespace snnlib {
namespace cuda {

// A neuron by its index in [outer * inner]; `inner` counts within one step and outer index.
struct NeuronPlace {
  int64_t outer, inner;
};

// Division of 64 bits is a subroutine of some 80 instructions, and almost no tensor needs it.
__device__ inline int64_t quotient(int64_t index, int64_t size) {
  return ((index | size) >> 32) == 0 ? int64_t(uint32_t(index) / uint32_t(size)) : index / size;
}

__device__ inline int64_t remainder(int64_t index, int64_t size) { return index - quotient(index, size) * size; }

__device__ inline NeuronPlace place_of(const TrainView& view, int64_t neuron) {
  const int64_t outer = view.outer == 1 ? 0 : quotient(neuron, view.inner);
  return {outer, neuron - outer * view.inner};
}

// Calls f(constant, first) for groups of N of `count` steps, then for the steps that are left one by one: loops over a
// constant number of steps unroll without a condition in between.
template <int N, class F>
__device__ void for_each_group(int count, const F& f) {
  int t = 0;
  for (; t + N <= count; t += N) f(std::integral_constant<int, N>{}, t);
  for (; t < count; ++t) f(std::integral_constant<int, 1>{}, t);
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

// Steps of a chunk, of even chunks whose `bytes` per step fit into the shared memory that any device has. A chunk that
// is not the last has room for a state.
template <int Bytes>
int chunk_steps(int64_t steps) {
  constexpr int64_t kMost = kScratchBytes / Bytes;
  const int64_t chunks = (steps + kMost - 1) / kMost;
  return int((steps + chunks - 1) / chunks);
}

}  // namespace cuda
}  // namespace snnlib
