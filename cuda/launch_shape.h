// Shape of a launch as the runtime is told. Shared with the emulation, which starts the same blocks and shows the rest.
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
// Threads that vote together; blocks whose threads work together have a multiple of them.
constexpr int kWarpThreads = 32;

// Shared memory that each thread of a launch has to itself, and the most that it can have without asking.
struct Scratch {
  int bytes;
};
constexpr int kScratchBytes = (48 << 10) / kScratchThreads;
// Shared memory of a block from which on a launch asks for all that a multiprocessor has: a kernel that asks for
// another split than the one before waits until that has left, which only long kernels hide.
constexpr size_t kLargeScratch = 8 << 10;

struct LaunchShape {
  unsigned blocks;
  int threads;
  size_t shared_bytes;
  cudaLaunchAttribute attribute;
  unsigned attributes;
};

// Blocks whose threads work together, with so many bytes of shared memory each.
struct Blocks {
  int64_t count;
  int threads;
  size_t shared_bytes;
};

inline LaunchShape launch_shape(const char* name, const Blocks& blocks) {
  LaunchShape shape = {};
  constexpr int64_t kMostBlocks = (int64_t(1) << 31) - 1;
  if (blocks.count > kMostBlocks)
    throw std::runtime_error(std::string(name) + ": the tensor is too large for one launch");
  shape.blocks = unsigned(blocks.count);
  shape.threads = blocks.threads;
  shape.shared_bytes = blocks.shared_bytes;
  return shape;
}

inline LaunchShape launch_shape(const char* name, int64_t threads, Scratch scratch) {
  const int block = scratch.bytes > 0 ? kScratchThreads : kBlockThreads;
  LaunchShape shape = launch_shape(name, {(threads + block - 1) / block, block, size_t(scratch.bytes) * block});
#if CUDART_VERSION >= 13000
  if (shape.shared_bytes > kLargeScratch) {
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
