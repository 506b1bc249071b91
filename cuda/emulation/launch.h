// Kernels as plain functions: every thread of the grid in turn, on the CPU. Right for kernels whose threads do not talk
// to each other, which is all of ours. Indices, addresses and arithmetic are the kernel's own.
#pragma once

#include <vector_types.h>

#include <cstring>
#include <vector>

#define SNNLIB_UNROLL

namespace snnlib {
namespace cuda {

struct EmulatedThread {
  int64_t index = 0;
  std::vector<double> block_scratch;
};
inline thread_local EmulatedThread emulated;

inline uint32_t multiply_high(uint32_t a, uint32_t b) { return uint32_t((uint64_t(a) * b) >> 32); }

inline int64_t thread_index() { return emulated.index; }

template <class E>
E* scratch() {
  return reinterpret_cast<E*>(emulated.block_scratch.data()) + emulated.index % kBlockThreads;
}

template <class W>
void store_streaming(W* p, W word) {
  *p = word;
}

template <class... Parameters, class... Arguments>
void launch(const char*, void (*kernel)(Parameters...), int64_t threads, Executor, Scratch scratch,
            const Arguments&... arguments) {
  // Whole blocks, as on the device: threads past the end must find that out themselves.
  const int64_t started = (threads + kBlockThreads - 1) / kBlockThreads * kBlockThreads;
  emulated.block_scratch.resize(size_t(scratch.bytes) * kBlockThreads / sizeof(double));
  emulated.block_scratch.shrink_to_fit();
  for (emulated.index = 0; emulated.index < started; ++emulated.index) {
    if (emulated.index % kBlockThreads == 0 && scratch.bytes > 0) {
      // A block finds NaN, not what the last one left.
      std::memset(emulated.block_scratch.data(), 0xff, emulated.block_scratch.size() * sizeof(double));
    }
    kernel(arguments...);
  }
}

}  // namespace cuda
}  // namespace snnlib
