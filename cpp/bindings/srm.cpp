#include "snnlib/loop/srm.h"

#include <array>

#include "bindings.h"

namespace snnlib {
namespace {

// (outer, steps, inner, outer stride, step stride), as snnlib/ops/sequence_layout.py has them.
using View = std::array<int64_t, 5>;

SequenceView to_view(const View& v) { return {v[0], v[1], v[2], v[3], v[4]}; }

}  // namespace

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
