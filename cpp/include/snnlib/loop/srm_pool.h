// SRM neurons whose spikes are averaged over windows of 2 x 2 cells, on CUDA: the launchers that the bindings call.
// Math: neurons/srm.h, pool/windows.h.
#pragma once

#include "snnlib/loop/scan_pool.h"
#include "snnlib/loop/srm.h"

namespace snnlib {

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

namespace cuda {
void srm_pool_forward(const SrmPoolForwardArgs& args);
void srm_pool_backward(const SrmPoolBackwardArgs& args);
}  // namespace cuda

}  // namespace snnlib
