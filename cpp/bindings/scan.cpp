#include "snnlib/loop/scan.h"

#include <array>

#include "bindings.h"

namespace snnlib {
namespace {

// (outer, steps, inner, outer stride, step stride), as snnlib/ops/sequence_layout.py has them, and (channels, height,
// width, channels last, rows and columns of a window).
using View = std::array<int64_t, 5>;
using Planes = std::array<int64_t, 6>;

SequenceView to_view(const View& v) { return {v[0], v[1], v[2], v[3], v[4]}; }

ScanArgs to_args(const View& view, int dtype, int states, const Flags& flags, Address coefficients, int64_t period,
                 Address current, Address state_in, intptr_t executor) {
  return {to_view(view),    DType(dtype),      states,    to_flags(flags), pointer(coefficients), period,
          pointer(current), pointer(state_in), {executor}};
}

CellPlanes to_planes(const Planes& p) { return {p[0], p[1], p[2], p[3] != 0, p[4], p[5]}; }

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

void bind_scan_pool(pybind11::module_& module, KernelTable table) {
  namespace py = pybind11;
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  module.def(
      "scan_pool_forward",
      [table](const View& view, int dtype, const Flags& flags, Address coefficients, int64_t period, Address current,
              Address state_in, const Planes& planes, Address value, Address state_out, intptr_t executor) {
        table().scan_pool->forward({{to_args(view, dtype, 1, flags, coefficients, period, current, state_in, executor),
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
            {{to_args(view, dtype, 1, flags, coefficients, period, current, state_in, executor), pointer(grad_value),
              pointer(grad_state_out), pointer(grad_current), pointer(grad_state_in), nullptr},
             to_planes(planes)});
      },
      unlocked);
}

void bind_srm(pybind11::module_& module, KernelTable table) {
  namespace py = pybind11;
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  module.def(
      "srm_forward",
      [table](const View& view, int dtype, const Constants& constants, Address current, Address threshold,
              int64_t threshold_period, Address spikes, Address state_in, Address state_out, Address potential,
              Address delta_u, Address delta_ut, intptr_t executor) {
        table().srm->forward({to_view(view),
                              DType(dtype),
                              to_constants(constants),
                              pointer(current),
                              pointer(threshold),
                              threshold_period,
                              pointer(spikes),
                              pointer(state_in),
                              pointer(state_out),
                              pointer(potential),
                              pointer(delta_u),
                              pointer(delta_ut),
                              {executor}});
      },
      unlocked);
  module.def(
      "srm_backward",
      [table](const View& view, int dtype, const Constants& constants, Address current, Address threshold,
              int64_t threshold_period, Address state_in, Address grad_spikes, Address weight_signal,
              Address input_signal, intptr_t executor) {
        table().srm->backward({to_view(view),
                               DType(dtype),
                               to_constants(constants),
                               pointer(current),
                               pointer(threshold),
                               threshold_period,
                               pointer(state_in),
                               pointer(grad_spikes),
                               pointer(weight_signal),
                               pointer(input_signal),
                               {executor}});
      },
      unlocked);
}

}  // namespace snnlib
