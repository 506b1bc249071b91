#include <stdexcept>

#include "bindings.h"
#include "cudnn_conv.h"
#include "snnlib/core/dtype.h"

namespace snnlib {
namespace {

cudnn::DataType to_cudnn(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return cudnn::DataType::kFloat32;
    case DType::kBFloat16:
      return cudnn::DataType::kBFloat16;
    case DType::kFloat16:
      return cudnn::DataType::kFloat16;
    default:
      throw std::invalid_argument("dtype: cuDNN convolves float32, bfloat16 and float16");
  }
}

}  // namespace

void bind_cudnn(pybind11::module_& parent) {
  namespace py = pybind11;
  using namespace cudnn;
  py::module_ module = parent.def_submodule("cudnn", "Backward convolutions of cuDNN, found when the program runs.");
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  py::module_::import("atexit").attr("register")(py::cpp_function(&leave));
  module.def("load", &load);
  module.def("version", [] { return api().version(); });
  module.def("dense_strides", &dense_strides);
  py::class_<ConvPlan>(module, "ConvPlan", py::module_local())
      .def_property_readonly("workspace_bytes", &ConvPlan::workspace_bytes)
      .def(
          "run",
          [](ConvPlan& plan, Address x, Address w, Address y, Address workspace, Address stream) {
            plan.run(pointer(x), pointer(w), pointer(y), pointer(workspace), pointer(stream));
          },
          unlocked);
  py::class_<ConvBackward>(module, "ConvBackward", py::module_local())
      .def(py::init([](bool to_input, int dtype, bool channels_last, const Size4& x, const Size4& w, const Size4& y,
                       const Size2& stride, const Size2& padding, const Size2& dilation,
                       const std::array<int64_t, 3>& alignments) {
        return ConvBackward({to_input, to_cudnn(DType(dtype)), channels_last, x, w, y, stride, padding, dilation,
                             alignments[0], alignments[1], alignments[2]});
      }))
      .def("find_engines", &ConvBackward::find_engines, unlocked)
      .def("plan", &ConvBackward::plan, unlocked);
}

}  // namespace snnlib
