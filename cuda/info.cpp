#include <cuda_runtime_api.h>

#include <stdexcept>

#include "snnlib/cuda.h"

namespace snnlib {

void cuda_use_device(int index) {
  const cudaError_t status = cudaSetDevice(index);
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();
  throw std::runtime_error("CUDA device " + std::to_string(index) + ": " + cudaGetErrorString(status));
}

CudaInfo cuda_info() {
  CudaInfo info = {CUDART_VERSION, 0, 0, ""};
  cudaDriverGetVersion(&info.driver);
  const cudaError_t status = cudaGetDeviceCount(&info.devices);
  if (status != cudaSuccess) {
    info.devices = 0;
    info.problem = cudaGetErrorString(status);
    // The answer was taken: the next launch must not report it again.
    (void)cudaGetLastError();
  }
  return info;
}

}  // namespace snnlib
