// How a scan reads and writes a sequence: neurons in blocks, which the threads share, some steps at a time, and of each
// step a cache line of neurons.
#pragma once

#include <type_traits>

#include "snnlib/core/call.h"
#include "snnlib/core/dtype.h"
#include "snnlib/core/simd.h"
#include "snnlib/core/threads.h"

namespace snnlib {
namespace SNNLIB_ISA {

// Neurons per task: long enough to hide the scheduling, short enough to balance two busy cores.
constexpr int64_t kTaskNeurons = 8192;

// Neurons per block: two 4 KiB pages of float32 for each step and tensor. Smaller blocks pay a page-table walk for a
// few cache lines, as the steps of a large sequence lie megabytes apart.
constexpr int64_t kBlockNeurons = 2048;
// Bytes of the L2 cache for the repeated forward of a block, which long sequences pay with smaller blocks.
constexpr int64_t kScratchBytes = 512 << 10;

// Calls f(outer index, first neuron, neurons) for each block of at most kTaskNeurons neurons.
template <class F>
void for_each_block(const SequenceView& view, int64_t block, int threads, const F& f) {
  const int64_t blocks = (view.inner + block - 1) / block;
  const int64_t total = view.outer * blocks;
  const int64_t per_task = kTaskNeurons / block;
  parallel_for((total + per_task - 1) / per_task, threads, [&](int64_t task) {
    const int64_t end = (task + 1) * per_task < total ? (task + 1) * per_task : total;
    for (int64_t j = task * per_task; j < end; ++j) {
      const int64_t first = j % blocks * block;
      f(j / blocks, first, view.inner - first < block ? view.inner - first : block);
    }
  });
}

// Steps that a vector of neurons takes at once, with its state in registers. Rows that are read side by side keep more
// cache lines on their way than one row after the other.
constexpr int kSteps = 5;

// Neurons of one cache line of a sequence, which a kernel loads, computes and stores together.
template <class T>
struct Line {
  static constexpr int64_t kLanes = Simd<typename StateOf<T>::type>::kLanes;
  static constexpr int64_t kNeurons = kCacheLine / int64_t(sizeof(T));
  static constexpr int64_t kVectors = kNeurons / kLanes;
  StateVector<T> vector[kVectors];

  void load(const T* p, int64_t neurons) {
    for (int64_t j = 0; j < kVectors; ++j) vector[j] = load_lanes<T>(p + j * kLanes, neurons - j * kLanes);
  }

  template <bool Streamed>
  void store(T* p, int64_t neurons) const {
    for (int64_t j = 0; j < kVectors; ++j) {
      if (Streamed && neurons == kNeurons) {
        T lanes[kLanes];
        store_lanes<T>(lanes, vector[j], kLanes);
        stream_bytes<sizeof lanes>(p + j * kLanes, lanes);
      } else {
        store_lanes<T>(p + j * kLanes, vector[j], neurons - j * kLanes);
      }
    }
  }
};

// Calls f(first neuron, neurons) for the cache lines of a block, with a literal for the whole ones.
template <class T, class F>
SNNLIB_INLINE void for_each_line(int64_t count, const F& f) {
  constexpr int64_t L = Line<T>::kNeurons;
  int64_t i = 0;
  for (; i + L <= count; i += L) f(i, L);
  if (i < count) f(i, count - i);
}

// Calls f(vector, real lanes) for all vectors of these lines.
template <class T, class F>
inline void for_each_vector(int64_t count, const F& f) {
  constexpr int64_t V = Line<T>::kVectors, L = Line<T>::kLanes;
  for_each_line<T>(count, [&](int64_t i, int64_t neurons) {
    for (int64_t j = 0; j < V; ++j) f(i / L + j, neurons - j * L);
  });
}

// Calls f(steps, first step) with `kSteps` steps at a time as a constant, and with the rest one by one.
template <class F>
SNNLIB_INLINE void for_each_step_group(int64_t steps, const F& f) {
  int64_t t = 0;
  for (; t + kSteps <= steps; t += kSteps) f(std::integral_constant<int, kSteps>(), t);
  for (; t < steps; ++t) f(std::integral_constant<int, 1>(), t);
}

// Groups from the last to the first.
template <class F>
SNNLIB_INLINE void for_each_step_group_reversed(int64_t steps, const F& f) {
  int64_t t = steps;
  while (t % kSteps) f(std::integral_constant<int, 1>(), --t);
  while (t > 0) f(std::integral_constant<int, kSteps>(), t -= kSteps);
}

// The lines of `Rows` neighbouring rows, `stride` apart, at `p`. All of them are loaded before the first result is
// stored: the rows of a sequence are often whole pages apart, where a load waits for a store to the same place in
// another page. `next` is where the rows begin that are needed after these.
template <class T, int Rows>
inline void load_rows(const T* p, const T* next, int64_t stride, int64_t neurons, Line<T> (&rows)[Rows]) {
  for (int row = 0; row < Rows; ++row) {
    prefetch(next + row * stride);
    rows[row].load(p + row * stride, neurons);
  }
}

// Vectors of a block whose repeated forward keeps `kept` of them per step: at most `most`, in whole cache lines, and at
// least one line.
template <class T>
int64_t backward_vectors(int64_t kept, int64_t steps, int64_t most) {
  constexpr int64_t line = Line<T>::kVectors;
  const int64_t room = kScratchBytes / (kept * (steps > 0 ? steps : 1) * int64_t(sizeof(StateVector<T>)));
  return room < line ? line : room < most ? room / line * line : most;
}

template <class T>
bool streamable_sequence(const SequenceView& view, const void* output) {
  constexpr int64_t bytes = sizeof(T);
  return streamable(output, view.outer * view.steps * view.inner * bytes, view.step_stride * bytes);
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
