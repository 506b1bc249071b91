// A dense matrix by events: sums of the rows of neurons that fired, and products of rows with a signal. Each sum is
// taken in one order on every instruction set.
#pragma once

#include <utility>

#include "snnlib/core/dtype.h"
#include "snnlib/core/simd.h"

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

// Writes the lanes whose bit is set next to each other, with their numbers from `first` on; both places need room for
// all lanes. How many there are.
template <class S>
inline int64_t append_events(int64_t first, typename Simd<S>::Vector amounts, uint32_t bits, int32_t* number,
                             S* amount) {
  if constexpr (sizeof(S) == sizeof(float)) {
    store_selected(number, lane_numbers(first), bits);
    store_selected(amount, amounts, bits);
    return count_bits(bits);
  } else {
    S lane[Simd<S>::kLanes];
    std::memcpy(lane, &amounts, sizeof lane);
    int64_t count = 0;
    for (; bits; bits &= bits - 1) {
      number[count] = int32_t(first + lowest_bit(bits));
      amount[count++] = lane[lowest_bit(bits)];
    }
    return count;
  }
}

// Writes the numbers alone.
template <class S>
inline int64_t append_numbers(int64_t first, uint32_t bits, int32_t* number) {
  if constexpr (sizeof(S) == sizeof(float)) {
    store_selected(number, lane_numbers(first), bits);
    return count_bits(bits);
  } else {
    int64_t count = 0;
    for (; bits; bits &= bits - 1) number[count++] = int32_t(first + lowest_bit(bits));
    return count;
  }
}

// Number of elements that both may write behind the last event.
constexpr int64_t kMoreEvents = kGroup;

// Elements of a row that are not zero (NaN included).
template <class S>
inline int64_t append_row(const S* row, int64_t length, int32_t* number, S* amount) {
  constexpr int64_t L = Simd<S>::kLanes;
  int64_t count = 0;
  for (int64_t i = 0; i < length; i += L) {
    const auto v = load_lanes<S>(row + i, length - i);
    count += append_events<S>(i, v, nonzero_bits<S>(v), number + count, amount + count);
  }
  return count;
}

// Only the numbers of those that are not zero (NaN included).
template <class S>
inline int64_t append_numbers(const S* row, int64_t length, int32_t* number) {
  constexpr int64_t L = Simd<S>::kLanes;
  int64_t count = 0;
  for (int64_t i = 0; i < length; i += L) {
    uint32_t bits = nonzero_bits<S>(load_lanes<S>(row + i, length - i));
    if constexpr (sizeof(S) == sizeof(float)) {
      store_selected(number + count, lane_numbers(i), bits);
      count += count_bits(bits);
    } else {
      for (; bits; bits &= bits - 1) number[count++] = int32_t(i + lowest_bit(bits));
    }
  }
  return count;
}

// Events of a row in rising order: where, and how large.
template <class S>
struct Fired {
  int32_t* neuron;
  S* amount;
  int64_t count;
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

#if defined(__GNUC__)
// `a` and `b` hold the terms of a row in every 2 W lanes; the halves of each row's are added, those of `a` first.
template <int W, class V, size_t... Lane>
inline V add_halves(V a, V b, std::index_sequence<Lane...>) {
  return __builtin_shufflevector(a, b, int(Lane / W * 2 * W + Lane % W)...) +
         __builtin_shufflevector(a, b, int(Lane / W * 2 * W + Lane % W + W)...);
}
#endif

// As many vectors as lanes become one vector of the sums of their lanes, halves onto halves.
template <class S, int W = Simd<S>::kLanes / 2>
inline void sum_lanes(typename Simd<S>::Vector* v) {
#if defined(__GNUC__)
  if constexpr (W > 0) {
    for (int n = 0; n < W; ++n)
      v[n] = add_halves<W>(v[2 * n], v[2 * n + 1], std::make_index_sequence<Simd<S>::kLanes>());
    sum_lanes<S, W / 2>(v);
  }
#else
  (void)v;
#endif
}

// The products of N rows with a signal, element by element: 16 sums of every 16th term, of which halves are added onto
// halves until they are one vector.
template <class S, int N>
inline void multiply_rows(const int32_t* rows, const S* weight, int64_t row, const S* signal,
                          typename Simd<S>::Vector* out) {
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
    for (int half = int(P) / 2; half; half /= 2) {
      for (int p = 0; p < half; ++p) sums[n][p] = sums[n][p] + sums[n][p + half];
    }
    out[n] = sums[n][0];
  }
}

// Number of elements that `rows_times` may write behind a list of rows.
constexpr int64_t kMoreRows = kGroup;

// out[j] = weight[j] . signal for the rows j that are listed.
template <class S>
inline void rows_times(int32_t* rows, int64_t count, const S* weight, int64_t row, const S* signal, S* out) {
  constexpr int64_t L = Simd<S>::kLanes;
  // As many sums as there are registers for.
  constexpr int64_t M = sizeof(typename Simd<S>::Vector) == 64 ? (sizeof(S) == sizeof(float) ? 8 : 4) : 4,
                    N = L < M ? L : M;
  if (!count) return;
  // The last row fills up the last vector of results.
  for (int64_t n = count; n % L; ++n) rows[n] = rows[count - 1];
  for (int64_t first = 0; first < count; first += L) {
    typename Simd<S>::Vector sums[L];
    for (int64_t n = 0; n < L; n += N) {
      // Elements behind the list are not used.
      if (first + n < count) {
        multiply_rows<S, N>(rows + first + n, weight, row, signal, sums + n);
      } else {
        std::memset(static_cast<void*>(sums + n), 0, sizeof *sums * N);
      }
    }
    sum_lanes<S>(sums);
    S lanes[L];
    std::memcpy(lanes, sums, sizeof lanes);
    const int64_t left = count - first;
    for (int64_t n = 0; n < (left < L ? left : L); ++n) out[rows[first + n]] = lanes[n];
  }
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
