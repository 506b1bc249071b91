// Max pooling on the CPU, with torch's order: the first of equal cells of a window is its largest, a NaN is larger than
// all before it, and a cell's gradients are added in the order of its windows, each sum rounded to the tensor's type.
//
// The largest of a window is the largest of its rows' largest cells, in the order of the rows: so a row of the input is
// reduced along its width once, and overlapping windows share it.
#include "snnlib/pool/max_pool.h"

#include <type_traits>
#include <utility>

#include "snnlib/core/isa.h"
#include "snnlib/pool/rows.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

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

template <class Numbers>
inline void store_taps(uint8_t* p, const Numbers& taps, int64_t count) {
#if defined(__GNUC__)
  constexpr int64_t lanes = sizeof(Numbers) / sizeof(taps[0]);
  typedef uint8_t Bytes __attribute__((vector_size(lanes)));
  const Bytes bytes = __builtin_convertvector(taps, Bytes);
  std::memcpy(p, &bytes, size_t(count < lanes ? count : lanes));
#else
  if (count > 0) *p = uint8_t(taps);
#endif
}

template <class Numbers>
inline Numbers load_taps(const uint8_t* p, int64_t count) {
#if defined(__GNUC__)
  constexpr int64_t lanes = sizeof(Numbers) / sizeof(Numbers{}[0]);
  typedef uint8_t Bytes __attribute__((vector_size(lanes)));
  Bytes bytes = {};
  std::memcpy(&bytes, p, size_t(count < lanes ? count : lanes));
  return __builtin_convertvector(bytes, Numbers);
#else
  return count > 0 ? *p : 0;
#endif
}

template <class T>
void forward_planes(const MaxPoolForwardArgs& args) {
  using S = typename StateOf<T>::type;
  constexpr int64_t kLanes = Largest<S>::kLanes;
  const Axes a(args.pool);
  const int64_t row = a.out_row();
  const T* input = static_cast<const T*>(args.pool.input);
  const RowReducer<T> reduce(a, input + args.pool.outer * a.in_plane());
  for_each_task(args.pool, a, [&](int64_t plane, int64_t last) {
    WindowRows<S> rows(a);
    // What a vector writes beyond its row is written again by the next row of the task.
    const int64_t end = last * a.out_plane();
    for (; plane < last; ++plane) {
      rows.begin_plane();
      for_each_output_row(a, [&](int64_t to_row, int64_t z, int64_t y) {
        rows.gather(reduce, input + plane * a.in_plane(), z, y);
        const int64_t to = plane * a.out_plane() + to_row;
        for (int64_t i = 0; i < row; i += kLanes) {
          const Largest<S> cells = rows.at(i);
          const int64_t room = end - to - i, count = room < kLanes ? room : kLanes;
          store_lanes<T>(static_cast<T*>(args.output) + to + i, cells.value, count);
          store_taps(args.taps + to + i, cells.tap, count);
        }
      });
    }
  });
}

// The gradient of a plane where no cell is in two windows and channels fill vectors: every cell is written once.
template <class T>
void backward_apart(const Axes& a, const T* grad_output, const uint8_t* taps, T* grad_input) {
  using S = typename StateOf<T>::type;
  using Cells = Largest<S>;
  constexpr int64_t kLanes = Cells::kLanes;
  for_each_output_row(a, [&](int64_t to_row, int64_t z, int64_t y) {
    for (int64_t x = 0; x < a.w.out; ++x) {
      const int64_t window = to_row + x * a.inner, begin = a.w.begin(x), end = a.w.end(x);
      for (int64_t c = 0; c < a.inner; c += kLanes) {
        const int64_t count = a.inner - c < kLanes ? a.inner - c : kLanes;
        // Zero is added as in a sum from zero, which never is -0.
        const typename Cells::Values g = load_lanes<T>(grad_output + window + c, count) + typename Cells::Values{};
        const typename Cells::Numbers tap = load_taps<typename Cells::Numbers>(taps + window + c, count);
        for_each_input_row(a, z, y, [&](int64_t from_row, int64_t first) {
          for (int64_t i = begin; i < end; ++i) {
            const auto largest = tap == typename Cells::Numbers{} + NumberOf<S>(first + a.w.tap(x, i));
            store_lanes<T>(grad_input + from_row + i * a.inner + c, largest ? g : typename Cells::Values{}, count);
          }
        });
      }
    }
  });
}

inline bool is_inside(const PoolAxis& axis, int64_t o, int64_t tap) {
  const int64_t cell = o * axis.stride - axis.padding + tap;
  return cell >= 0 && cell < axis.in;
}

// Offset of a number that is no cell of a window: no corner makes a cell of it.
constexpr int64_t kNoCell = INT64_MIN / 2;

// The gradient of a plane of zeros, added window by window. `offset` is where each cell is, from its window's corner.
template <class T>
void backward_added(const Axes& a, const int64_t* offset, const T* grad_output, const uint8_t* taps, T* grad_input) {
  for_each_output_row(a, [&](int64_t to_row, int64_t z, int64_t y) {
    const int64_t line = (z * a.d.stride - a.d.padding) * a.h.in + y * a.h.stride - a.h.padding;
    for (int64_t x = 0; x < a.w.out; ++x) {
      const int64_t from = to_row + x * a.inner;
      const int64_t corner = (line * a.w.in + x * a.w.stride - a.w.padding) * a.inner;
      const bool whole = a.d.whole(z) && a.h.whole(y) && a.w.whole(x);
      for (int64_t c = 0; c < a.inner; ++c) {
        const int64_t tap = taps[from + c], cell = corner + c + offset[tap];
        // Taps that no forward pass gives may lie outside of the window or the image, and get nothing.
        if (offset[tap] == kNoCell) continue;
        const int64_t line_of_tap = tap / a.w.kernel;
        if (!whole && !(is_inside(a.w, x, tap % a.w.kernel) && is_inside(a.h, y, line_of_tap % a.h.kernel) &&
                        is_inside(a.d, z, line_of_tap / a.h.kernel))) {
          continue;
        }
        from_state(to_state(grad_input[cell]) + to_state(grad_output[from + c]), grad_input + cell);
      }
    }
  });
}

template <class T>
void backward_planes(const MaxPoolBackwardArgs& args) {
  const Axes a(args.pool);
  const int64_t cells = a.in_plane();
  const bool apart = a.inner >= Largest<typename StateOf<T>::type>::kLanes && a.d.apart() && a.h.apart() && a.w.apart();
  const bool covered = a.d.covered() && a.h.covered() && a.w.covered();
  Scratch<int64_t> offsets;
  int64_t* offset = offsets.reserve(256);
  for (int64_t tap = 0; tap < 256; ++tap) offset[tap] = kNoCell;
  for (int64_t z = 0, tap = 0; z < a.d.kernel; ++z) {
    for (int64_t y = 0; y < a.h.kernel; ++y) {
      for (int64_t x = 0; x < a.w.kernel; ++x, ++tap) offset[tap] = ((z * a.h.in + y) * a.w.in + x) * a.inner;
    }
  }
  for_each_task(args.pool, a, [&](int64_t plane, int64_t last) {
    for (; plane < last; ++plane) {
      const T* grad_output = static_cast<const T*>(args.grad_output) + plane * a.out_plane();
      const uint8_t* taps = args.taps + plane * a.out_plane();
      T* grad_input = static_cast<T*>(args.grad_input) + plane * cells;
      if (!apart || !covered) std::memset(static_cast<void*>(grad_input), 0, size_t(cells) * sizeof(T));
      if (apart) {
        backward_apart(a, grad_output, taps, grad_input);
      } else {
        backward_added(a, offset, grad_output, taps, grad_input);
      }
    }
  });
}

void forward(const MaxPoolForwardArgs& a) {
  by_element(a.pool.dtype, a, portable::max_pool_kernels.forward,
             [&](auto zero) { forward_planes<decltype(zero)>(a); });
}

void backward(const MaxPoolBackwardArgs& a) {
  by_element(a.pool.dtype, a, portable::max_pool_kernels.backward,
             [&](auto zero) { backward_planes<decltype(zero)>(a); });
}

}  // namespace

extern const MaxPoolKernels max_pool_kernels = {forward, backward};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
