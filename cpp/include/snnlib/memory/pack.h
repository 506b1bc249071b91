// Sequences packed by content, without loss: the launchers that the bindings call. A sequence is read as 32-bit words
// in blocks, and each block takes the shortest of some forms (memory/pack.h), so that memory follows what
// happens and silence takes none.
#pragma once

#include <cstdint>

#include "snnlib/core/platform.h"

namespace snnlib {

// A block in memory from malloc.
struct PackedBlock {
  uint8_t* data = nullptr;
  int64_t bytes = 0;
};

struct PackArgs {
  const uint8_t* words;
  int64_t count;        // of words
  PackedBlock* blocks;  // one per kPackWords words
  int threads;
};

struct UnpackArgs {
  const uint8_t* packed;
  const int64_t* starts;  // of each block, in bytes
  uint8_t* words;
  int64_t count;
  Executor executor;
  SNNLIB_FIELDS(packed, starts, words, count, executor)
};

// Words of a block: their places fit in 16 bits, and the block in the L2 cache.
constexpr int64_t kPackWords = 1 << 14;
inline int64_t pack_blocks(int64_t words) { return (words + kPackWords - 1) / kPackWords; }

struct PackKernels {
  void (*pack)(const PackArgs&);
  void (*unpack)(const UnpackArgs&);
};

}  // namespace snnlib
