// Rows of the sequences of a fully connected map with delays, and the arithmetic of their parts.
#pragma once

#include "snnlib/core/simd.h"
#include "snnlib/delay/linear.h"

namespace snnlib {
namespace SNNLIB_ISA {

inline int64_t smaller_of(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t larger_of(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t parts_of(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

template <class S>
inline const S* row_of(const DelayedLinearArgs& a, const void* rows, int64_t t, int64_t n, int64_t length) {
  return static_cast<const S*>(rows) + (t * a.step_rows + n * a.batch_rows) * length;
}
template <class S>
inline S* row_of(const DelayedLinearArgs& a, void* rows, int64_t t, int64_t n, int64_t length) {
  return static_cast<S*>(rows) + (t * a.step_rows + n * a.batch_rows) * length;
}

// f(sample, row) for the rows of x at step t of samples from `first` on. Those of the next step are fetched meanwhile,
// as they lie too far away for the processor to foresee.
template <class S, class F>
inline void for_rows(const DelayedLinearArgs& a, int64_t t, int64_t first, int64_t samples, const F& f) {
  for (int64_t n = 0; n < samples; ++n) {
    if (t + 1 < a.steps) prefetch(row_of<S>(a, a.x, t + 1, first + n, a.inputs), a.inputs);
    f(n, row_of<S>(a, a.x, t, first + n, a.inputs));
  }
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
