// Memory traffic of kernels that touch every value once: stores past the caches, and prefetches.
#pragma once

#include "snnlib/core/platform.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace snnlib {
namespace SNNLIB_ISA {

constexpr int64_t kCacheLine = 64;
// A tensor of this size has left the caches before the next op reads it. Storing it through them only costs reads of
// the lines that are overwritten.
constexpr int64_t kStreamedBytes = int64_t(32) << 20;

// Whether an output of `bytes` should be streamed and can be: its rows, `row_bytes` apart, start on cache lines.
inline bool streamable(const void* output, int64_t bytes, int64_t row_bytes) {
#if defined(__SSE2__)
  return bytes >= kStreamedBytes && reinterpret_cast<uintptr_t>(output) % kCacheLine == 0 &&
         row_bytes % kCacheLine == 0;
#else
  (void)output, (void)bytes, (void)row_bytes;
  return false;
#endif
}

// Writes `Bytes` (8, 16, 32 or 64, aligned) past the caches. A cache line has to be written whole, in pieces right
// after each other: in parts between parts of other lines it costs several times as much.
template <int Bytes>
inline void stream_bytes(void* to, const void* from) {
#if defined(__AVX512F__)
  if constexpr (Bytes == 64) {
    return _mm512_stream_si512(static_cast<__m512i*>(to), _mm512_loadu_si512(from));
  }
#endif
#if defined(__AVX__)
  if constexpr (Bytes == 32) {
    return _mm256_stream_si256(static_cast<__m256i*>(to), _mm256_loadu_si256(static_cast<const __m256i*>(from)));
  }
#endif
#if defined(__SSE2__)
  if constexpr (Bytes == 16) {
    return _mm_stream_si128(static_cast<__m128i*>(to), _mm_loadu_si128(static_cast<const __m128i*>(from)));
  }
#endif
#if defined(__SSE2__) && defined(__x86_64__)
  if constexpr (Bytes == 8) {
    long long word;
    std::memcpy(&word, from, sizeof word);
    return _mm_stream_si64(static_cast<long long*>(to), word);
  }
#endif
  std::memcpy(to, from, Bytes);
}

// Puts streamed lines in order before whatever this thread stores next.
inline void finish_streams() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

// Asks for a cache line ahead of its use, into the second-level cache. Any address will do.
inline void prefetch(const void* p) {
#if defined(__GNUC__)
  __builtin_prefetch(p, 0, 2);
#else
  (void)p;
#endif
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
