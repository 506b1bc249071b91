// Neurons over whole sequences of currents: the launchers that the bindings call. Math: neurons/linear.h,
// neurons/exact.h and neurons/srm.h. All tensors of one call share `view` and `dtype`.
#pragma once

#include "snnlib/core/call.h"
#include "snnlib/core/dtype.h"
#include "snnlib/neurons/exact.h"
#include "snnlib/neurons/linear.h"
#include "snnlib/neurons/srm.h"

namespace snnlib {

// Neurons of the linear family (LinearFlags), of the spike response model (SrmConstants) or, on CPUs, with exact spike
// times (ExactFlags); coefficients and states are float (double for float64 tensors).
template <class Flags>
struct ScanArgsOf {
  SequenceView view;
  DType dtype;  // of exact times: float32 or float64
  int states;   // K: 1 to 3; u, s and g of SRM neurons; v, i and with a refractory time the steps that are left
  Flags flags;
  // [rows][period]: coefficient `row` of neuron i of one step is [row][i % period]; SRM neurons have a threshold alone.
  const void* coefficients;
  int64_t period;
  const void* current;
  // Before the first step, [K + added_rows(flags)][outer * inner]. Null: zero.
  const void* state_in;
  Executor executor;
  SNNLIB_FIELDS(view, dtype, states, flags, coefficients, period, current, state_in, executor)
};

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
using ExactArgs = ScanArgsOf<ExactFlags>;
using ExactForwardArgs = ScanForwardArgsOf<ExactFlags>;
using ExactBackwardArgs = ScanBackwardArgsOf<ExactFlags>;

struct ScanKernels {
  void (*forward)(const ScanForwardArgs&);
  void (*backward)(const ScanBackwardArgs&);
};

struct ExactKernels {
  void (*forward)(const ExactForwardArgs&);
  void (*backward)(const ExactBackwardArgs&);
};

using SrmArgs = ScanArgsOf<SrmConstants>;

struct SrmForwardArgs : SrmArgs {
  void* spikes;
  void* state_out;  // after the last step, null where not wanted
  // What a step computes before its reset, each null where not wanted.
  void* potential;
  void* delta_u;
  void* delta_ut;
  SNNLIB_MORE_FIELDS(SrmArgs, spikes, state_out, potential, delta_u, delta_ut)
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

// Neurons of one state whose spikes are averaged over windows without overlap.
//
// A step of a sample is [channels][height][width], or [height][width][channels] with channels_last; every cell
// is in a window. `value` and `grad_value` have windows in the place of cells, everything else is of cells. The period
// of the coefficients is 1 or the number of channels. A CPU takes float32 alone, channels-last and in whole cache
// lines, CUDA windows of 2 x 2 cells alone.
struct CellPlanes {
  int64_t channels, height, width;
  bool channels_last;
  int64_t window_rows, window_columns;
  SNNLIB_FIELDS(channels, height, width, channels_last, window_rows, window_columns)
};

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

// SRM neurons whose spikes are averaged over windows of 2 x 2 cells, on CUDA.
//
// From a state of zero. `spikes` and `grad_spikes` have windows in the place of cells; the period of the threshold is 1
// or the number of channels.
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

namespace portable {
extern const ScanKernels scan_kernels;
extern const SrmKernels srm_kernels;
extern const ExactKernels exact_kernels;
}  // namespace portable

}  // namespace snnlib
