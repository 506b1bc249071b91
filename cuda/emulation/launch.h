// Kernels as plain functions: every thread of the grid in turn, on the CPU. Right for kernels whose threads do not talk
// to each other, which is all of ours. Indices, addresses and arithmetic are the kernel's own.
#pragma once

#include <vector_types.h>

#include <cfloat>
#include <cmath>
#include <cstring>
#include <vector>

#define SNNLIB_UNROLL

namespace snnlib {
namespace cuda {

struct EmulatedThread {
  int64_t index = 0;
  std::vector<uint4> block_scratch;
  // Of the last launch, for tests of what the runtime would be told.
  LaunchShape shape = {};
};
inline thread_local EmulatedThread emulated;

inline uint32_t multiply_high(uint32_t a, uint32_t b) { return uint32_t((uint64_t(a) * b) >> 32); }
inline uint64_t multiply_high(uint64_t a, uint64_t b) { return uint64_t(__extension__(unsigned __int128) a * b >> 64); }

inline float multiply_add(float a, float b, float c) { return std::fma(a, b, c); }

// A unit off where the device may be, so that a test sees what comes after it; powers of two are exact on both.
inline float approximate_reciprocal(float x) {
  if (std::fabs(x) < FLT_MIN) return std::copysign(INFINITY, x);
  const float reciprocal = 1.0f / x;
  if (std::fabs(reciprocal) < FLT_MIN) return std::copysign(0.0f, x);
  int exponent = 0;
  return std::frexp(std::fabs(x), &exponent) == 0.5f || std::isinf(x) ? reciprocal
                                                                      : std::nextafter(reciprocal, INFINITY);
}

inline int64_t thread_index() { return emulated.index; }

template <class E>
E* scratch() {
  return reinterpret_cast<E*>(emulated.block_scratch.data()) + emulated.index % kScratchThreads;
}

template <class W>
void store_word(W* p, W word) {
  *p = word;
}

template <int Bytes>
void copy_async(void* to, const void* from) {
  std::memcpy(to, from, Bytes);
}
inline void copies_wait() {}

template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), int64_t threads, Executor, Scratch scratch,
            const Arguments&... arguments) {
  if (threads == 0) return;
  const LaunchShape shape = launch_shape(name, threads, scratch);
  emulated.shape = shape;
  emulated.block_scratch.resize(shape.shared_bytes / sizeof(uint4));
  emulated.block_scratch.shrink_to_fit();
  // Whole blocks, as on the device: threads past the end must find that out themselves.
  const int64_t started = int64_t(shape.blocks) * shape.threads;
  for (emulated.index = 0; emulated.index < started; ++emulated.index) {
    if (emulated.index % shape.threads == 0 && scratch.bytes > 0) {
      // A block finds NaN, not what the last one left.
      std::memset(emulated.block_scratch.data(), 0xff, shape.shared_bytes);
    }
    kernel(arguments...);
  }
}

}  // namespace cuda
}  // namespace snnlib
