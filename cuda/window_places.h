// Where a thread that takes windows of 2 x 2 cells through time finds them.
#pragma once

#include <stdexcept>
#include <string>

#include "chunks.h"
#include "divider.h"
#include "snnlib/loop/scan_args.h"

namespace snnlib {
namespace cuda {

// Cells of a thread: packs of P columns of two rows, or with Last of P channels of two by two pixels.
template <int P, bool Last>
struct WindowShape {
  static constexpr int kLanes = P, kPacks = Last ? 4 : 2, kCells = kPacks * P, kWindows = kCells / 4;
  static constexpr bool kLast = Last;
  // Neurons of a channel share their coefficients: sets of them that a thread has.
  static constexpr int kChannels = Last ? P : 1;
  // Window and set of coefficients of the cell at `lane` of any pack.
  SNNLIB_HD static constexpr int window(int lane) { return Last ? lane : lane / 2; }
  SNNLIB_HD static constexpr int channel(int lane) { return Last ? lane : 0; }
};

// Steps that a thread loads before it needs the first: as many as an H200 is fastest with, forward in channels-last
// more. float64 is for gradient checks.
template <class T, bool Last = false>
constexpr int kAhead = sizeof(T) == 8 ? 1 : (Last ? 8 : 4);

// Calls f with the shape of a thread's cells: in channels-last a channel, in half precision two, so that a load has 4
// bytes.
template <class T, class F>
inline void by_layout(const CellPlanes& planes, const F& f) {
  if (!planes.channels_last) return f(WindowShape<2, false>());
  if constexpr (sizeof(T) == 2) {
    if (planes.channels % 2 == 0) return f(WindowShape<2, true>());
  }
  f(WindowShape<1, true>());
}

// Elements of the first cell and the first window at step 0, the cell among those of one step of all samples, and the
// first channel.
struct WindowPlace {
  int64_t cell, window, neuron;
  uint32_t channel;
};

struct WindowPlaces {
  // Threads of an outer index; threads of a row of windows (of a pixel in channels-last), windows of a row, rows of
  // windows of a plane, channels.
  Divider<uint32_t> outer, groups, columns, rows, channels;
  uint32_t threads;
  // Elements of a row of cells and between cells side by side.
  int64_t row, column;
  // Elements of a step of cells, from one outer index to the next, and from step to step; a quarter of each for
  // windows.
  int64_t step, outer_stride, step_stride;

  // Places of threads with cells of this shape.
  template <int P, bool Last>
  static WindowPlaces split(const char* name, const CellPlanes& planes, const SequenceView& view) {
    using Shape = WindowShape<P, Last>;
    const int64_t of_outer = view.inner / Shape::kCells;
    if (view.outer * of_outer >= int64_t(1) << 31) {
      throw std::runtime_error(std::string(name) + ": expected fewer than 2^31 threads");
    }
    using D = Divider<uint32_t>;
    return {D(of_outer),
            D(Last ? planes.channels / P : planes.width / 2 / Shape::kWindows),
            D(planes.width / 2),
            D(planes.height / 2),
            D(planes.channels),
            uint32_t(view.outer * of_outer),
            planes.width * (Last ? planes.channels : 1),
            Last ? planes.channels : 1,
            view.inner,
            view.outer_stride,
            view.step_stride};
  }

  template <int P, bool Last>
  __device__ WindowPlace of(uint32_t thread) const {
    const uint32_t o = outer.quotient(thread), i = thread - o * outer.size;
    const uint32_t rest = groups.quotient(i), group = i - rest * groups.size;
    const uint32_t line = Last ? columns.quotient(rest) : rest;
    const int64_t x = Last ? rest - line * columns.size : 0;
    const int64_t at = 2 * int64_t(line) * row + 2 * x * column + int64_t(group) * P;
    const int64_t windows = int64_t(line) * (row / 2) + x * column + int64_t(group) * WindowShape<P, Last>::kWindows;
    const uint32_t plane = Last ? 0 : rows.quotient(line);
    return {int64_t(o) * outer_stride + at, int64_t(o) * (outer_stride / 4) + windows, int64_t(o) * step + at,
            Last ? group * P : channels.remainder(plane)};
  }
  // Place of pack k: rows one after the other, in channels-last two pixels of each.
  template <bool Last>
  __device__ int64_t offset(int k) const {
    return Last ? (k / 2) * row + (k % 2) * column : k * row;
  }
  template <class T, int P, bool Last>
  __device__ void read(const T* at, Pack<T, P> (&cells)[WindowShape<P, Last>::kPacks]) const {
    SNNLIB_UNROLL
    for (int k = 0; k < WindowShape<P, Last>::kPacks; ++k) cells[k] = read_pack<Pack<T, P>>(at + offset<Last>(k));
  }
};

// The means of the windows of a thread at all steps: spike(cell, its lane in a pack, current).
template <class T, int P, bool Last, class F>
__device__ void write_means(const WindowPlaces& places, int steps, const T* current, T* means, const F& spike) {
  using S = typename StateOf<T>::type;
  using Shape = WindowShape<P, Last>;
  for_each_group<kAhead<T, Last>>(steps, [&](auto size, int) {
    constexpr int n = decltype(size)::value;
    Pack<T, P> cells[n][Shape::kPacks];
    SNNLIB_UNROLL
    for (int j = 0; j < n; ++j, current += places.step_stride) places.read<T, P, Last>(current, cells[j]);
    SNNLIB_UNROLL
    for (int j = 0; j < n; ++j, means += places.step_stride / 4) {
      S mean[Shape::kWindows] = {};
      SNNLIB_UNROLL
      for (int pack = 0; pack < Shape::kPacks; ++pack) {
        S x[P];
        to_states(cells[j][pack], x);
        SNNLIB_UNROLL
        for (int v = 0; v < P; ++v) mean[Shape::window(v)] += spike(pack * P + v, v, x[v]);
      }
      SNNLIB_UNROLL
      for (int w = 0; w < Shape::kWindows; ++w) mean[w] = mean[w] * S(0.25);
      store_pack(means, 0, to_pack<T>(mean));
    }
  });
}

}  // namespace cuda
}  // namespace snnlib
