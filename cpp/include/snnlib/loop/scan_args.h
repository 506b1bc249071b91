// Arguments that neurons of all families share where they run over whole sequences of currents. All tensors of one call
// share `view` and `dtype`.
#pragma once

#include "snnlib/core/call.h"
#include "snnlib/core/dtype.h"

namespace snnlib {

// Neurons of the linear family (LinearFlags), on CPUs with spike times (SynapseFlags), SRM neurons among them, or of
// the spike response model on CUDA (SrmConstants); coefficients and states are float (double for float64 tensors).
template <class Flags>
struct ScanArgsOf {
  SequenceView view;
  DType dtype;  // of exact times: float32 or float64
  int states;   // K: 1 to 3; u, s and g of SRM neurons; v, i and with a refractory time the steps that are left
  Flags flags;
  // [rows][period]: coefficient `row` of neuron i of one step is [row][i % period]; SrmConstants have a threshold
  // alone.
  const void* coefficients;
  int64_t period;
  const void* current;
  // Before the first step, [K + added_rows(flags)][outer * inner]. Null: zero.
  const void* state_in;
  Executor executor;
  SNNLIB_FIELDS(view, dtype, states, flags, coefficients, period, current, state_in, executor)
};

// Frames whose cells are all in windows without overlap, over which spikes are averaged.
//
// A step of a sample is [channels][height][width], or [height][width][channels] with channels_last. Means and their
// gradients have windows in the place of cells, everything else is of cells. The period of the coefficients is 1 or the
// number of channels.
struct CellPlanes {
  int64_t channels, height, width;
  bool channels_last;
  int64_t window_rows, window_columns;
  SNNLIB_FIELDS(channels, height, width, channels_last, window_rows, window_columns)
};

}  // namespace snnlib
