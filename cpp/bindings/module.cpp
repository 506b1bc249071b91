#include <iterator>

#include "bindings.h"
#include "snnlib/core/isa.h"
#include "snnlib/neurons/surrogate.h"
#include "snnlib/program/machine.h"

namespace snnlib {

void bind_layer(pybind11::module_& module);
void bind_pack(pybind11::module_& module);
void bind_cpu_memory(pybind11::module_& module);

}  // namespace snnlib

PYBIND11_MODULE(_C, module) {
  module.doc() = "Native kernels of snnlib; imported by snnlib.backends.native only.";
  module.attr("__version__") = SNNLIB_VERSION;
#if defined(_OPENMP)
  module.attr("openmp") = true;
#else
  module.attr("openmp") = false;
#endif
  pybind11::dict surrogates;
  for (size_t kind = 0; kind < std::size(snnlib::kSurrogateNames); ++kind)
    surrogates[snnlib::kSurrogateNames[kind]] = snnlib::is_compact(snnlib::SurrogateKind(kind));
  // True for shapes that are zero away from the threshold, in the order of their kinds.
  module.attr("surrogates") = surrogates;
  // Operations of programs in the order of their codes.
  module.attr("program_ops") = std::vector<std::string>(std::begin(snnlib::kProgramOps), std::end(snnlib::kProgramOps));
  module.def("isa", [] { return std::string(snnlib::kernels().isa); });
  module.def("available_isas", &snnlib::available_isas);
  module.def("select_isa", &snnlib::select_isa);
  pybind11::class_<snnlib::Slot>(module, "Slot").def(pybind11::init<size_t>());
  snnlib::bind_kernels(module, &snnlib::kernels);
  // Kernels with delays, which the CPU alone has.
  for (const char* pass : {"recurrent_forward", "recurrent_backward"})
    module.attr((std::string("delayed_") + pass).c_str()) = module.attr(pass);
  snnlib::bind_layer(module);
  snnlib::bind_pack(module);
  snnlib::bind_cpu_memory(module);
  for (const auto bind : snnlib::PartBindings::all()) bind(module);
#ifdef SNNLIB_HAS_CUDA
  snnlib::bind_cuda(module);
  snnlib::bind_cudnn(module);
#endif
}
