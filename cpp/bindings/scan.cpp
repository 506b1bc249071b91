#include "snnlib/loop/scan.h"

#include <array>

#include "bindings.h"
#include "linear_flags.h"

namespace snnlib {
namespace {

// (outer, steps, inner, outer stride, step stride), as snnlib/ops/scan.py has it.
using View = std::array<int64_t, 5>;

ScanArgs to_args(const View& v, int dtype, int states, const Flags& flags, Address coefficients, int64_t period,
                 Address current, Address state_in, intptr_t executor) {
  return {{v[0], v[1], v[2], v[3], v[4]},
          DType(dtype),
          states,
          to_flags(flags),
          pointer(coefficients),
          period,
          pointer(current),
          pointer(state_in),
          {executor}};
}

}  // namespace

void bind_scan(pybind11::module_& module, KernelTable table) {
  namespace py = pybind11;
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  module.def(
      "scan_forward",
      [table](const View& view, int dtype, int states, const Flags& flags, Address coefficients, int64_t period,
              Address current, Address state_in, Address value, Address state_out, intptr_t executor) {
        table().scan->forward({to_args(view, dtype, states, flags, coefficients, period, current, state_in, executor),
                               pointer(value), pointer(state_out)});
      },
      unlocked);
  module.def(
      "scan_backward",
      [table](const View& view, int dtype, int states, const Flags& flags, Address coefficients, int64_t period,
              Address current, Address state_in, Address grad_value, Address grad_state_out, Address grad_current,
              Address grad_state_in, Address grad_coefficients, intptr_t executor) {
        table().scan->backward({to_args(view, dtype, states, flags, coefficients, period, current, state_in, executor),
                                pointer(grad_value), pointer(grad_state_out), pointer(grad_current),
                                pointer(grad_state_in), pointer(grad_coefficients)});
      },
      unlocked);
}

}  // namespace snnlib
