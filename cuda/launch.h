// launch(name, kernel, threads, executor, scratch, arguments...) runs `kernel` for every thread index in [0, threads)
// and a few beyond; throws if CUDA does not take it. This file alone knows how a kernel starts and what differs between
// a device and the loops on the CPU that cuda/emulation makes of the same kernels.
#pragma once

#include "launch_shape.h"
#include "snnlib/executor.h"

#ifdef SNNLIB_EMULATION
#include "emulation/launch.h"
#else

#include <cuda_runtime.h>

#define SNNLIB_UNROLL _Pragma("unroll")

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
void launch(const char* name, void (*kernel)(Parameters...), int64_t threads, Executor executor, Scratch scratch,
            const Arguments&... arguments) {
  if (threads == 0) return;
  LaunchShape shape = launch_shape(name, threads, scratch);
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

}  // namespace cuda
}  // namespace snnlib

#endif
