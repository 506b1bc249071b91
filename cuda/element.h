// Elements of CUDA tensors: the hardware's half types, converted like those of snnlib/core/dtype.h, and packs of
// neighbours that one load or store moves.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "launch.h"
#include "snnlib/core/dtype.h"

namespace snnlib {
namespace cuda {

SNNLIB_HD inline float to_state(__nv_bfloat16 x) { return __bfloat162float(x); }
SNNLIB_HD inline float to_state(__half x) { return __half2float(x); }
SNNLIB_HD inline void from_state(float x, __nv_bfloat16* out) { *out = __float2bfloat16_rn(x); }
SNNLIB_HD inline void from_state(float x, __half* out) { *out = __float2half_rn(x); }

// Calls the instantiation that fits the tensors' dtype.
template <class Args>
inline void by_dtype(DType dtype, const Args& args, void (*f32)(const Args&), void (*f64)(const Args&),
                     void (*bf16)(const Args&), void (*f16)(const Args&)) {
  switch (dtype) {
    case DType::kFloat32:
      return f32(args);
    case DType::kFloat64:
      return f64(args);
    case DType::kBFloat16:
      return bf16(args);
    case DType::kFloat16:
      return f16(args);
  }
}

template <class T, int V>
struct alignas(sizeof(T) * V) Pack {
  T lane[V];
};

// Bits of the same size, which one instruction moves.
template <int Bytes>
struct WordOf;
template <>
struct WordOf<2> {
  using type = unsigned short;
};
template <>
struct WordOf<4> {
  using type = unsigned int;
};
template <>
struct WordOf<8> {
  using type = uint2;
};
template <>
struct WordOf<16> {
  using type = uint4;
};
template <class T>
using Word = typename WordOf<int(sizeof(T))>::type;

// A pack P at an address that is a multiple of its size; `write_pack` for scratch, `store_pack` for tensors.
template <class P>
__device__ inline P read_pack(const void* from) {
  const Word<P> word = *static_cast<const Word<P>*>(from);
  P pack;
  memcpy(static_cast<void*>(&pack), &word, sizeof pack);
  return pack;
}

template <class P>
__device__ inline void write_pack(void* to, const P& pack) {
  Word<P> word;
  memcpy(&word, &pack, sizeof word);
  *static_cast<Word<P>*>(to) = word;
}

// True if packs of so many bytes can begin here.
inline bool is_aligned(const void* p, int64_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }

template <class T, int V>
__device__ inline Pack<T, V> load_pack(const void* base, int64_t offset) {
  return read_pack<Pack<T, V>>(static_cast<const T*>(base) + offset);
}

template <class T, int V>
__device__ inline void store_pack(void* base, int64_t offset, const Pack<T, V>& pack) {
  using W = Word<Pack<T, V>>;
  W word;
  memcpy(&word, &pack, sizeof word);
  store_word(reinterpret_cast<W*>(static_cast<T*>(base) + offset), word);
}

template <class T, int V>
__device__ inline void to_states(const Pack<T, V>& pack, typename StateOf<T>::type (&out)[V]) {
  SNNLIB_UNROLL
  for (int v = 0; v < V; ++v) out[v] = to_state(pack.lane[v]);
}
// A single instruction each: a bfloat16 is the upper half of a float.
template <int V>
__device__ inline void to_states(const Pack<__nv_bfloat16, V>& pack, float (&out)[V]) {
  uint32_t words[(V + 1) / 2] = {};
  memcpy(words, &pack, sizeof pack);
  SNNLIB_UNROLL
  for (int v = 0; v < V; ++v) out[v] = bits_float(v % 2 ? words[v / 2] & 0xffff0000u : words[v / 2] << 16);
}

// Two at a time where the hardware converts two by one instruction.
__device__ inline void from_states(float x, float y, __nv_bfloat16* out) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
  out[0] = pair.x;
  out[1] = pair.y;
}
__device__ inline void from_states(float x, float y, __half* out) {
  const __half2 pair = __floats2half2_rn(x, y);
  out[0] = pair.x;
  out[1] = pair.y;
}
template <class S>
__device__ inline void from_states(S x, S y, S* out) {
  out[0] = x;
  out[1] = y;
}

template <class T, int V>
__device__ inline Pack<T, V> to_pack(const typename StateOf<T>::type (&values)[V]) {
  Pack<T, V> pack;
  if constexpr (V == 1) {
    from_state(values[0], &pack.lane[0]);
  } else {
    SNNLIB_UNROLL
    for (int v = 0; v < V; v += 2) from_states(values[v], values[v + 1], &pack.lane[v]);
  }
  return pack;
}

}  // namespace cuda
}  // namespace snnlib
