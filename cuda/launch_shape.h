// What the runtime is told of a launch. Shared with the emulation, which starts the same blocks and shows the rest.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace snnlib {
namespace cuda {

// Four warps: small blocks share a multiprocessor's registers and shared memory with little rest.
constexpr int kBlockThreads = 128;
// Two where threads have scratch, which is more per thread that way.
constexpr int kScratchThreads = 64;

// Shared memory that each thread of a launch has to itself, and the most that it can have without asking.
struct Scratch {
  int bytes;
};
constexpr int kScratchBytes = (48 << 10) / kScratchThreads;

struct LaunchShape {
  unsigned blocks;
  int threads;
  size_t shared_bytes;
  cudaLaunchAttribute attribute;
  unsigned attributes;
};

inline LaunchShape launch_shape(const char* name, int64_t threads, Scratch scratch) {
  LaunchShape shape = {};
  shape.threads = scratch.bytes > 0 ? kScratchThreads : kBlockThreads;
  const int64_t blocks = (threads + shape.threads - 1) / shape.threads;
  constexpr int64_t kMostBlocks = (int64_t(1) << 31) - 1;
  if (blocks > kMostBlocks) throw std::runtime_error(std::string(name) + ": the tensor is too large for one launch");
  shape.blocks = unsigned(blocks);
  shape.shared_bytes = size_t(scratch.bytes) * shape.threads;
#if CUDART_VERSION >= 13000
  if (scratch.bytes > 0) {
    // The scratch of all blocks that fit; left to itself the driver may give half of the memory to the cache.
    shape.attribute.id = cudaLaunchAttributePreferredSharedMemoryCarveout;
    shape.attribute.val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
    shape.attributes = 1;
  }
#endif
  return shape;
}

}  // namespace cuda
}  // namespace snnlib
