#include "snnlib/events/currents.h"

#include <array>

#include "bindings.h"

namespace snnlib {

// Sizes in the order of the struct: (outer, batch), (in channels, height, width, channels, height, width), (kernel,
// stride, padding, dilation by height and width), strides (outer, batch, c, h, w).
void bind_currents(pybind11::module_& module) {
  namespace py = pybind11;
  module.def(
      "event_currents",
      [](int dtype, const std::array<int64_t, 2>& frames, const std::array<int64_t, 6>& sizes,
         const std::array<int64_t, 8>& kernel, Address input, const std::array<int64_t, 5>& strides, Address weight,
         Address output, intptr_t executor) {
        cuda::event_currents({DType(dtype),
                              frames[0],
                              frames[1],
                              sizes[0],
                              sizes[1],
                              sizes[2],
                              sizes[3],
                              sizes[4],
                              sizes[5],
                              kernel[0],
                              kernel[1],
                              kernel[2],
                              kernel[3],
                              kernel[4],
                              kernel[5],
                              kernel[6],
                              kernel[7],
                              pointer(input),
                              strides[0],
                              strides[1],
                              strides[2],
                              strides[3],
                              strides[4],
                              static_cast<const float*>(pointer(weight)),
                              static_cast<float*>(pointer(output)),
                              {executor}});
      },
      py::call_guard<py::gil_scoped_release>());
}

}  // namespace snnlib
