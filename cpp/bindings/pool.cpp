#include "snnlib/pool/pool.h"

#include <array>

#include "bindings.h"

namespace snnlib {
namespace {

// Per axis (depth, height, width): input size, output size, kernel, stride, padding.
using Axis = std::array<int64_t, 5>;
using AxisList = std::array<Axis, 3>;

PoolArgs to_args(int dtype, int64_t outer, int64_t inner, const AxisList& axes, Address input, intptr_t executor) {
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
  args.executor = {executor};
  return args;
}

}  // namespace

void bind_max_pool(pybind11::module_& module, KernelTable table) {
  namespace py = pybind11;
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  module.def(
      "max_pool_forward",
      [table](int dtype, int64_t outer, int64_t inner, const AxisList& axes, Address input, Address output,
              Address taps, intptr_t executor) {
        table().max_pool->forward({to_args(dtype, outer, inner, axes, input, executor), pointer(output),
                                   static_cast<uint8_t*>(pointer(taps))});
      },
      unlocked);
  module.def(
      "max_pool_backward",
      [table](int dtype, int64_t outer, int64_t inner, const AxisList& axes, Address grad_output, Address taps,
              Address grad_input, intptr_t executor) {
        table().max_pool->backward({to_args(dtype, outer, inner, axes, 0, executor), pointer(grad_output),
                                    static_cast<const uint8_t*>(pointer(taps)), pointer(grad_input)});
      },
      unlocked);
}

void bind_pool(pybind11::module_& module, KernelTable table) {
  namespace py = pybind11;
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  module.def(
      "pool_forward",
      [table](int dtype, int64_t outer, int64_t inner, const AxisList& axes, bool count_include_pad,
              int64_t divisor_override, Address input, Address output, intptr_t executor) {
        table().pool->forward({to_args(dtype, outer, inner, axes, input, executor), count_include_pad, divisor_override,
                               pointer(output)});
      },
      unlocked);
  module.def(
      "pool_backward",
      [table](int dtype, int64_t outer, int64_t inner, const AxisList& axes, Address input, Address grad_output,
              Address grad_input, intptr_t executor) {
        table().pool->backward(
            {to_args(dtype, outer, inner, axes, input, executor), pointer(grad_output), pointer(grad_input)});
      },
      unlocked);
}

}  // namespace snnlib
