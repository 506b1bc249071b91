#include "snnlib/cuda.h"

#include "bindings.h"

namespace snnlib {

// The functions of the module again, for tensors of the current CUDA device and with a stream for the last argument.
void bind_cuda(pybind11::module_& module) {
  pybind11::module_ cuda = module.def_submodule("cuda", "Kernels for CUDA tensors.");
  bind_kernels(cuda, &cuda_kernels);
  cuda.attr("scan_takes_half") = true;
  cuda.attr("scan_pools_any_layout") = true;
  cuda.attr("most_recurrent_neurons") = most_recurrent_neurons();
  cuda.attr("architectures") = SNNLIB_CUDA_ARCHITECTURES;
  cuda.def("use_device", &cuda_use_device);
  cuda.def("problem", &cuda_problem);
  cuda.def("info", [] {
    const CudaInfo info = cuda_info();
    pybind11::dict facts;
    facts["runtime"] = info.runtime;
    facts["driver"] = info.driver;
    facts["devices"] = info.devices;
    facts["problem"] = info.problem;
    return facts;
  });
}

}  // namespace snnlib
