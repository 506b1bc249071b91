#include "snnlib/pool.h"

#include <array>

#include "bindings.h"
#include "snnlib/isa.h"

namespace snnlib {
namespace {

// Per axis (depth, height, width): input size, output size, kernel, stride, padding.
using Axis = std::array<int64_t, 5>;
using AxisList = std::array<Axis, 3>;

PoolArgs to_args(int dtype, int64_t outer, int64_t inner, const AxisList& axes, Address input, int threads) {
  PoolArgs args = {};
  args.dtype = DType(dtype);
  args.outer = outer;
  args.inner = inner;
  for (int i = 0; i < 3; ++i) {
    args.in[i] = axes[i][0];
    args.out[i] = axes[i][1];
    args.kernel[i] = axes[i][2];
    args.stride[i] = axes[i][3];
    args.padding[i] = axes[i][4];
  }
  args.input = pointer(input);
  args.threads = threads;
  return args;
}

void pool_forward(int dtype, int64_t outer, int64_t inner, const AxisList& axes, bool count_include_pad,
                  int64_t divisor_override, Address input, Address output, int threads) {
  kernels().pool->forward(
      {to_args(dtype, outer, inner, axes, input, threads), count_include_pad, divisor_override, pointer(output)});
}

void pool_backward(int dtype, int64_t outer, int64_t inner, const AxisList& axes, Address input, Address grad_output,
                   Address grad_input, int threads) {
  kernels().pool->backward(
      {to_args(dtype, outer, inner, axes, input, threads), pointer(grad_output), pointer(grad_input)});
}

}  // namespace

void bind_pool(pybind11::module_& module) {
  namespace py = pybind11;
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  module.def("pool_forward", &pool_forward, unlocked);
  module.def("pool_backward", &pool_backward, unlocked);
}

}  // namespace snnlib
