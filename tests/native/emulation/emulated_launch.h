// Kernels as plain functions on the CPU: every thread of the grid in turn, and the threads of a block that wait for
// each other as fibres. Indices, addresses and arithmetic are the kernel's own.
#pragma once

#include <vector_types.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <vector>

#include "fibres.h"

#define SNNLIB_UNROLL
#define SNNLIB_MOST_THREADS(...)

namespace snnlib {
namespace cuda {

struct EmulatedThread {
  int64_t index = 0;
  std::vector<uint4> block_scratch;
  // State of a block whose threads work together: its number, its fibres, what each of them votes and shows to others.
  int64_t block = 0;
  Fibres fibres;
  std::vector<bool> votes;
  std::vector<uint64_t> shown;
  // Shape of the last launch, for tests of what the runtime would be told.
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

inline int64_t block_index() { return emulated.block; }
inline int block_thread() { return emulated.fibres.current(); }
inline int block_threads() { return emulated.shape.threads; }
inline void* block_memory() { return emulated.block_scratch.data(); }
inline void block_wait() { emulated.fibres.wait_for_block(); }

inline uint32_t warp_vote(bool yes) {
  emulated.votes[size_t(block_thread())] = yes;
  emulated.fibres.wait_for_warp();
  const int first = block_thread() / kWarpThreads * kWarpThreads;
  uint32_t bits = 0;
  for (int lane = 0; lane < kWarpThreads; ++lane) bits |= uint32_t(emulated.votes[size_t(first + lane)]) << lane;
  emulated.fibres.wait_for_warp();
  return bits;
}

template <class S>
S warp_ahead(S value, int by) {
  std::memcpy(&emulated.shown[size_t(block_thread())], &value, sizeof value);
  emulated.fibres.wait_for_warp();
  if (block_thread() % kWarpThreads + by < kWarpThreads)
    std::memcpy(&value, &emulated.shown[size_t(block_thread() + by)], sizeof value);
  emulated.fibres.wait_for_warp();
  return value;
}

inline int count_ones(uint32_t bits) { return __builtin_popcount(bits); }

template <class W>
void store_word(W* p, W word) {
  *p = word;
}

template <int Bytes>
void copy_async(void* to, const void* from) {
  std::memcpy(to, from, Bytes);
}
inline void copies_wait() {}

// Room for the shared memory of a block of the launch.
inline void prepare(const LaunchShape& shape) {
  emulated.shape = shape;
  emulated.block_scratch.resize((shape.shared_bytes + sizeof(uint4) - 1) / sizeof(uint4));
  emulated.block_scratch.shrink_to_fit();
}

// A block finds NaN, not what the last one left.
inline void begin_block() {
  std::fill(emulated.block_scratch.begin(), emulated.block_scratch.end(), uint4{~0u, ~0u, ~0u, ~0u});
}

template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), int64_t threads, Executor, Scratch scratch,
            const Arguments&... arguments) {
  if (threads == 0) return;
  const LaunchShape shape = launch_shape(name, threads, scratch);
  prepare(shape);
  // Whole blocks, as on the device: threads past the end must find that out themselves.
  const int64_t started = int64_t(shape.blocks) * shape.threads;
  for (emulated.index = 0; emulated.index < started; ++emulated.index) {
    if (emulated.index % shape.threads == 0) begin_block();
    kernel(arguments...);
  }
}

template <class... Parameters, class... Arguments>
void launch_blocks(const char* name, void (*kernel)(Parameters...), const Blocks& blocks, Executor,
                   const Arguments&... arguments) {
  if (blocks.count == 0) return;
  prepare(launch_shape(name, blocks));
  emulated.votes.assign(size_t(blocks.threads), false);
  emulated.shown.assign(size_t(blocks.threads), 0);
  for (emulated.block = 0; emulated.block < blocks.count; ++emulated.block) {
    begin_block();
    emulated.fibres.run(blocks.threads, kWarpThreads, [&] { kernel(arguments...); });
  }
}

}  // namespace cuda
}  // namespace snnlib
