#include "../../cpp/bindings/bindings.h"
#include "snnlib/cuda.h"

PYBIND11_MODULE(_C_emulated, module) {
  module.doc() = "The CUDA kernels as loops on the CPU; imported by tests only.";
  snnlib::bind_srm(module, &snnlib::cuda_kernels);
  snnlib::bind_pool(module, &snnlib::cuda_kernels);
  snnlib::bind_scan(module, &snnlib::cuda_kernels);
}
