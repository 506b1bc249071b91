#include "snnlib/cuda.h"

namespace snnlib {

namespace cuda {
extern const SrmKernels srm_kernels;
extern const SrmPoolKernels srm_pool_kernels;
extern const PoolKernels pool_kernels;
extern const ScanKernels scan_kernels;
extern const ScanPoolKernels scan_pool_kernels;
extern const RecurrentKernels recurrent_kernels;
extern const DelayKernels delay_kernels;
extern const EventKernels event_kernels;
extern const NormalizedKernels normalized_kernels;

Kernels all_kernels() {
  Kernels table{"cuda"};
  table.srm = &srm_kernels, table.srm_pool = &srm_pool_kernels, table.pool = &pool_kernels;
  table.scan = &scan_kernels, table.scan_pool = &scan_pool_kernels, table.recurrent = &recurrent_kernels;
  table.delay = &delay_kernels, table.event = &event_kernels;
  table.normalized = &normalized_kernels;
  return table;
}
}  // namespace cuda

const Kernels& cuda_kernels() {
  static const Kernels table = cuda::all_kernels();
  return table;
}

}  // namespace snnlib
