// A scan's neurons in blocks, which the threads share.
#pragma once

#include "snnlib/core/parallel.h"
#include "snnlib/core/platform.h"
#include "snnlib/core/sequence_view.h"

namespace snnlib {
namespace SNNLIB_ISA {

// Neurons per task: long enough to hide the scheduling, short enough to balance two busy cores.
constexpr int64_t kTaskNeurons = 8192;

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

}  // namespace SNNLIB_ISA
}  // namespace snnlib
