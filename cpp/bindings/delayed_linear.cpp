#include <array>

#include "bindings.h"
#include "snnlib/delay/linear.h"

namespace snnlib {
namespace {

// As snnlib/ops/delayed_linear.py has them: (steps, batch, inputs, outputs, step rows, batch rows, longest delay,
// whether delays are per channel, whether there are second taps).
using LinearSizes = std::array<int64_t, 9>;

DelayedLinearArgs linear(const LinearSizes& v, int dtype, Address x, Address weight, intptr_t executor) {
  DelayedLinearArgs args{};
  args.dtype = DType(dtype);
  args.steps = v[0], args.batch = v[1], args.inputs = v[2], args.outputs = v[3];
  args.step_rows = v[4], args.batch_rows = v[5], args.longest = v[6];
  args.per_channel = v[7], args.two = v[8];
  args.x = pointer(x);
  args.weight = pointer(weight);
  args.executor = {executor};
  return args;
}

DelayedLinearArgs connections(const LinearSizes& v, int dtype, Address x, Address weight, Address delay,
                              intptr_t executor) {
  DelayedLinearArgs args = linear(v, dtype, x, weight, executor);
  args.delay = pointer(delay);
  return args;
}

}  // namespace

void bind_delayed_linear(pybind11::module_& module) {
  namespace py = pybind11;
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  module.def(
      "delayed_channels",
      [](const LinearSizes& sizes, int dtype, Address x, Address delays, Address taps, Address weight,
         int64_t weight_row, Address out, intptr_t executor) {
        DelayedLinearArgs args = linear(sizes, dtype, x, weight, executor);
        args.delays = static_cast<const int32_t*>(pointer(delays)), args.taps = pointer(taps);
        args.weight_row = weight_row;
        kernels().delayed_linear->currents({args, pointer(out)});
      },
      unlocked);
  module.def(
      "delayed_channels_sums",
      [](const LinearSizes& sizes, int dtype, Address x, Address delays, Address grad, Address sums, int64_t first,
         int64_t count, intptr_t executor) {
        DelayedLinearArgs args = linear(sizes, dtype, x, 0, executor);
        args.delays = static_cast<const int32_t*>(pointer(delays));
        kernels().delayed_linear->sums({args, pointer(grad), pointer(sums), first, count});
      },
      unlocked);
  module.def(
      "delayed_connections",
      [](const LinearSizes& sizes, int dtype, Address x, Address weight, Address delay, Address out,
         intptr_t executor) {
        kernels().delayed_linear->currents({connections(sizes, dtype, x, weight, delay, executor), pointer(out)});
      },
      unlocked);
  module.def(
      "delayed_connections_gradients",
      [](const LinearSizes& sizes, int dtype, Address x, Address weight, Address delay, Address grad,
         Address grad_weight, Address grad_delay, intptr_t executor) {
        kernels().delayed_linear->gradients({connections(sizes, dtype, x, weight, delay, executor), pointer(grad),
                                             pointer(grad_weight), pointer(grad_delay)});
      },
      unlocked);
  module.def(
      "delayed_connections_input",
      [](const LinearSizes& sizes, int dtype, Address weight, Address delay, Address grad, Address grad_x,
         intptr_t executor) {
        kernels().delayed_linear->input(
            {connections(sizes, dtype, 0, weight, delay, executor), pointer(grad), pointer(grad_x)});
      },
      unlocked);
}

}  // namespace snnlib
