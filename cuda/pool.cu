// Spike average pooling on CUDA: one thread for each output of the forward pass and for each input of the backward
// pass, which gathers the shares of the windows around it. No atomics: the same bits in every run, and the CPU's, whose
// order of sums this keeps. Window sums are taken again where they are needed; the cells come from the cache.
#include <cfloat>

#include "element.h"
#include "launch.h"
#include "pair_pool.h"
#include "snnlib/pool/pool.h"
#include "snnlib/pool/windows.h"

namespace snnlib {
namespace cuda {
namespace {

struct Cell {
  int64_t plane, z, y, x, channel;
};

// index / size, with the rest left in `index`. Division of 64 bits is slow, and almost no tensor needs it.
__device__ int64_t divide(int64_t& index, int64_t size) {
  if (size == 1) {
    const int64_t quotient = index;
    index = 0;
    return quotient;
  }
  const bool narrow = ((index | size) >> 32) == 0;
  const int64_t quotient = narrow ? int64_t(uint32_t(index) / uint32_t(size)) : index / size;
  index -= quotient * size;
  return quotient;
}

// Position of an element of a tensor [outer, depth, height, width, inner].
__device__ Cell cell_at(int64_t index, int64_t depth, int64_t height, int64_t width, int64_t inner) {
  Cell cell;
  int64_t rest = divide(index, inner);
  cell.channel = index;
  index = rest;
  rest = divide(index, width);
  cell.x = index;
  index = rest;
  rest = divide(index, height);
  cell.y = index;
  index = rest;
  cell.plane = divide(index, depth);
  cell.z = index;
  return cell;
}

struct Axes {
  PoolAxis d, h, w;
  int64_t inner;

  explicit __device__ Axes(const PoolArgs& a) : d(axis(a, 0)), h(axis(a, 1)), w(axis(a, 2)), inner(a.inner) {}
  static __device__ PoolAxis axis(const PoolArgs& a, int i) {
    return {a.in[i], a.out[i], a.kernel[i], a.stride[i], a.padding[i]};
  }
  __device__ int64_t input_offset(const Cell& c, int64_t z, int64_t y) const {
    return ((c.plane * d.in + z) * h.in + y) * w.in * inner + c.channel;
  }
  __device__ int64_t output_offset(const Cell& c, int64_t z, int64_t y, int64_t x) const {
    return (((c.plane * d.out + z) * h.out + y) * w.out + x) * inner + c.channel;
  }
};

// f(value) for the cells of window (z, y, x), row by row.
template <class T, class F>
__device__ void for_each_cell(const Axes& a, const T* input, const Cell& c, int64_t z, int64_t y, int64_t x,
                              const F& f) {
  for (int64_t iz = a.d.begin(z); iz < a.d.end(z); ++iz) {
    for (int64_t iy = a.h.begin(y); iy < a.h.end(y); ++iy) {
      const T* row = input + a.input_offset(c, iz, iy);
      for (int64_t ix = a.w.begin(x); ix < a.w.end(x); ++ix) f(to_state(row[ix * a.inner]));
    }
  }
}

template <class T>
__global__ void pool_forward_kernel(PoolForwardArgs args, int64_t outputs) {
  using S = typename StateOf<T>::type;
  const int64_t index = thread_index();
  if (index >= outputs) return;
  const Axes a(args);
  const Cell c = cell_at(index, a.d.out, a.h.out, a.w.out, a.inner);
  S sum = S(0);
  for_each_cell(a, static_cast<const T*>(args.input), c, c.z, c.y, c.x, [&](S value) { sum += value; });
  const int64_t full = a.d.full_size(c.z) * a.h.full_size(c.y) * a.w.full_size(c.x);
  const int64_t inside =
      (a.d.end(c.z) - a.d.begin(c.z)) * (a.h.end(c.y) - a.h.begin(c.y)) * (a.w.end(c.x) - a.w.begin(c.x));
  const int64_t cells = args.count_include_pad ? full : inside;
  const S divisor = S(args.divisor_override ? args.divisor_override : cells);
  from_state(sum / divisor, static_cast<T*>(args.output) + index);
}

// Windows [first, last) of one axis that hold cell i.
struct Windows {
  int64_t first, last;

  __device__ Windows(const PoolAxis& axis, int64_t i) {
    const int64_t reach = i + axis.padding - axis.kernel;
    first = reach < 0 ? 0 : reach / axis.stride + 1;
    last = (i + axis.padding) / axis.stride + 1;
    if (last > axis.out) last = axis.out;
  }
};

template <class T>
__global__ void pool_backward_kernel(PoolBackwardArgs args, int64_t inputs) {
  using S = typename StateOf<T>::type;
  const int64_t index = thread_index();
  if (index >= inputs) return;
  T* const grad_input = static_cast<T*>(args.grad_input) + index;
  const T* const input = static_cast<const T*>(args.input);
  const S value = to_state(input[index]);
  // Most cells hold no event, and cost no more than this.
  if (value == S(0)) {
    from_state(S(0), grad_input);
    return;
  }
  const Axes a(args);
  const Cell c = cell_at(index, a.d.in, a.h.in, a.w.in, a.inner);
  const S epsilon = sizeof(S) == 8 ? S(DBL_EPSILON) : S(FLT_EPSILON);
  const S tolerance = S(a.d.kernel * a.h.kernel * a.w.kernel) * epsilon;
  const Windows depth(a.d, c.z), height(a.h, c.y), width(a.w, c.x);
  S share = S(0);
  for (int64_t z = depth.first; z < depth.last; ++z) {
    for (int64_t y = height.first; y < height.last; ++y) {
      // From the last window to the first: the CPU goes through the taps of a window in their order.
      for (int64_t x = width.last - 1; x >= width.first; --x) {
        S sum = S(0), sum_abs = S(0);
        for_each_cell(a, input, c, z, y, x, [&](S cell) {
          sum += cell;
          sum_abs += cell < S(0) ? -cell : cell;
        });
        const S grad = to_state(static_cast<const T*>(args.grad_output)[a.output_offset(c, z, y, x)]);
        share += pool_share(grad, sum, sum_abs, tolerance);
      }
    }
  }
  from_state(value * share, grad_input);
}

template <class T>
void forward_planes(const PoolForwardArgs& a) {
  if (pair_forward<T>(a)) return;
  const int64_t outputs = a.outer * a.out[0] * a.out[1] * a.out[2] * a.inner;
  launch("pool_forward", pool_forward_kernel<T>, outputs, a.executor, Scratch{}, a, outputs);
}

template <class T>
void backward_planes(const PoolBackwardArgs& a) {
  if (pair_backward<T>(a)) return;
  const int64_t inputs = a.outer * a.in[0] * a.in[1] * a.in[2] * a.inner;
  launch("pool_backward", pool_backward_kernel<T>, inputs, a.executor, Scratch{}, a, inputs);
}

void forward(const PoolForwardArgs& a) {
  by_dtype(a.dtype, a, forward_planes<float>, forward_planes<double>, forward_planes<__nv_bfloat16>,
           forward_planes<__half>);
}

void backward(const PoolBackwardArgs& a) {
  by_dtype(a.dtype, a, backward_planes<float>, backward_planes<double>, backward_planes<__nv_bfloat16>,
           backward_planes<__half>);
}

}  // namespace

extern const PoolKernels pool_kernels = {forward, backward};

}  // namespace cuda
}  // namespace snnlib
