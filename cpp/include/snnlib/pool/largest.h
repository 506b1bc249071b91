// The largest cell of every window of a row of outputs. It is the largest of its rows' largest cells, in the order of
// the rows: so a row of the input is reduced along its width once, and overlapping windows share it. Of equal cells the
// first is the largest, and a NaN is larger than all before it.
#pragma once

#include <type_traits>
#include <utility>

#include "snnlib/pool/rows.h"

namespace snnlib {
namespace SNNLIB_ISA {

template <class S>
using NumberOf = std::conditional_t<sizeof(S) == sizeof(int32_t), int32_t, int64_t>;

// The largest cells of neighbouring windows and their taps, kept where they are larger than those before.
template <class S>
struct Largest {
  using Values = typename Simd<S>::Vector;
  using Numbers = typename Simd<NumberOf<S>>::Vector;
  static constexpr int64_t kLanes = Simd<S>::kLanes;
  Values value;
  Numbers tap;

  static Largest of(Values value, int64_t tap) { return {value, Numbers{} + NumberOf<S>(tap)}; }
  void meet(const Largest& next) {
    const auto larger = (next.value > value) | (next.value != next.value);
    value = larger ? next.value : value;
    tap = larger ? next.tap : tap;
  }
};

template <class V>
inline V read(const void* p) {
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// The even lanes of two neighbouring vectors, or the odd ones.
template <int Odd, class V, size_t... Lane>
inline V every_other(const V& a, const V& b, std::index_sequence<Lane...>) {
  if constexpr (sizeof...(Lane) == 1) {
    return Odd ? b : a;
  } else {
    return __builtin_shufflevector(a, b, int(2 * Lane + Odd)...);
  }
}

// A row of the input, reduced along its width: the largest cell of every window in it. Rows have room for a vector
// behind their end.
template <class S>
struct Row {
  S* value;
  NumberOf<S>* tap;
  int64_t number;  // of the row in its plane

  Largest<S> at(int64_t i) const {
    using L = Largest<S>;
    return {read<typename L::Values>(value + i), read<typename L::Numbers>(tap + i)};
  }
  void set(int64_t i, const Largest<S>& cells) const {
    std::memcpy(value + i, &cells.value, sizeof cells.value);
    std::memcpy(tap + i, &cells.tap, sizeof cells.tap);
  }
};

template <class T>
class RowReducer {
 public:
  using S = typename StateOf<T>::type;
  using Cells = Largest<S>;
  static constexpr int64_t kLanes = Cells::kLanes;
  using Lanes = std::make_index_sequence<size_t(kLanes)>;

  // `end` of the input's memory: vectors may reach beyond a row, where their lanes are not used.
  RowReducer(const Axes& a, const T* end) : a_(a), end_(end) {}

  void operator()(const T* from, const Row<S>& row) const {
    if (a_.inner > 1) return channels(from, row);
    // Windows whose taps are all inside the image.
    const int64_t first = a_.spans.data()[0].first, last = a_.spans.data()[a_.w.kernel - 1].last;
    if (first >= last) return borders(from, 0, a_.w.out, row);
    borders(from, 0, first, row);
    inside(from - a_.w.padding, first, last, row);
    borders(from, last, a_.w.out, row);
  }

 private:
  const Axes& a_;
  const T* end_;

  typename Cells::Values load(const T* p) const {
    const int64_t left = end_ - p;
    return load_lanes<T>(p, left < kLanes ? left : kLanes);
  }

  void channels(const T* from, const Row<S>& row) const {
    for (int64_t x = 0; x < a_.w.out; ++x) {
      const int64_t begin = a_.w.begin(x), size = a_.w.end(x) - begin, tap = a_.w.tap(x, begin);
      for (int64_t c = 0; c < a_.inner; c += kLanes) {
        const T* cell = from + begin * a_.inner + c;
        Cells cells = Cells::of(load(cell), tap);
        for (int64_t i = 1; i < size; ++i) cells.meet(Cells::of(load(cell + i * a_.inner), tap + i));
        row.set(x * a_.inner + c, cells);
      }
    }
  }

  void inside(const T* from, int64_t first, int64_t last, const Row<S>& row) const {
    for (int64_t x = first; x < last; x += kLanes) {
      Cells cells;
      if (a_.w.stride == 2) {
        cells = pair<0>(from + 2 * x, 0);
        if (a_.w.kernel > 1) cells.meet(pair<1>(from + 2 * x, 1));
        for (int64_t tap = 2; tap < a_.w.kernel; tap += 2) {
          cells.meet(pair<0>(from + 2 * x + tap, tap));
          if (tap + 1 < a_.w.kernel) cells.meet(pair<1>(from + 2 * x + tap, tap + 1));
        }
      } else {
        cells = strided(from + x * a_.w.stride, 0);
        for (int64_t tap = 1; tap < a_.w.kernel; ++tap) cells.meet(strided(from + x * a_.w.stride + tap, tap));
      }
      row.set(x, cells);
    }
  }

  template <int Odd>
  Cells pair(const T* from, int64_t tap) const {
    return Cells::of(every_other<Odd>(load(from), load(from + kLanes), Lanes()), tap);
  }

  Cells strided(const T* from, int64_t tap) const {
    if (a_.w.stride == 1) return Cells::of(load(from), tap);
    T lanes[kLanes] = {};
    const int64_t left = (end_ - from + a_.w.stride - 1) / a_.w.stride;
    for (int64_t i = 0; i < (left < kLanes ? left : kLanes); ++i) lanes[i] = from[i * a_.w.stride];
    return Cells::of(load_lanes<T>(lanes, kLanes), tap);
  }

  // Windows that hang over the border, one by one.
  void borders(const T* from, int64_t first, int64_t last, const Row<S>& row) const {
    for (int64_t x = first; x < last; ++x) {
      const int64_t begin = a_.w.begin(x), end = a_.w.end(x);
      S value = to_state(from[begin]);
      int64_t largest = begin;
      for (int64_t i = begin + 1; i < end; ++i) {
        const S next = to_state(from[i]);
        if (next > value || next != next) value = next, largest = i;
      }
      row.value[x] = value;
      row.tap[x] = NumberOf<S>(a_.w.tap(x, largest));
    }
  }
};

// The reduced rows that windows of one row of outputs need, each with the number of its first tap.
template <class S>
class WindowRows {
 public:
  WindowRows(const Axes& a) : a_(a), slots_(a.d.kernel * a.h.kernel) {
    const int64_t length = a.out_row() + Largest<S>::kLanes;
    S* value = values_.zeroed(length * slots_);
    NumberOf<S>* tap = taps_.zeroed(length * slots_);
    Row<S>* rows = rows_.reserve(2 * slots_);
    for (int64_t i = 0; i < slots_; ++i) rows[i] = {value + i * length, tap + i * length, -1};
    first_.reserve(slots_);
  }
  void begin_plane() {
    for (int64_t i = 0; i < slots_; ++i) rows_.data()[i].number = -1;
  }
  // Reduces the rows of the windows (z, y) that were not needed before.
  template <class T>
  void gather(const RowReducer<T>& reduce, const T* plane, int64_t z, int64_t y) {
    Row<S>* needed = rows_.data() + slots_;
    count_ = 0;
    for (int64_t iz = a_.d.begin(z); iz < a_.d.end(z); ++iz) {
      for (int64_t iy = a_.h.begin(y); iy < a_.h.end(y); ++iy) {
        const int64_t number = iz * a_.h.in + iy;
        Row<S>& row = rows_.data()[iz % a_.d.kernel * a_.h.kernel + iy % a_.h.kernel];
        if (row.number != number) {
          reduce(plane + number * a_.w.in * a_.inner, row);
          row.number = number;
        }
        first_.data()[count_] = (a_.d.tap(z, iz) * a_.h.kernel + a_.h.tap(y, iy)) * a_.w.kernel;
        needed[count_++] = row;
      }
    }
  }
  // The largest cells of windows from `i` of the row of outputs.
  Largest<S> at(int64_t i) const {
    const Row<S>* rows = rows_.data() + slots_;
    Largest<S> cells = rows[0].at(i);
    cells.tap += NumberOf<S>(first_.data()[0]);
    for (int64_t k = 1; k < count_; ++k) {
      Largest<S> next = rows[k].at(i);
      next.tap += NumberOf<S>(first_.data()[k]);
      cells.meet(next);
    }
    return cells;
  }

 private:
  const Axes& a_;
  int64_t slots_, count_ = 0;
  Scratch<S> values_;
  Scratch<NumberOf<S>> taps_;
  Scratch<Row<S>> rows_;
  Scratch<int64_t> first_;
};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
