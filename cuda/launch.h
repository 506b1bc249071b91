// launch(name, kernel, threads, executor, scratch, arguments...) runs `kernel` for every thread index in [0, threads)
// and a few beyond; throws if CUDA does not take it. This file alone knows how a kernel starts and what differs between
// a device and the loops on the CPU that cuda/emulation makes of the same kernels.
#pragma once

#include "snnlib/executor.h"

namespace snnlib {
namespace cuda {

// Four warps: small blocks share a multiprocessor's registers and shared memory with little rest.
constexpr int kBlockThreads = 128;

// Shared memory that each thread of a launch has to itself, and the most that a block can have without asking.
struct Scratch {
  int bytes;
};
constexpr int kScratchBytes = (48 << 10) / kBlockThreads;

}  // namespace cuda
}  // namespace snnlib

#ifdef SNNLIB_EMULATION
#include "emulation/launch.h"
#else

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#define SNNLIB_UNROLL _Pragma("unroll")

namespace snnlib {
namespace cuda {

__device__ inline uint32_t multiply_high(uint32_t a, uint32_t b) { return __umulhi(a, b); }

__device__ inline int64_t thread_index() { return int64_t(blockIdx.x) * kBlockThreads + threadIdx.x; }

// The thread's scratch: elements 0, kBlockThreads, 2 kBlockThreads ... of this pointer, so that a warp meets no bank
// twice.
template <class E>
__device__ E* scratch() {
  extern __shared__ double block_scratch[];
  return reinterpret_cast<E*>(block_scratch) + threadIdx.x;
}

// Stores what is not read again soon: its cache lines are the first to make room for others.
template <class W>
__device__ void store_streaming(W* p, W word) {
  __stcs(p, word);
}

template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), int64_t threads, Executor executor, Scratch scratch,
            const Arguments&... arguments) {
  if (threads == 0) return;
  const int64_t blocks = (threads + kBlockThreads - 1) / kBlockThreads;
  constexpr int64_t kMostBlocks = (int64_t(1) << 31) - 1;
  if (blocks > kMostBlocks) throw std::runtime_error(std::string(name) + ": the tensor is too large for one launch");
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(blocks));
  config.blockDim = dim3(kBlockThreads);
  config.dynamicSmemBytes = size_t(scratch.bytes) * kBlockThreads;
  config.stream = static_cast<cudaStream_t>(executor.stream());
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, arguments...);
  if (status == cudaSuccess) return;
  // The error was taken: the next launch must not report it again.
  (void)cudaGetLastError();
  std::string message = std::string(name) + ": " + cudaGetErrorString(status);
  if (status == cudaErrorNoKernelImageForDevice) message += " (built for " SNNLIB_CUDA_ARCHITECTURES ")";
  throw std::runtime_error(message);
}

}  // namespace cuda
}  // namespace snnlib

#endif
