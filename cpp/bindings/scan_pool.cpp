#include "snnlib/loop/scan_pool.h"

#include <array>

#include "bindings.h"
#include "linear_flags.h"

namespace snnlib {
namespace {

// As in scan.cpp; (channels, height, width, channels last, rows and columns of a window).
using View = std::array<int64_t, 5>;
using Planes = std::array<int64_t, 6>;

ScanArgs to_args(const View& v, int dtype, const Flags& flags, Address coefficients, int64_t period, Address current,
                 Address state_in, intptr_t executor) {
  return {{v[0], v[1], v[2], v[3], v[4]},
          DType(dtype),
          1,
          to_flags(flags),
          pointer(coefficients),
          period,
          pointer(current),
          pointer(state_in),
          {executor}};
}

CellPlanes to_planes(const Planes& p) { return {p[0], p[1], p[2], p[3] != 0, p[4], p[5]}; }

}  // namespace

void bind_scan_pool(pybind11::module_& module, KernelTable table) {
  namespace py = pybind11;
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  module.def(
      "scan_pool_forward",
      [table](const View& view, int dtype, const Flags& flags, Address coefficients, int64_t period, Address current,
              Address state_in, const Planes& planes, Address value, Address state_out, intptr_t executor) {
        table().scan_pool->forward({{to_args(view, dtype, flags, coefficients, period, current, state_in, executor),
                                     pointer(value), pointer(state_out)},
                                    to_planes(planes)});
      },
      unlocked);
  module.def(
      "scan_pool_backward",
      [table](const View& view, int dtype, const Flags& flags, Address coefficients, int64_t period, Address current,
              Address state_in, const Planes& planes, Address grad_value, Address grad_state_out, Address grad_current,
              Address grad_state_in, intptr_t executor) {
        table().scan_pool->backward(
            {{to_args(view, dtype, flags, coefficients, period, current, state_in, executor), pointer(grad_value),
              pointer(grad_state_out), pointer(grad_current), pointer(grad_state_in), nullptr},
             to_planes(planes)});
      },
      unlocked);
}

}  // namespace snnlib
