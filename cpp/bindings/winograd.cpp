#include "snnlib/winograd.h"

#include "bindings.h"

namespace snnlib {

void bind_winograd(pybind11::module_& module) {
  // (frames, channels, height, width of the signal, out_channels, out_height, out_width, padding)
  using Sizes = std::array<int64_t, 8>;
  module.def(
      "winograd_adjoint",
      [](const Sizes& v, Address signal, Address weight, Address out, intptr_t executor) {
        const WinogradShape shape = {v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]};
        const auto floats = [](Address address) { return static_cast<float*>(pointer(address)); };
        kernels().winograd->adjoint({shape, floats(signal), floats(weight), floats(out), {executor}});
      },
      pybind11::call_guard<pybind11::gil_scoped_release>());
}

}  // namespace snnlib
