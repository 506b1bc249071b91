#include "snnlib/batch_norm.h"

#include "bindings.h"

namespace snnlib {

void bind_batch_norm(pybind11::module_& module, KernelTable table) {
  const auto unlocked = pybind11::call_guard<pybind11::gil_scoped_release>();
  module.def(
      "batch_norm_moments",
      [table](int64_t rows, int64_t channels, Address values, Address mean, Address variance, intptr_t executor) {
        table().batch_norm->moments({rows,
                                     channels,
                                     static_cast<const float*>(pointer(values)),
                                     static_cast<double*>(pointer(mean)),
                                     static_cast<double*>(pointer(variance)),
                                     {executor}});
      },
      unlocked);
  module.def(
      "batch_norm_backward",
      [table](int64_t rows, int64_t channels, Address values, Address mean, Address variance, double epsilon,
              Address grad, Address sums, intptr_t executor) {
        table().batch_norm->backward({rows,
                                      channels,
                                      static_cast<const float*>(pointer(values)),
                                      static_cast<const double*>(pointer(mean)),
                                      static_cast<const double*>(pointer(variance)),
                                      epsilon,
                                      static_cast<float*>(pointer(grad)),
                                      static_cast<double*>(pointer(sums)),
                                      {executor}});
      },
      unlocked);
}

}  // namespace snnlib
