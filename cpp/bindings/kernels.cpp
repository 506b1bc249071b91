#include "bindings.h"
#include "snnlib/batch_norm.h"
#include "snnlib/delay/delay.h"
#include "snnlib/delay/linear.h"
#include "snnlib/events/nonzero.h"
#include "snnlib/events/sparse.h"
#include "snnlib/events/taps.h"
#include "snnlib/loop/normalized.h"
#include "snnlib/loop/recurrent.h"
#include "snnlib/loop/scan.h"
#include "snnlib/loop/srm.h"
#include "snnlib/pool/pool.h"
#include "snnlib/program/program.h"
#include "snnlib/winograd.h"

namespace snnlib {

void bind_kernels(pybind11::module_& module, KernelTable table) {
  const auto bind = [&](const char* name, auto family, auto kernel) {
    bind_kernel(module, table, name, family, kernel);
  };
  bind("srm_forward", &Kernels::srm, &SrmKernels::forward);
  bind("srm_backward", &Kernels::srm, &SrmKernels::backward);
  bind("srm_pool_forward", &Kernels::srm_pool, &SrmPoolKernels::forward);
  bind("srm_pool_backward", &Kernels::srm_pool, &SrmPoolKernels::backward);
  bind("scan_forward", &Kernels::scan, &ScanKernels::forward);
  bind("scan_backward", &Kernels::scan, &ScanKernels::backward);
  bind("exact_forward", &Kernels::spike_time, &SpikeTimeKernels::forward);
  bind("exact_backward", &Kernels::spike_time, &SpikeTimeKernels::backward);
  bind("scan_pool_forward", &Kernels::scan_pool, &ScanPoolKernels::forward);
  bind("scan_pool_backward", &Kernels::scan_pool, &ScanPoolKernels::backward);
  bind("program_forward", &Kernels::program, &ProgramKernels::forward);
  bind("program_backward", &Kernels::program, &ProgramKernels::backward);
  bind("program_recurrent_forward", &Kernels::program, &ProgramKernels::recurrent_forward);
  bind("program_recurrent_backward", &Kernels::program, &ProgramKernels::recurrent_backward);
  bind("recurrent_forward", &Kernels::recurrent, &RecurrentKernels::forward);
  bind("recurrent_backward", &Kernels::recurrent, &RecurrentKernels::backward);
  bind("sparse_currents", &Kernels::sparse, &SparseKernels::currents);
  bind("sparse_gradients", &Kernels::sparse, &SparseKernels::gradients);
  bind("sparse_recurrent_forward", &Kernels::sparse, &SparseKernels::recurrent_forward);
  bind("sparse_recurrent_backward", &Kernels::sparse, &SparseKernels::recurrent_backward);
  bind("pool_forward", &Kernels::pool, &PoolKernels::forward);
  bind("pool_backward", &Kernels::pool, &PoolKernels::backward);
  bind("max_pool_forward", &Kernels::max_pool, &MaxPoolKernels::forward);
  bind("max_pool_backward", &Kernels::max_pool, &MaxPoolKernels::backward);
  bind("delay_shift", &Kernels::delay, &DelayKernels::shift);
  bind("delay_shift_sums", &Kernels::delay, &DelayKernels::shift_sums);
  bind("delayed_currents", &Kernels::delayed_linear, &DelayedLinearKernels::currents);
  bind("delayed_sums", &Kernels::delayed_linear, &DelayedLinearKernels::sums);
  bind("delayed_gradients", &Kernels::delayed_linear, &DelayedLinearKernels::gradients);
  bind("delayed_input", &Kernels::delayed_linear, &DelayedLinearKernels::input);
  bind("tap_currents", &Kernels::tap, &TapKernels::currents);
  bind("tap_weights", &Kernels::tap, &TapKernels::weights);
  bind("event_currents", &Kernels::event, &EventKernels::currents);
  bind("winograd_adjoint", &Kernels::winograd, &WinogradKernels::adjoint);
  bind("batch_norm_moments", &Kernels::batch_norm, &BatchNormKernels::moments);
  bind("batch_norm_backward", &Kernels::batch_norm, &BatchNormKernels::backward);
  bind("normalized_forward", &Kernels::normalized, &NormalizedKernels::forward);
  bind("normalized_backward", &Kernels::normalized, &NormalizedKernels::backward);
  bind("count_nonzero", &Kernels::nonzero, &NonzeroKernels::count);
  bind("count_sampled", &Kernels::nonzero, &NonzeroKernels::sample);
}

}  // namespace snnlib
