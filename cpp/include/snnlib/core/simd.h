// Vectors of float lanes in memory and as masks, for kernels whose loops go over neighbouring channels. The number of
// lanes depends on the instruction set; no result does, because lanes never meet. And memory traffic of kernels that
// touch every value once: stores past the caches, and prefetches.
#pragma once

#include "snnlib/core/platform.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace snnlib {
namespace SNNLIB_ISA {

using Floats = Simd<float>::Vector;
using Ints = Simd<int32_t>::Vector;
constexpr int64_t kLanes = Simd<float>::kLanes;
constexpr uint32_t kAllLanes = (uint32_t(1) << kLanes) - 1;
// Lanes of the widest instruction set: what rows are padded to, so that a layout means the same everywhere.
constexpr int64_t kGroup = 16;

constexpr int64_t padded(int64_t floats) { return (floats + kGroup - 1) / kGroup * kGroup; }

inline Floats load(const float* p) {
  Floats v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

inline void store(float* p, Floats v) { std::memcpy(p, &v, sizeof v); }

// a b + c rounded once, in every lane. Without an instruction for it a call of the C library: slow, the same bits.
inline Floats fused_multiply_add(float a, Floats b, Floats c) {
#if defined(__AVX512F__)
  return Floats(_mm512_fmadd_ps(_mm512_set1_ps(a), __m512(b), __m512(c)));
#elif defined(__AVX2__) && defined(__FMA__)
  return Floats(_mm256_fmadd_ps(_mm256_set1_ps(a), __m256(b), __m256(c)));
#else
  for (int i = 0; i < kLanes; ++i) c[i] = __builtin_fmaf(a, b[i], c[i]);
  return c;
#endif
}

// Has `length` elements brought into the caches, for later.
template <class T>
inline void prefetch(const T* p, int64_t length) {
#if defined(__GNUC__)
  for (int64_t i = 0; i < length; i += 64 / int64_t(sizeof(T))) __builtin_prefetch(p + i);
#else
  (void)p, (void)length;
#endif
}

#if defined(__AVX512F__)
// The mask in a general register. GCC 12 else may keep it in memory with 16 bits and read 32.
inline uint32_t lane_bits(__mmask16 mask) {
  uint32_t bits = mask;
  __asm__("" : "+r"(bits));
  return bits;
}
#endif

// Bit i is set where lane i of `v` is not zero (NaN included).
inline uint32_t nonzero_lanes(Floats v) {
#if defined(__AVX512F__)
  return lane_bits(_mm512_cmp_ps_mask(__m512(v), _mm512_setzero_ps(), _CMP_NEQ_UQ));
#elif defined(__AVX__)
  return uint32_t(_mm256_movemask_ps(_mm256_cmp_ps(__m256(v), _mm256_setzero_ps(), _CMP_NEQ_UQ)));
#elif defined(__SSE2__)
  return uint32_t(_mm_movemask_ps(_mm_cmpneq_ps(__m128(v), _mm_setzero_ps())));
#else
  float lane[kLanes];
  std::memcpy(lane, &v, sizeof v);
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= uint32_t(lane[i] != 0.0f) << i;
  return bits;
#endif
}

// Bit i is set where lane i of `a` is at least that of `b` (not for NaN).
inline uint32_t lanes_at_least(Floats a, Floats b) {
#if defined(__AVX512F__)
  return lane_bits(_mm512_cmp_ps_mask(__m512(a), __m512(b), _CMP_GE_OS));
#elif defined(__AVX__)
  return uint32_t(_mm256_movemask_ps(_mm256_cmp_ps(__m256(a), __m256(b), _CMP_GE_OS)));
#elif defined(__SSE2__)
  return uint32_t(_mm_movemask_ps(_mm_cmpge_ps(__m128(a), __m128(b))));
#else
  float left[kLanes], right[kLanes];
  std::memcpy(left, &a, sizeof a);
  std::memcpy(right, &b, sizeof b);
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= uint32_t(left[i] >= right[i]) << i;
  return bits;
#endif
}

// Bit i is set where lane i of `a` is below that of `b` (not for NaN).
inline uint32_t lanes_below(Floats a, Floats b) {
#if defined(__AVX512F__)
  return lane_bits(_mm512_cmp_ps_mask(__m512(a), __m512(b), _CMP_LT_OS));
#elif defined(__AVX__)
  return uint32_t(_mm256_movemask_ps(_mm256_cmp_ps(__m256(a), __m256(b), _CMP_LT_OS)));
#elif defined(__SSE2__)
  return uint32_t(_mm_movemask_ps(_mm_cmplt_ps(__m128(a), __m128(b))));
#else
  float left[kLanes], right[kLanes];
  std::memcpy(left, &a, sizeof a);
  std::memcpy(right, &b, sizeof b);
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= uint32_t(left[i] < right[i]) << i;
  return bits;
#endif
}

// Bit i is set where lane i of `v` is not zero.
inline uint32_t nonzero_lanes(Ints v) {
#if defined(__AVX512F__)
  return lane_bits(_mm512_test_epi32_mask(__m512i(v), __m512i(v)));
#elif defined(__AVX2__)
  return ~uint32_t(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(__m256i(v), _mm256_setzero_si256())))) &
         kAllLanes;
#elif defined(__SSE2__)
  return ~uint32_t(_mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(__m128i(v), _mm_setzero_si128())))) & kAllLanes;
#else
  int32_t lane[kLanes];
  std::memcpy(lane, &v, sizeof v);
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= uint32_t(lane[i] != 0) << i;
  return bits;
#endif
}

// True if four vectors hold nothing but zeros.
inline bool all_zero(const float* p) {
  Ints v[4];
  std::memcpy(v, p, sizeof v);
  return !nonzero_lanes((v[0] | v[1]) | (v[2] | v[3]));
}

inline int lowest_bit(uint64_t bits) {
#if defined(__GNUC__)
  return __builtin_ctzll(bits);
#else
  int i = 0;
  while (!(bits >> i & 1)) ++i;
  return i;
#endif
}

inline int count_bits(uint64_t bits) {
#if defined(__GNUC__)
  return __builtin_popcountll(bits);
#else
  int n = 0;
  for (; bits; bits &= bits - 1) ++n;
  return n;
#endif
}

// first, first + 1, ...
inline Ints lane_numbers(int64_t first) {
  static constexpr int32_t kNumbers[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  Ints v;
  std::memcpy(&v, kNumbers, sizeof v);
  return v + int32_t(first);
}

// The first `count` lanes, 0 in the others.
inline Floats first_lanes(Floats v, int64_t count) { return lane_numbers(0) < int32_t(count) ? v : Floats{}; }

#if defined(__AVX2__)
// For each of 8 bits' patterns the lanes whose bit is set, in order.
struct SelectedLanes {
  uint8_t lanes[256][8] = {};
  constexpr SelectedLanes() {
    for (int bits = 0; bits < 256; ++bits) {
      for (int lane = 0, n = 0; lane < 8; ++lane) {
        if (bits >> lane & 1) lanes[bits][n++] = uint8_t(lane);
      }
    }
  }
};
inline constexpr SelectedLanes kSelectedLanes;

// As a permutation that puts them first.
inline __m256i selection(uint32_t bits) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(kSelectedLanes.lanes[bits])));
}
#endif

// Writes the lanes of `v` whose bit is set next to each other; `out` needs room for all lanes.
inline void store_selected(float* out, Floats v, uint32_t bits) {
#if defined(__AVX512F__)
  _mm512_storeu_ps(out, _mm512_maskz_compress_ps(__mmask16(bits), __m512(v)));
#elif defined(__AVX2__)
  _mm256_storeu_ps(out, _mm256_permutevar8x32_ps(__m256(v), selection(bits)));
#else
  float lane[kLanes];
  std::memcpy(lane, &v, sizeof v);
  for (; bits; bits &= bits - 1) *out++ = lane[lowest_bit(bits)];
#endif
}

inline void store_selected(int32_t* out, Ints v, uint32_t bits) {
#if defined(__AVX512F__)
  _mm512_storeu_si512(out, _mm512_maskz_compress_epi32(__mmask16(bits), __m512i(v)));
#elif defined(__AVX2__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_permutevar8x32_epi32(__m256i(v), selection(bits)));
#else
  int32_t lane[kLanes];
  std::memcpy(lane, &v, sizeof v);
  for (; bits; bits &= bits - 1) *out++ = lane[lowest_bit(bits)];
#endif
}

// Sums in registers: of V vectors side by side.
template <int V>
inline void load_all(Floats (&sum)[V], const float* p) {
  for (int v = 0; v < V; ++v) sum[v] = load(p + v * kLanes);
}

template <int V>
inline void store_all(float* p, const Floats (&sum)[V]) {
  for (int v = 0; v < V; ++v) store(p + v * kLanes, sum[v]);
}

template <bool Binary, int V>
inline void add_weights(Floats (&sum)[V], const float* weight, float amount) {
  for (int v = 0; v < V; ++v) sum[v] += Binary ? load(weight + v * kLanes) : amount * load(weight + v * kLanes);
}

SNNLIB_NOINLINE inline void scale(float* x, int64_t n, float factor) {
  for (int64_t i = 0; i < n; i += kLanes) store(x + i, load(x + i) * factor);
}

// Calls kernels for 8, 4, 2 and 1 vectors until `length` floats are done: kernel(offset), as many vectors at a time as
// sums fit in registers.
template <class F8, class F4, class F2, class F1>
inline void in_registers(int64_t length, const F8& eight, const F4& four, const F2& two, const F1& one) {
  int64_t done = 0;
  for (; length - done > 7 * kLanes; done += 8 * kLanes) eight(done);
  for (; length - done > 3 * kLanes; done += 4 * kLanes) four(done);
  for (; length - done > kLanes; done += 2 * kLanes) two(done);
  for (; length - done > 0; done += kLanes) one(done);
}

constexpr int64_t kCacheLine = 64;
// A tensor of this size has left the caches before the next op reads it. Storing it through them only costs reads of
// the lines that are overwritten.
constexpr int64_t kStreamedBytes = int64_t(32) << 20;

// True if an output of `bytes` should be streamed and can be: its rows, `row_bytes` apart, start on cache lines.
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
