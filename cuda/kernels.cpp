#include "snnlib/cuda.h"

namespace snnlib {

namespace cuda {
extern const SrmKernels srm_kernels;
extern const PoolKernels pool_kernels;
extern const ScanKernels scan_kernels;
extern const ScanPoolKernels scan_pool_kernels;
extern const RecurrentKernels recurrent_kernels;
extern const DelayKernels delay_kernels;
}  // namespace cuda

const Kernels& cuda_kernels() {
  static const Kernels table = {"cuda",  &cuda::srm_kernels,       &cuda::pool_kernels,
                                nullptr, &cuda::scan_kernels,      &cuda::scan_pool_kernels,
                                nullptr, &cuda::recurrent_kernels, &cuda::delay_kernels};
  return table;
}

}  // namespace snnlib
