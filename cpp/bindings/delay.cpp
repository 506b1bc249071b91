#include "snnlib/delay/delay.h"

#include <array>

#include "bindings.h"

namespace snnlib {
namespace {

// As snnlib/ops/delay.py has them: (steps, batch, channels, space, then the strides in this order).
using ShiftSizes = std::array<int64_t, 8>;

DelayShiftArgs sequence(const ShiftSizes& v, int dtype, Address x, Address delays, intptr_t executor) {
  DelayShiftArgs args{};
  args.dtype = DType(dtype);
  args.steps = v[0], args.batch = v[1], args.channels = v[2], args.space = v[3];
  args.step_stride = v[4], args.batch_stride = v[5], args.channel_stride = v[6], args.space_stride = v[7];
  args.x = pointer(x);
  args.delays = static_cast<const int32_t*>(pointer(delays));
  args.executor = {executor};
  return args;
}

}  // namespace

void bind_delay(pybind11::module_& module, KernelTable table) {
  namespace py = pybind11;
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  module.def(
      "delay_shift",
      [table](const ShiftSizes& sizes, int dtype, Address x, Address delays, Address first, Address second, Address out,
              bool earlier, intptr_t executor) {
        DelayShiftArgs args = sequence(sizes, dtype, x, delays, executor);
        args.first = pointer(first), args.second = pointer(second), args.out = pointer(out), args.earlier = earlier;
        table().delay->shift(args);
      },
      unlocked);
  module.def(
      "delay_shift_sums",
      [table](const ShiftSizes& sizes, int dtype, Address x, Address delays, Address grad, Address sums,
              intptr_t executor) {
        table().delay->shift_sums(
            {sequence(sizes, dtype, x, delays, executor), pointer(grad), static_cast<double*>(pointer(sums))});
      },
      unlocked);
}

}  // namespace snnlib
