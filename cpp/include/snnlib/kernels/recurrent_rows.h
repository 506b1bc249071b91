// A dense matrix by events: sums of the rows of neurons that fired, products of rows with a signal, and the outer
// products of a weight gradient. Each sum is taken in one order on every instruction set.
#pragma once

#include "snnlib/dtype.h"
#include "snnlib/simd.h"

namespace snnlib {
namespace SNNLIB_ISA {

// Bit i is set where lane i is not zero (NaN included).
template <class S>
inline uint32_t nonzero_bits(typename Simd<S>::Vector v) {
  if constexpr (sizeof(S) == sizeof(float)) {
    return nonzero_lanes(v);
  } else {
    S lane[Simd<S>::kLanes];
    std::memcpy(lane, &v, sizeof v);
    uint32_t bits = 0;
    for (int i = 0; i < Simd<S>::kLanes; ++i) bits |= uint32_t(!(lane[i] == S(0))) << i;
    return bits;
  }
}

// Events of a row in rising order: where, and how large.
template <class S>
struct Fired {
  int32_t* neuron;
  S* amount;
  int64_t count;

  void add(int64_t first, const S* amounts, uint32_t bits) {
    for (; bits; bits &= bits - 1) {
      const int lane = lowest_bit(bits);
      neuron[count] = int32_t(first + lane);
      amount[count++] = amounts[lane];
    }
  }

  void add_row(const S* amounts, int64_t length) {
    constexpr int64_t L = Simd<S>::kLanes;
    for (int64_t i = 0; i < length; i += L)
      add(i, amounts + i, nonzero_bits<S>(load_lanes<S>(amounts + i, length - i)));
  }
};

template <class S, int N>
inline void add_rows_of(const Fired<S>& fired, const S* weight, int64_t row, S* sum) {
  using V = typename Simd<S>::Vector;
  constexpr int64_t L = Simd<S>::kLanes;
  V total[N];
  std::memcpy(total, sum, sizeof total);
  for (int64_t e = 0; e < fired.count; ++e) {
    const S* from = weight + fired.neuron[e] * row;
    for (int v = 0; v < N; ++v) total[v] = total[v] + fired.amount[e] * load_lanes<S>(from + v * L, L);
  }
  std::memcpy(sum, total, sizeof total);
}

// sum += the rows of the neurons that fired, one after the other; `row` sums, a multiple of kGroup.
template <class S>
inline void add_rows(const Fired<S>& fired, const S* weight, int64_t row, S* sum) {
  constexpr int64_t L = Simd<S>::kLanes;
  if (!fired.count) return;
  int64_t i = 0;
  for (; i + 8 * L <= row; i += 8 * L) add_rows_of<S, 8>(fired, weight + i, row, sum + i);
  for (; i + 2 * L <= row; i += 2 * L) add_rows_of<S, 2>(fired, weight + i, row, sum + i);
  for (; i < row; i += L) add_rows_of<S, 1>(fired, weight + i, row, sum + i);
}

// Products of N rows with a signal: 16 sums of every 16th term each, then halves onto halves.
template <class S, int N>
inline void rows_times_of(const int32_t* rows, const S* weight, int64_t row, const S* signal, S* out) {
  using V = typename Simd<S>::Vector;
  constexpr int64_t L = Simd<S>::kLanes, P = kGroup / L;
  V sums[N][P] = {};
  const S* from[N];
  for (int n = 0; n < N; ++n) from[n] = weight + rows[n] * row;
  for (int64_t i = 0; i < row; i += kGroup) {
    for (int p = 0; p < P; ++p) {
      const V by = load_lanes<S>(signal + i + p * L, L);
      for (int n = 0; n < N; ++n) sums[n][p] = sums[n][p] + load_lanes<S>(from[n] + i + p * L, L) * by;
    }
  }
  for (int n = 0; n < N; ++n) {
    S part[kGroup];
    std::memcpy(part, sums[n], sizeof part);
    for (int half = int(kGroup) / 2; half; half /= 2) {
      for (int i = 0; i < half; ++i) part[i] = part[i] + part[i + half];
    }
    out[rows[n]] = part[0];
  }
}

// out[j] = weight[j] . signal for the rows j that are listed.
template <class S>
inline void rows_times(const int32_t* rows, int64_t count, const S* weight, int64_t row, const S* signal, S* out) {
  // As many sums as there are registers for.
  constexpr int N = sizeof(typename Simd<S>::Vector) == 64 && sizeof(S) == sizeof(float) ? 8 : 4;
  int64_t n = 0;
  for (; n + N <= count; n += N) rows_times_of<S, N>(rows + n, weight, row, signal, out);
  for (; n < count; ++n) rows_times_of<S, 1>(rows + n, weight, row, signal, out);
}

// to += amount * signal, for whole groups in both.
template <class S>
inline void add_scaled(S amount, const S* signal, int64_t length, S* to) {
  SNNLIB_SIMD
  for (int64_t i = 0; i < length; ++i) to[i] = to[i] + amount * signal[i];
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
