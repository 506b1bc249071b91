// Walks over the windows of a plane, shared by the kernels of pooling. A task is one plane or several; the loops over
// neighbouring windows and channels vectorise and meet the cells of a window in the same order in any layout.
#pragma once

#include "snnlib/core/threads.h"
#include "snnlib/pool/pool.h"
#include "snnlib/pool/windows.h"

namespace snnlib {
namespace SNNLIB_ISA {

// Windows [first, last) of a row that hold a tap inside the image.
struct Span {
  int64_t first, last;
};

struct Axes {
  PoolAxis d, h, w;
  int64_t inner;
  // Two whole columns per window and none between them: both taps of a row in one loop.
  bool pairs;
  Scratch<Span> spans;

  explicit Axes(const PoolArgs& a) : d(axis(a, 0)), h(axis(a, 1)), w(axis(a, 2)), inner(a.inner) {
    pairs = w.kernel == 2 && w.stride == 2 && w.padding == 0 && w.out * 2 <= w.in;
    Span* span = spans.reserve(w.kernel);
    for (int64_t tap = 0; tap < w.kernel; ++tap) span[tap] = {w.first_with_tap(tap), w.last_with_tap(tap)};
  }
  static PoolAxis axis(const PoolArgs& a, int i) { return {a.in[i], a.out[i], a.kernel[i], a.stride[i], a.padding[i]}; }
  int64_t in_plane() const { return d.in * h.in * w.in * inner; }
  int64_t out_plane() const { return d.out * h.out * w.out * inner; }
  int64_t out_row() const { return w.out * inner; }
};

// f(output row, z, y) for the rows of a plane.
template <class F>
inline void for_each_output_row(const Axes& a, const F& f) {
  for (int64_t z = 0; z < a.d.out; ++z) {
    for (int64_t y = 0; y < a.h.out; ++y) f((z * a.h.out + y) * a.out_row(), z, y);
  }
}

// f(input row, its first tap) for the rows in the windows of output row (z, y). Taps of a window count row by row.
template <class F>
inline void for_each_input_row(const Axes& a, int64_t z, int64_t y, const F& f) {
  for (int64_t iz = a.d.begin(z); iz < a.d.end(z); ++iz) {
    for (int64_t iy = a.h.begin(y); iy < a.h.end(y); ++iy) {
      f((iz * a.h.in + iy) * a.w.in * a.inner, (a.d.tap(z, iz) * a.h.kernel + a.h.tap(y, iy)) * a.w.kernel);
    }
  }
}

// f(accumulator, input) of a row for windows [first, last) of a tap, in loops whose turns are independent. A literal
// stride vectorises.
template <class F>
inline void for_each_window(const Axes& a, Span span, int64_t tap, const F& f) {
  const int64_t shift = tap - a.w.padding;
  if (a.w.stride == 1) {
    SNNLIB_SIMD
    for (int64_t i = span.first * a.inner; i < span.last * a.inner; ++i) f(i, i + shift * a.inner);
  } else if (a.inner == 1 && a.w.stride == 2) {
    SNNLIB_SIMD
    for (int64_t x = span.first; x < span.last; ++x) f(x, x * 2 + shift);
  } else {
    for (int64_t x = span.first; x < span.last; ++x) {
      const int64_t from = (x * a.w.stride + shift) * a.inner, to = x * a.inner;
      SNNLIB_SIMD
      for (int64_t c = 0; c < a.inner; ++c) f(to + c, from + c);
    }
  }
}

// f(accumulator, input) of a row for every window and tap, the taps of a window in their order.
template <class F>
inline void for_each_cell(const Axes& a, const F& f) {
  if (a.inner == 1 && a.w.stride > 2 && a.w.apart()) {
    // Turns of every third column or more do not vectorise: window by window, the sum stays in a register.
    for (int64_t x = 0; x < a.w.out; ++x) {
      for (int64_t cell = a.w.begin(x); cell < a.w.end(x); ++cell) f(x, cell);
    }
  } else if (!a.pairs) {
    for (int64_t tap = 0; tap < a.w.kernel; ++tap) {
      for_each_window(a, a.spans.data()[tap], tap, f);
    }
  } else if (a.inner == 1) {
    SNNLIB_SIMD
    for (int64_t x = 0; x < a.w.out; ++x) {
      f(x, 2 * x);
      f(x, 2 * x + 1);
    }
  } else {
    for (int64_t x = 0; x < a.w.out; ++x) {
      const int64_t to = x * a.inner;
      SNNLIB_SIMD
      for (int64_t c = 0; c < a.inner; ++c) {
        f(to + c, 2 * to + c);
        f(to + c, 2 * to + a.inner + c);
      }
    }
  }
}

// Planes per task: as many as a task needs to be long enough to hide the scheduling.
inline int64_t planes_per_task(const Axes& a) {
  constexpr int64_t kTaskCells = 16384;
  return a.in_plane() < kTaskCells && a.in_plane() > 0 ? kTaskCells / a.in_plane() : 1;
}

// Calls f(first plane, last plane) for the planes of a call.
template <class F>
void for_each_task(const PoolArgs& pool, const Axes& a, const F& f) {
  const int64_t per_task = planes_per_task(a);
  parallel_for((pool.outer + per_task - 1) / per_task, pool.executor.threads(), [&](int64_t task) {
    const int64_t end = (task + 1) * per_task;
    f(task * per_task, end < pool.outer ? end : pool.outer);
  });
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
