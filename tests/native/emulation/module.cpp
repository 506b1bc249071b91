#include "../../../cuda/launch.h"
#include "bindings.h"
#include "snnlib/cuda.h"

PYBIND11_MODULE(_C_emulated, module) {
  namespace py = pybind11;
  module.doc() = "The CUDA kernels as loops on the CPU; imported by tests only.";
  snnlib::bind_kernels(module, &snnlib::cuda_kernels);
  module.attr("scan_takes_half") = true;
  module.attr("scan_pools_any_layout") = true;
  module.attr("most_recurrent_neurons") = snnlib::most_recurrent_neurons();
  module.def("run_backwards", [](bool backwards) { snnlib::cuda::emulated.fibres.backwards = backwards; });
  module.def("last_launch", [] {
    const snnlib::cuda::LaunchShape& shape = snnlib::cuda::emulated.shape;
    py::dict facts;
    facts["blocks"] = shape.blocks;
    facts["threads"] = shape.threads;
    facts["shared bytes"] = shape.shared_bytes;
    const bool asked = shape.attributes && shape.attribute.id == cudaLaunchAttributePreferredSharedMemoryCarveout;
    facts["shared memory in per cent"] = asked ? int(shape.attribute.val.sharedMemCarveout) : -1;
    return facts;
  });
}
