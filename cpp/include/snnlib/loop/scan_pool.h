// Neurons of one state whose spikes are averaged over windows without overlap: the launchers that the bindings call.
// Math: neurons/linear.h.
#pragma once

#include "snnlib/loop/scan.h"

namespace snnlib {

// A step of a sample is [channels][height][width], or [height][width][channels] with channels_last; every cell
// is in a window. `value` and `grad_value` have windows in the place of cells, everything else is of cells. The period
// of the coefficients is 1 or the number of channels. A CPU takes float32 alone, channels-last and in whole cache
// lines, CUDA windows of 2 x 2 cells alone.
struct CellPlanes {
  int64_t channels, height, width;
  bool channels_last;
  int64_t window_rows = 2, window_columns = 2;
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

}  // namespace snnlib
