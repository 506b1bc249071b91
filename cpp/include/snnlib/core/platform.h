// Differences between compilers and targets, in one place: host/device marking, SIMD types, the instruction-set
// namespace. Kernels are written for a type F that is a scalar (CUDA thread, compilers without vector types) or a
// vector of lanes (GCC and Clang on the CPU); `+ - * / < ? :` mean the same for both.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define SNNLIB_HD __host__ __device__
#else
#define SNNLIB_HD
#endif

// Before a loop whose turns are independent: it vectorises without a check for aliases. No effect on results.
#if defined(_OPENMP)
#define SNNLIB_SIMD _Pragma("omp simd")
#else
#define SNNLIB_SIMD
#endif

// For hot loops: inlined into a larger function they lose registers.
#if defined(__GNUC__)
#define SNNLIB_NOINLINE __attribute__((noinline))
#else
#define SNNLIB_NOINLINE
#endif

// For functions that do nothing but prefetch: GCC takes a call of one for a call without effect, and leaves it out.
#if defined(__GNUC__)
#define SNNLIB_INLINED __attribute__((always_inline))
// Inlines all that a function calls.
#define SNNLIB_FLATTEN __attribute__((flatten))
#else
#define SNNLIB_INLINED
#define SNNLIB_FLATTEN
#endif
#define SNNLIB_INLINE inline SNNLIB_INLINED

// The fields of a struct that the callers of a kernel fill by name, all of them, and below those of its base. The
// reader is `Arguments` of the bindings.
#define SNNLIB_FIELDS(...)                                   \
  template <class Reader>                                    \
  void read_fields(Reader& reader) {                         \
    static const typename Reader::Names names(#__VA_ARGS__); \
    reader.read(names, __VA_ARGS__);                         \
  }
#define SNNLIB_MORE_FIELDS(Base, ...)                        \
  template <class Reader>                                    \
  void read_fields(Reader& reader) {                         \
    static const typename Reader::Names names(#__VA_ARGS__); \
    Base::read_fields(reader);                               \
    reader.read(names, __VA_ARGS__);                         \
  }

// Every instruction set compiles the same source; its own namespace keeps the linker from merging the copies.
#ifndef SNNLIB_ISA
#define SNNLIB_ISA portable
#endif

// The value itself. nvcc cannot see through it, and so does not undo what a kernel does for speed.
#if defined(__CUDA_ARCH__)
#define SNNLIB_OPAQUE(constraint, x) asm("" : constraint(x))
#else
#define SNNLIB_OPAQUE(constraint, x) (void)0
#endif

namespace snnlib {

// A number of CPU threads or a CUDA stream, in one word so that both kinds of kernels share one calling convention.
struct Executor {
  intptr_t word;

  int threads() const { return int(word); }
  void* stream() const { return reinterpret_cast<void*>(word); }
};

namespace SNNLIB_ISA {

SNNLIB_HD inline float opaque(float x) {
  SNNLIB_OPAQUE("+f", x);
  return x;
}
SNNLIB_HD inline double opaque(double x) {
  SNNLIB_OPAQUE("+d", x);
  return x;
}
SNNLIB_HD inline int64_t opaque(int64_t x) {
  SNNLIB_OPAQUE("+l", x);
  return x;
}

// The smaller of two numbers, the second where the first is NaN.
template <class F>
SNNLIB_HD inline F smaller(F x, F y) {
  return x < y ? x : y;
}
#if defined(__CUDA_ARCH__)
template <>
SNNLIB_HD inline float smaller(float x, float y) {
  return fminf(x, y);
}
#endif

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

template <class S>
struct Simd {
#if defined(__GNUC__) && !defined(__CUDACC__)
  typedef S Vector __attribute__((vector_size(kVectorBytes)));
#else
  using Vector = S;
#endif
  static constexpr int kLanes = sizeof(Vector) / sizeof(S);
};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
