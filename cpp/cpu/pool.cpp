// Spike average pooling on the CPU. A task is one plane; a row of windows is summed tap by tap, so that the loops over
// neighbouring windows and channels vectorise and every window adds its cells in the same order in any layout.
#include "snnlib/pool.h"

#include <limits>
#include <new>

#include "snnlib/isa.h"
#include "snnlib/kernels/pool.h"
#include "snnlib/parallel.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

// A row of accumulators that a thread keeps between calls.
template <class S>
struct Buffer {
  S* data = nullptr;
  int64_t size = 0;

  S* reserve(int64_t wanted) {
    if (wanted > size) {
      ::operator delete(data);
      data = nullptr;
      data = static_cast<S*>(::operator new(size_t(wanted) * sizeof(S)));
      size = wanted;
    }
    return data;
  }
  ~Buffer() { ::operator delete(data); }
};

struct Axes {
  PoolAxis d, h, w;
  int64_t inner;

  explicit Axes(const PoolArgs& a) : d(axis(a, 0)), h(axis(a, 1)), w(axis(a, 2)), inner(a.inner) {}
  static PoolAxis axis(const PoolArgs& a, int i) { return {a.in[i], a.out[i], a.kernel[i], a.stride[i], a.padding[i]}; }
  int64_t in_plane() const { return d.in * h.in * w.in * inner; }
  int64_t out_plane() const { return d.out * h.out * w.out * inner; }
  int64_t in_row(int64_t z, int64_t y) const { return (z * h.in + y) * w.in * inner; }
  int64_t out_row(int64_t z, int64_t y) const { return (z * h.out + y) * w.out * inner; }
};

// f(input row offset, first window, last window, tap) for every row and tap of output row (z, y), in window order.
template <class F>
void for_each_tap(const Axes& a, int64_t z, int64_t y, const F& f) {
  for (int64_t iz = a.d.begin(z); iz < a.d.end(z); ++iz) {
    for (int64_t iy = a.h.begin(y); iy < a.h.end(y); ++iy) {
      for (int64_t tap = 0; tap < a.w.kernel; ++tap) {
        f(a.in_row(iz, iy), a.w.first_with_tap(tap), a.w.last_with_tap(tap), tap);
      }
    }
  }
}

// f(accumulator index, input index within the row) for windows [first, last) of a tap, in loops whose turns are
// independent. A literal stride vectorises.
template <class F>
inline void for_each_window(const Axes& a, int64_t first, int64_t last, int64_t tap, const F& f) {
  const int64_t shift = tap - a.w.padding;
  if (a.w.stride == 1) {
    SNNLIB_SIMD
    for (int64_t i = first * a.inner; i < last * a.inner; ++i) f(i, i + shift * a.inner);
  } else if (a.inner == 1 && a.w.stride == 2) {
    SNNLIB_SIMD
    for (int64_t x = first; x < last; ++x) f(x, x * 2 + shift);
  } else {
    for (int64_t x = first; x < last; ++x) {
      const int64_t from = (x * a.w.stride + shift) * a.inner, to = x * a.inner;
      SNNLIB_SIMD
      for (int64_t c = 0; c < a.inner; ++c) f(to + c, from + c);
    }
  }
}

template <class T>
void forward_planes(const PoolForwardArgs& args) {
  using S = typename StateOf<T>::type;
  const Axes a(args.pool);
  const int64_t row = a.w.out * a.inner;
  parallel_for(args.pool.outer, args.pool.executor.threads(), [&](int64_t plane) {
    thread_local Buffer<S> buffer;
    S* __restrict sum = buffer.reserve(row);
    const T* __restrict input = static_cast<const T*>(args.pool.input) + plane * a.in_plane();
    T* __restrict output = static_cast<T*>(args.output) + plane * a.out_plane();
    for (int64_t z = 0; z < a.d.out; ++z) {
      for (int64_t y = 0; y < a.h.out; ++y) {
        for (int64_t i = 0; i < row; ++i) sum[i] = S(0);
        for_each_tap(a, z, y, [&](int64_t from, int64_t first, int64_t last, int64_t tap) {
          for_each_window(a, first, last, tap, [&](int64_t to, int64_t x) { sum[to] += to_state(input[from + x]); });
        });
        const int64_t full = a.d.full_size(z) * a.h.full_size(y);
        const int64_t inside = (a.d.end(z) - a.d.begin(z)) * (a.h.end(y) - a.h.begin(y));
        T* __restrict out = output + a.out_row(z, y);
        for (int64_t x = 0; x < a.w.out; ++x) {
          const int64_t cells = args.count_include_pad ? full * a.w.full_size(x) : inside * (a.w.end(x) - a.w.begin(x));
          const S divisor = S(args.divisor_override ? args.divisor_override : cells);
          for (int64_t c = 0; c < a.inner; ++c) from_state(sum[x * a.inner + c] / divisor, out + x * a.inner + c);
        }
      }
    }
  });
}

template <class T>
void backward_planes(const PoolBackwardArgs& args) {
  using S = typename StateOf<T>::type;
  const Axes a(args.pool);
  const int64_t row = a.w.out * a.inner;
  // Bound of the rounding error of a window sum, relative to the sum of magnitudes.
  const S tolerance = S(a.d.kernel * a.h.kernel * a.w.kernel) * std::numeric_limits<S>::epsilon();
  parallel_for(args.pool.outer, args.pool.executor.threads(), [&](int64_t plane) {
    thread_local Buffer<S> buffer;
    S* __restrict sum = buffer.reserve(2 * row + a.in_plane());
    S* __restrict sum_abs = sum + row;
    S* __restrict share = sum_abs + row;
    const T* __restrict input = static_cast<const T*>(args.pool.input) + plane * a.in_plane();
    const T* __restrict grad_output = static_cast<const T*>(args.grad_output) + plane * a.out_plane();
    T* __restrict grad_input = static_cast<T*>(args.grad_input) + plane * a.in_plane();
    for (int64_t i = 0; i < a.in_plane(); ++i) share[i] = S(0);
    for (int64_t z = 0; z < a.d.out; ++z) {
      for (int64_t y = 0; y < a.h.out; ++y) {
        for (int64_t i = 0; i < 2 * row; ++i) sum[i] = S(0);
        for_each_tap(a, z, y, [&](int64_t from, int64_t first, int64_t last, int64_t tap) {
          for_each_window(a, first, last, tap, [&](int64_t to, int64_t x) {
            const S value = to_state(input[from + x]);
            sum[to] += value;
            sum_abs[to] += value < S(0) ? -value : value;
          });
        });
        const T* __restrict g = grad_output + a.out_row(z, y);
        SNNLIB_SIMD
        for (int64_t i = 0; i < row; ++i) sum[i] = pool_share(to_state(g[i]), sum[i], sum_abs[i], tolerance);
        for_each_tap(a, z, y, [&](int64_t from, int64_t first, int64_t last, int64_t tap) {
          for_each_window(a, first, last, tap, [&](int64_t to, int64_t x) { share[from + x] += sum[to]; });
        });
      }
    }
    for (int64_t i = 0; i < a.in_plane(); ++i) {
      const S value = to_state(input[i]), product = value * share[i];
      from_state(value == S(0) ? S(0) : product, grad_input + i);
    }
  });
}

void forward(const PoolForwardArgs& a) {
  by_dtype(a.pool.dtype, a, forward_planes<float>, forward_planes<double>, forward_planes<BFloat16>,
           forward_planes<Float16>);
}

void backward(const PoolBackwardArgs& a) {
  by_dtype(a.pool.dtype, a, backward_planes<float>, backward_planes<double>, backward_planes<BFloat16>,
           backward_planes<Float16>);
}

}  // namespace

extern const PoolKernels pool_kernels = {forward, backward};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
