#include <array>

#include "bindings.h"
#include "snnlib/loop/scan.h"

namespace snnlib {
namespace {

// As in srm.cpp and scan_pool.cpp.
SequenceView to_sequence(const std::array<int64_t, 5>& v) { return {v[0], v[1], v[2], v[3], v[4]}; }
CellPlanes to_cells(const std::array<int64_t, 4>& p) { return {p[0], p[1], p[2], p[3] != 0}; }

}  // namespace

void bind_srm_pool(pybind11::module_& module) {
  namespace py = pybind11;
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  module.def(
      "srm_pool_forward",
      [](const std::array<int64_t, 5>& view, int dtype, const Constants& constants, Address current, Address threshold,
         int64_t threshold_period, const std::array<int64_t, 4>& planes, Address means, intptr_t executor) {
        cuda::srm_pool_forward({{to_sequence(view),
                                 DType(dtype),
                                 to_constants(constants),
                                 pointer(current),
                                 pointer(threshold),
                                 threshold_period,
                                 pointer(means),
                                 nullptr,
                                 nullptr,
                                 nullptr,
                                 nullptr,
                                 nullptr,
                                 {executor}},
                                to_cells(planes)});
      },
      unlocked);
  module.def(
      "srm_pool_backward",
      [](const std::array<int64_t, 5>& view, int dtype, const Constants& constants, Address current, Address threshold,
         int64_t threshold_period, const std::array<int64_t, 4>& planes, Address grad_means, Address weight_signal,
         Address input_signal, intptr_t executor) {
        cuda::srm_pool_backward({{to_sequence(view),
                                  DType(dtype),
                                  to_constants(constants),
                                  pointer(current),
                                  pointer(threshold),
                                  threshold_period,
                                  nullptr,
                                  pointer(grad_means),
                                  pointer(weight_signal),
                                  pointer(input_signal),
                                  {executor}},
                                 to_cells(planes)});
      },
      unlocked);
}

}  // namespace snnlib
