// Tells if kernels of this module can run on the current device, found without a launch: asking for the attributes of a
// kernel needs the driver and loads the device's machine code, or says why it cannot.
#include <cuda_runtime.h>

#include "snnlib/cuda.h"

namespace snnlib {
namespace {

__global__ void probe() {}

// 13020 is 13.2.
std::string version(int number) { return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10); }

}  // namespace

std::string cuda_problem() {
  cudaFuncAttributes attributes;
  const cudaError_t status = cudaFuncGetAttributes(&attributes, probe);
  if (status == cudaSuccess) return "";
  // The error was taken: the next launch must not report it again.
  (void)cudaGetLastError();
  std::string message = cudaGetErrorString(status);
  if (status == cudaErrorInsufficientDriver) {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    message += " (built with CUDA " + version(CUDART_VERSION) + ", the driver takes up to " + version(driver) + ")";
  }
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction) {
    message += " (built for " SNNLIB_CUDA_ARCHITECTURES ")";
  }
  return message;
}

}  // namespace snnlib
