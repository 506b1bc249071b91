// Elements of CUDA tensors: the hardware's half types, converted like those of snnlib/dtype.h, and packs of neighbours
// that one load or store moves.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "launch.h"
#include "snnlib/dtype.h"

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

template <class T, int V>
__device__ inline Pack<T, V> load_pack(const void* base, int64_t offset) {
  const Word<Pack<T, V>> word = *reinterpret_cast<const Word<Pack<T, V>>*>(static_cast<const T*>(base) + offset);
  Pack<T, V> pack;
  memcpy(static_cast<void*>(&pack), &word, sizeof pack);
  return pack;
}

template <class T, int V>
__device__ inline void store_pack(void* base, int64_t offset, const Pack<T, V>& pack) {
  Word<Pack<T, V>> word;
  memcpy(&word, &pack, sizeof word);
  store_streaming(reinterpret_cast<Word<Pack<T, V>>*>(static_cast<T*>(base) + offset), word);
}

}  // namespace cuda
}  // namespace snnlib
