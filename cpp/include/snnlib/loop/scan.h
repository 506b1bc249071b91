// Neurons of the linear family and with exact spike times over whole sequences of currents: the launchers that the
// bindings call. Math: neurons/linear.h and neurons/credit.h.
#pragma once

#include "snnlib/loop/scan_args.h"
#include "snnlib/neurons/credit.h"
#include "snnlib/neurons/linear.h"

namespace snnlib {

template <class Flags>
struct ScanForwardArgsOf : ScanArgsOf<Flags> {
  void* value;
  void* state_out;
  SNNLIB_MORE_FIELDS(ScanArgsOf<Flags>, value, state_out)
};

template <class Flags>
struct ScanBackwardArgsOf : ScanArgsOf<Flags> {
  const void* grad_value;
  const void* grad_state_out;  // null: zero
  void* grad_current;
  void* grad_state_in;
  void* grad_coefficients;  // of every neuron, [rows][outer * inner]; null where not wanted, as of exact times
  SNNLIB_MORE_FIELDS(ScanArgsOf<Flags>, grad_value, grad_state_out, grad_current, grad_state_in, grad_coefficients)
};

using ScanArgs = ScanArgsOf<LinearFlags>;
using ScanForwardArgs = ScanForwardArgsOf<LinearFlags>;
using ScanBackwardArgs = ScanBackwardArgsOf<LinearFlags>;
using SpikeTimeForwardArgs = ScanForwardArgsOf<SynapseFlags>;
struct SpikeTimeBackwardArgs : ScanBackwardArgsOf<SynapseFlags> {
  void* input_signal;  // b of neurons/credit.h; null where not wanted, as of neurons without it
  SNNLIB_MORE_FIELDS(ScanBackwardArgsOf<SynapseFlags>, input_signal)
};

struct ScanKernels {
  void (*forward)(const ScanForwardArgs&);
  void (*backward)(const ScanBackwardArgs&);
};

struct SpikeTimeKernels {
  void (*forward)(const SpikeTimeForwardArgs&);
  void (*backward)(const SpikeTimeBackwardArgs&);
};

// Neurons of one state whose spikes are averaged over windows without overlap. A CPU takes float32 alone,
// channels-last and in whole cache lines, CUDA windows of 2 x 2 cells alone.
struct ScanPoolForwardArgs : ScanForwardArgs {
  CellPlanes planes;
  SNNLIB_MORE_FIELDS(ScanForwardArgs, planes)
};

// Without gradients of coefficients.
struct ScanPoolBackwardArgs : ScanBackwardArgs {
  CellPlanes planes;
  SNNLIB_MORE_FIELDS(ScanBackwardArgs, planes)
};

struct ScanPoolKernels {
  void (*forward)(const ScanPoolForwardArgs&);
  void (*backward)(const ScanPoolBackwardArgs&);
};

namespace portable {
extern const ScanKernels scan_kernels;
extern const SpikeTimeKernels spike_time_kernels;
}  // namespace portable

}  // namespace snnlib
