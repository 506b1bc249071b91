// Average pooling of 2 x 2 windows apart, as nearly all published nets have it, one thread per 16 bytes of cells, or
// per as many as a row has whole packs of: both rows are loaded at once and everything else stays in registers. pool.cu
// has the general kernels; bits are the same.
#pragma once

#include <cfloat>

#include "divider.h"
#include "element.h"
#include "launch.h"
#include "snnlib/pool/pool.h"
#include "snnlib/pool/windows.h"

namespace snnlib {
namespace cuda {

struct PairPool {
  uint32_t threads;
  // Threads of a row of windows (of a pixel in channels-last), windows of a row, rows of windows of a plane.
  Divider<uint32_t> groups, columns, rows;
  // Elements of a row of cells and of a row of windows, and rows of cells of a plane that are in no window.
  int64_t in_row, out_row, skipped;
  int64_t inner;
};

// Windows and cells of a thread: P channels of one window in channels-last, else P columns of two rows.
template <class T, int P, bool Last>
struct Pairs {
  using S = typename StateOf<T>::type;
  static constexpr int kWindows = Last ? P : P / 2, kPacks = Last ? 4 : 2;

  // Elements of the first cell and the first window of thread i.
  int64_t in, out;
  Pack<T, P> cells[kPacks];

  __device__ Pairs(const PairPool& a, uint32_t i) {
    const uint32_t rest = a.groups.quotient(i), group = i - rest * a.groups.size;
    const uint32_t row = Last ? a.columns.quotient(rest) : rest, plane = a.rows.quotient(row);
    const int64_t x = Last ? rest - row * a.columns.size : 0;
    in = (2 * int64_t(row) + plane * a.skipped) * a.in_row + 2 * x * a.inner + int64_t(group) * P;
    out = row * a.out_row + x * a.inner + int64_t(group) * kWindows;
  }
  // Place of pack k: rows one after the other, in channels-last two pixels of each.
  __device__ int64_t offset(const PairPool& a, int k) const {
    return Last ? in + (k / 2) * a.in_row + (k % 2) * a.inner : in + k * a.in_row;
  }
  // Vectors where the rows are aligned.
  template <bool Aligned>
  __device__ void load(const PairPool& a, const void* input) {
    SNNLIB_UNROLL
    for (int k = 0; k < kPacks; ++k) {
      if (Aligned) {
        cells[k] = load_pack<T, P>(input, offset(a, k));
      } else {
        SNNLIB_UNROLL
        for (int v = 0; v < P; ++v) cells[k].lane[v] = static_cast<const T*>(input)[offset(a, k) + v];
      }
    }
  }
  // Cell k of 4 of window w, row by row.
  __device__ S cell(int w, int k) const { return to_state(Last ? cells[k].lane[w] : cells[k / 2].lane[2 * w + k % 2]); }
};

template <class T, int P, bool Last, bool Aligned>
__global__ void pair_forward_kernel(PairPool a, const void* input, void* output, typename StateOf<T>::type scale) {
  using S = typename StateOf<T>::type;
  const int64_t index = thread_index();
  if (index >= a.threads) return;
  using Here = Pairs<T, P, Last>;
  Here here(a, uint32_t(index));
  here.template load<Aligned>(a, input);
  Pack<T, Here::kWindows> means;
  SNNLIB_UNROLL
  for (int w = 0; w < Here::kWindows; ++w) {
    S sum = S(0);
    SNNLIB_UNROLL
    for (int k = 0; k < 4; ++k) sum += here.cell(w, k);
    from_state(sum * scale, &means.lane[w]);
  }
  store_pack(output, here.out, means);
}

template <class T, int P, bool Last>
__global__ void pair_backward_kernel(PairPool a, const void* input, const void* grad_output, void* grad_input) {
  using S = typename StateOf<T>::type;
  const int64_t index = thread_index();
  if (index >= a.threads) return;
  using Here = Pairs<T, P, Last>;
  Here here(a, uint32_t(index));
  const auto grads = load_pack<T, Here::kWindows>(grad_output, here.out);
  here.template load<true>(a, input);
  const S tolerance = S(4) * (sizeof(S) == 8 ? S(DBL_EPSILON) : S(FLT_EPSILON));
  SNNLIB_UNROLL
  for (int w = 0; w < Here::kWindows; ++w) {
    S sum = S(0), sum_abs = S(0);
    SNNLIB_UNROLL
    for (int k = 0; k < 4; ++k) {
      const S value = here.cell(w, k);
      sum += value;
      sum_abs += value < S(0) ? -value : value;
    }
    const S share = S(0) + pool_share(to_state(grads.lane[w]), sum, sum_abs, tolerance);
    SNNLIB_UNROLL
    for (int k = 0; k < 4; ++k) {
      const S value = here.cell(w, k);
      from_state(value == S(0) ? S(0) : value * share,
                 Last ? &here.cells[k].lane[w] : &here.cells[k / 2].lane[2 * w + k % 2]);
    }
  }
  SNNLIB_UNROLL
  for (int k = 0; k < Here::kPacks; ++k) store_pack(grad_input, here.offset(a, k), here.cells[k]);
}

// True if the windows are 2 x 2, apart and whole.
inline bool are_pairs(const PoolArgs& a) {
  const bool flat = a.kernel[0] == 1 && a.stride[0] == 1 && a.padding[0] == 0 && a.in[0] == a.out[0];
  bool pairs = flat;
  for (int axis = 1; axis < 3; ++axis) {
    pairs = pairs && a.kernel[axis] == 2 && a.stride[axis] == 2 && a.padding[axis] == 0 && a.out[axis] > 0 &&
            2 * a.out[axis] <= a.in[axis];
  }
  return pairs;
}

// Threads of P cells of a row each; false where an index would not fit.
template <int P, bool Last>
bool split(const PoolArgs& a, PairPool* pool) {
  const int64_t planes = a.outer * a.in[0], rows = planes * a.out[1];
  const int64_t groups = Last ? a.inner / P : a.out[2] / (P / 2);
  const int64_t threads = rows * groups * (Last ? a.out[2] : 1);
  if (threads >= (int64_t(1) << 31)) return false;
  using Narrow = Divider<uint32_t>;
  *pool = {uint32_t(threads), Narrow(groups),     Narrow(a.out[2]),       Narrow(a.out[1]),
           a.in[2] * a.inner, a.out[2] * a.inner, a.in[1] - 2 * a.out[1], a.inner};
  return true;
}

// True if vectors of P cells begin at whole vectors in every row, as do those of their windows.
template <class T, int P>
bool rows_aligned(const PoolArgs& a, const void* cells, const void* windows) {
  const bool last = a.inner > 1;
  const int64_t unit = last ? a.inner : a.in[2];
  const int64_t out_unit = last ? a.inner : a.out[2], out_pack = last ? P : P / 2;
  return unit % P == 0 && out_unit % out_pack == 0 && is_aligned(cells, P * sizeof(T)) &&
         is_aligned(windows, out_pack * sizeof(T));
}

template <class T, int P, bool Last, bool Aligned>
bool pair_forward(const PoolForwardArgs& a, double scale) {
  PairPool pool;
  if (!split<P, Last>(a, &pool)) return false;
  launch("pool_forward", pair_forward_kernel<T, P, Last, Aligned>, pool.threads, a.executor, Scratch{}, pool, a.input,
         a.output, typename StateOf<T>::type(scale));
  return true;
}

// Pools where it can; false where the general kernel has to. By vectors of P cells, or of fewer where they do not fit.
template <class T, int P = 16 / sizeof(T)>
bool pair_forward(const PoolForwardArgs& a) {
  // Dividing by a power of two is multiplying by its inverse, to the bit.
  const int64_t divisor = a.divisor_override ? a.divisor_override : 4;
  if (!are_pairs(a) || divisor <= 0 || (divisor & (divisor - 1)) != 0 || divisor > 1024) return false;
  const double scale = 1.0 / double(divisor);
  if (rows_aligned<T, P>(a, a.input, a.output)) {
    return a.inner > 1 ? pair_forward<T, P, true, true>(a, scale) : pair_forward<T, P, false, true>(a, scale);
  }
  if constexpr (P > 2) return pair_forward<T, P / 2>(a);
  return a.inner > 1 ? pair_forward<T, 1, true, true>(a, scale) : pair_forward<T, 2, false, false>(a, scale);
}

template <class T, int P, bool Last>
bool pair_backward(const PoolBackwardArgs& a) {
  PairPool pool;
  if (!split<P, Last>(a, &pool)) return false;
  launch("pool_backward", pair_backward_kernel<T, P, Last>, pool.threads, a.executor, Scratch{}, pool, a.input,
         a.grad_output, a.grad_input);
  return true;
}

// Pools backward where it can, as above.
template <class T, int P = 16 / sizeof(T)>
bool pair_backward(const PoolBackwardArgs& a) {
  // Cells of no window get a zero, which the general kernel writes.
  const bool covered = are_pairs(a) && 2 * a.out[1] == a.in[1] && 2 * a.out[2] == a.in[2];
  if (!covered) return false;
  if (is_aligned(a.grad_input, P * sizeof(T)) && rows_aligned<T, P>(a, a.input, a.grad_output)) {
    return a.inner > 1 ? pair_backward<T, P, true>(a) : pair_backward<T, P, false>(a);
  }
  if constexpr (P > 2) return pair_backward<T, P / 2>(a);
  return a.inner > 1 && pair_backward<T, 1, true>(a);
}

}  // namespace cuda
}  // namespace snnlib
