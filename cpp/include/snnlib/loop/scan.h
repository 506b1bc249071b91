// Neurons over whole sequences of currents: the launchers that the bindings call. Math: neurons/linear.h,
// neurons/exact.h and neurons/srm.h. All tensors of one call share `view` and `dtype`.
#pragma once

#include "snnlib/core/call.h"
#include "snnlib/core/dtype.h"
#include "snnlib/neurons/exact.h"
#include "snnlib/neurons/linear.h"
#include "snnlib/neurons/srm.h"

namespace snnlib {

// Neurons of the linear family (LinearFlags) or, on CPUs, with exact spike times (ExactFlags); coefficients and states
// are float (double for float64 tensors).
template <class Flags>
struct ScanArgsOf {
  SequenceView view;
  DType dtype;  // of exact times: float32 or float64
  int states;   // K: 1 to 3; v, i and with a refractory time the steps that are left
  Flags flags;
  // [rows][period]: coefficient `row` of neuron i of one step is [row][i % period].
  const void* coefficients;
  int64_t period;
  const void* current;
  // Before the first step, [K + added_rows(flags)][outer * inner]. Null: zero.
  const void* state_in;
  Executor executor;
};

template <class Flags>
struct ScanForwardArgsOf : ScanArgsOf<Flags> {
  void* value;
  void* state_out;
};

template <class Flags>
struct ScanBackwardArgsOf : ScanArgsOf<Flags> {
  const void* grad_value;
  const void* grad_state_out;  // null: zero
  void* grad_current;
  void* grad_state_in;
  void* grad_coefficients;  // of every neuron, [rows][outer * inner]; null where not wanted, as of exact times
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

// SRM neurons; state and threshold are float (double for float64 sequences).
struct SrmArgs {
  SequenceView view;
  DType dtype;
  SrmConstants constants;
  const void* current;
  const void* threshold;  // of neuron i of one step: [i % threshold_period]
  int64_t threshold_period;
  const void* state_in;  // before the first step, [3][outer * inner]: u, s, g. Null: zero
  Executor executor;
};

struct SrmForwardArgs : SrmArgs {
  void* spikes;
  void* state_out;  // after the last step, null where not wanted
  // What a step computes before its reset, each null where not wanted.
  void* potential;
  void* delta_u;
  void* delta_ut;
};

struct SrmBackwardArgs : SrmArgs {
  const void* grad_spikes;
  void* weight_signal;  // a, null where not wanted
  void* input_signal;   // b, null where not wanted
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
};

struct ScanPoolForwardArgs {
  ScanForwardArgs scan;
  CellPlanes planes;
};

// Without gradients of coefficients.
struct ScanPoolBackwardArgs {
  ScanBackwardArgs scan;
  CellPlanes planes;
};

struct ScanPoolKernels {
  void (*forward)(const ScanPoolForwardArgs&);
  void (*backward)(const ScanPoolBackwardArgs&);
};

// SRM neurons whose spikes are averaged over windows of 2 x 2 cells, on CUDA.
//
// From a state of zero. `spikes` and `grad_spikes` have windows in the place of cells; the period of the threshold is 1
// or the number of channels.
struct SrmPoolForwardArgs {
  SrmForwardArgs srm;
  CellPlanes planes;
};

struct SrmPoolBackwardArgs {
  SrmBackwardArgs srm;
  CellPlanes planes;
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
