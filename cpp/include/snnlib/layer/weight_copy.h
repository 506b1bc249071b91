// Copies of weights between the order of torch and those in which the kernels of a layer read and sum them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "snnlib/core/dtype.h"
#include "snnlib/core/threads.h"

namespace snnlib {

// Axes are outputs, inputs, rows and columns of the kernel; strides are in elements.
struct WeightCopy {
  Elements from;  // null: nothing is copied
  float* to;
  int64_t size[4];
  int64_t from_first, from_stride[4];
  int64_t to_first, to_stride[4];
  // Outputs of `from` that lie in one block, a multiple of 16, and the elements from block to block.
  int64_t block, block_stride;
  // Floats of `to`; those that get no weight become 0.
  int64_t floats;
  float scale;
  SNNLIB_FIELDS(from, to, size, from_first, from_stride, to_first, to_stride, block, block_stride, floats, scale)
};

namespace SNNLIB_ISA {

inline void copy_weights(const WeightCopy& copy, int threads) {
  // Outputs of a task: one side lies output by output, the other in whole cache lines of outputs.
  constexpr int64_t kOutputs = 16, kOneThread = 1 << 14;
  const auto& [outputs, inputs, height, width] = copy.size;
  const int64_t weights = outputs * inputs * height * width;
  if (copy.floats > weights) std::fill_n(copy.to, copy.floats, 0.0f);
  typed(copy.from, copy.from_first, [&](const auto* elements) {
    parallel_for((outputs + kOutputs - 1) / kOutputs, weights < kOneThread ? 1 : threads, [&](int64_t task) {
      const int64_t first = task * kOutputs, count = std::min(kOutputs, outputs - first);
      const auto* from = elements + first / copy.block * copy.block_stride + first % copy.block * copy.from_stride[0];
      float* to = copy.to + copy.to_first + first * copy.to_stride[0];
      for (int64_t c = 0; c < inputs; ++c) {
        for (int64_t y = 0; y < height; ++y) {
          for (int64_t x = 0; x < width; ++x) {
            const auto* in = from + c * copy.from_stride[1] + y * copy.from_stride[2] + x * copy.from_stride[3];
            float* out = to + c * copy.to_stride[1] + y * copy.to_stride[2] + x * copy.to_stride[3];
            for (int64_t o = 0; o < count; ++o)
              out[o * copy.to_stride[0]] = to_state(in[o * copy.from_stride[0]]) * copy.scale;
          }
        }
      }
    });
  });
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
