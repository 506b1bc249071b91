#include "snnlib/events/taps.h"

#include "bindings.h"

namespace snnlib {
namespace {

// (frames, in_channels, in_height, in_width, channels, height, width, kernel (h, w), stride, padding, dilation)
using TapSizes = std::array<int64_t, 15>;

TapShape to_tap_shape(const TapSizes& v) {
  return {v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10], v[11], v[12], v[13], v[14]};
}

float* floats(Address address) { return static_cast<float*>(pointer(address)); }

}  // namespace

void bind_taps(pybind11::module_& module) {
  const auto unlocked = pybind11::call_guard<pybind11::gil_scoped_release>();
  module.def(
      "tap_currents",
      [](const TapSizes& sizes, Address input, Address weight, int64_t piece, Address current, intptr_t executor) {
        kernels().taps->currents(
            {to_tap_shape(sizes), floats(input), floats(weight), piece, floats(current), {executor}});
      },
      unlocked);
  module.def(
      "tap_weights",
      [](const TapSizes& sizes, Address input, Address signal, Address grad_weight, intptr_t executor) {
        kernels().taps->weights({to_tap_shape(sizes), floats(input), floats(signal), floats(grad_weight), {executor}});
      },
      unlocked);
}

}  // namespace snnlib
