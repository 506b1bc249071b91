#include "snnlib/superpixel.h"

#include <stdexcept>
#include <string>

#include "bindings.h"

namespace snnlib {

void bind_superpixel(pybind11::module_& module, KernelTable table) {
  module.def(
      "superpixel_sum",
      [table](int dtype, int64_t images, int64_t channels, int64_t pixels, int64_t maps, int64_t count, Address image,
              Address segments, Address sums, intptr_t executor) {
        const bool valid = table().superpixel->sum({DType(dtype),
                                                    images,
                                                    channels,
                                                    pixels,
                                                    maps,
                                                    count,
                                                    pointer(image),
                                                    static_cast<const int64_t*>(pointer(segments)),
                                                    pointer(sums),
                                                    {executor}});
        if (!valid) throw std::invalid_argument("segments: expected integers in [0, " + std::to_string(count) + ")");
      },
      pybind11::call_guard<pybind11::gil_scoped_release>());
}

}  // namespace snnlib
