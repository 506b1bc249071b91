// launch(name, kernel, threads, executor, scratch, arguments...) runs `kernel` for every thread index in [0, threads)
// and a few beyond, each thread for itself; launch_blocks(name, kernel, blocks, executor, arguments...) for the threads
// of whole blocks, which may wait for each other and share memory. Both throw if CUDA does not take it. This file alone
// knows how a kernel starts and what differs between a device and what tests/native/emulation makes of the same
// kernels.
#pragma once

#include "launch_shape.h"
#include "snnlib/core/platform.h"

#ifdef SNNLIB_EMULATION
#include "emulation/emulated_launch.h"
#else

#include <cuda_runtime.h>

#define SNNLIB_UNROLL _Pragma("unroll")
// The most threads that a block of the kernel has: registers need to suffice for one such block, and not for several,
// for which ptxas would rather keep values in memory.
#define SNNLIB_MOST_THREADS(...) __launch_bounds__((__VA_ARGS__), 1)

namespace snnlib {
namespace cuda {

__device__ inline uint32_t multiply_high(uint32_t a, uint32_t b) { return __umulhi(a, b); }
__device__ inline uint64_t multiply_high(uint64_t a, uint64_t b) { return __umul64hi(a, b); }

// a b + c, rounded once.
__device__ inline float multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }

// 1 / x to a unit in the last place; numbers below 2^-126 count as 0, in x and in the result.
__device__ inline float approximate_reciprocal(float x) {
  float reciprocal;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(x));
  return reciprocal;
}

__device__ inline int64_t thread_index() { return int64_t(blockIdx.x) * blockDim.x + threadIdx.x; }

// The thread's scratch: elements 0, kScratchThreads, 2 kScratchThreads ... of this pointer, so that a warp meets no
// bank twice.
template <class E>
__device__ E* scratch() {
  extern __shared__ uint4 block_scratch[];
  return reinterpret_cast<E*>(block_scratch) + threadIdx.x;
}

// A block whose threads work together: its number, the thread's place in it, and how many there are.
__device__ inline int64_t block_index() { return blockIdx.x; }
__device__ inline int block_thread() { return int(threadIdx.x); }
__device__ inline int block_threads() { return int(blockDim.x); }

// The memory that its threads share.
__device__ inline void* block_memory() {
  extern __shared__ uint4 block_scratch[];
  return block_scratch;
}

// Returns when all threads of the block have come here, and lets each see what the others stored before.
__device__ inline void block_wait() { __syncthreads(); }

// Bit i is set where thread i of the warp says yes. For all threads of a warp at the same place.
__device__ inline uint32_t warp_vote(bool yes) { return __ballot_sync(~0u, yes); }

// Value of the thread `by` places ahead in the warp; anything where there is none. For all threads of a warp.
template <class S>
__device__ S warp_ahead(S value, int by) {
  return __shfl_down_sync(~0u, value, unsigned(by));
}

__device__ inline int count_ones(uint32_t bits) { return __popc(bits); }

// Stores a word to a tensor. Vectors by name: the compiler takes an assignment apart and puts it together in part.
template <class W>
__device__ void store_word(W* p, W word) {
  *p = word;
}
template <>
__device__ inline void store_word(uint2* p, uint2 word) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(word.x), "r"(word.y) : "memory");
}
template <>
__device__ inline void store_word(uint4* p, uint4 word) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(word.x), "r"(word.y), "r"(word.z), "r"(word.w)
               : "memory");
}

// Starts to copy `Bytes` from a tensor to the thread's scratch, by which no register waits for memory. `copies_wait`
// is for all copies that the thread has started; it sees its own alone, so that no other thread has to wait.
template <int Bytes>
__device__ void copy_async(void* to, const void* from) {
#if __CUDA_ARCH__ >= 800
  if constexpr (Bytes >= 4) {
    const unsigned place = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(place), "l"(from), "n"(Bytes) : "memory");
    return;
  }
#endif
  __builtin_memcpy(__builtin_assume_aligned(to, Bytes), __builtin_assume_aligned(from, Bytes), Bytes);
}

__device__ inline void copies_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

template <class... Parameters, class... Arguments>
void start(const char* name, void (*kernel)(Parameters...), LaunchShape shape, Executor executor,
           const Arguments&... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(shape.blocks);
  config.blockDim = dim3(unsigned(shape.threads));
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = static_cast<cudaStream_t>(executor.stream());
  config.attrs = &shape.attribute;
  config.numAttrs = shape.attributes;
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, arguments...);
  if (status == cudaSuccess) return;
  // The error was taken: the next launch must not report it again.
  (void)cudaGetLastError();
  std::string message = std::string(name) + ": " + cudaGetErrorString(status);
  if (status == cudaErrorNoKernelImageForDevice) message += " (built for " SNNLIB_CUDA_ARCHITECTURES ")";
  throw std::runtime_error(message);
}

template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), int64_t threads, Executor executor, Scratch scratch,
            const Arguments&... arguments) {
  if (threads > 0) start(name, kernel, launch_shape(name, threads, scratch), executor, arguments...);
}

template <class... Parameters, class... Arguments>
void launch_blocks(const char* name, void (*kernel)(Parameters...), const Blocks& blocks, Executor executor,
                   const Arguments&... arguments) {
  if (blocks.count > 0) start(name, kernel, launch_shape(name, blocks), executor, arguments...);
}

}  // namespace cuda
}  // namespace snnlib

#endif
