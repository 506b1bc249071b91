// Neurons of the spike response model over whole sequences of currents on CUDA: the launchers that the bindings call.
// CPUs run them as neurons with spike times (loop/scan.h). Math: neurons/srm.h.
#pragma once

#include "snnlib/loop/scan_args.h"
#include "snnlib/neurons/srm.h"

namespace snnlib {

using SrmArgs = ScanArgsOf<SrmConstants>;

struct SrmForwardArgs : SrmArgs {
  void* spikes;
  void* state_out;  // after the last step, null where not wanted
  SNNLIB_MORE_FIELDS(SrmArgs, spikes, state_out)
};

struct SrmBackwardArgs : SrmArgs {
  const void* grad_spikes;
  void* weight_signal;  // a, null where not wanted
  void* input_signal;   // b, null where not wanted
  SNNLIB_MORE_FIELDS(SrmArgs, grad_spikes, weight_signal, input_signal)
};

struct SrmKernels {
  void (*forward)(const SrmForwardArgs&);
  void (*backward)(const SrmBackwardArgs&);
};

// SRM neurons whose spikes are averaged over windows of 2 x 2 cells, on CUDA and from a state of zero.
struct SrmPoolForwardArgs : SrmForwardArgs {
  CellPlanes planes;
  SNNLIB_MORE_FIELDS(SrmForwardArgs, planes)
};

struct SrmPoolBackwardArgs : SrmBackwardArgs {
  CellPlanes planes;
  SNNLIB_MORE_FIELDS(SrmBackwardArgs, planes)
};

struct SrmPoolKernels {
  void (*forward)(const SrmPoolForwardArgs&);
  void (*backward)(const SrmPoolBackwardArgs&);
};

}  // namespace snnlib
