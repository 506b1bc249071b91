#include "snnlib/events/nonzero.h"

#include "bindings.h"

namespace snnlib {

void bind_nonzero(pybind11::module_& module, KernelTable table) {
  module.def(
      "count_nonzero",
      [table](int dtype, int64_t frames, int64_t cells, int64_t frame_stride, int64_t parts, Address elements,
              Address counts, intptr_t executor) {
        return table().nonzero->count({DType(dtype),
                                       frames,
                                       cells,
                                       frame_stride,
                                       parts,
                                       pointer(elements),
                                       static_cast<int64_t*>(pointer(counts)),
                                       {executor}});
      },
      pybind11::call_guard<pybind11::gil_scoped_release>());
}

}  // namespace snnlib
