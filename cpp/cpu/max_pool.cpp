// Max pooling on the CPU, with torch's order: the first of equal cells of a window is its largest, a NaN is larger than
// all before it, and a cell's gradients are added in the order of its windows, each sum rounded to the tensor's type.
#include "snnlib/pool/largest.h"
#include "snnlib/pool/pool.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

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
  const Axes a(args);
  const int64_t row = a.out_row();
  const T* input = static_cast<const T*>(args.input);
  const RowReducer<T> reduce(a, input + args.outer * a.in_plane());
  for_each_task(args, a, [&](int64_t plane, int64_t last) {
    WindowRows<S> rows(a);
    // The next row of the task overwrites what a vector writes beyond its row.
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
  const Axes a(args);
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
  for_each_task(args, a, [&](int64_t plane, int64_t last) {
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
  by_element(a.dtype, a, portable::max_pool_kernels.forward, [&](auto zero) { forward_planes<decltype(zero)>(a); });
}

void backward(const MaxPoolBackwardArgs& a) {
  by_element(a.dtype, a, portable::max_pool_kernels.backward, [&](auto zero) { backward_planes<decltype(zero)>(a); });
}

}  // namespace

extern const MaxPoolKernels max_pool_kernels = {forward, backward};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
