// The instruction sets in this binary and the one in use: the widest that the processor has, or the one asked for.
#pragma once

#include <string>
#include <vector>

namespace snnlib {

// Each in the header of its name; TapKernels in taps.h.
struct BatchNormKernels;
struct DelayKernels;
struct DelayedLinearKernels;
struct MaxPoolKernels;
struct NonzeroKernels;
struct PackKernels;
struct PoolKernels;
struct RecurrentKernels;
struct ScanKernels;
struct ScanPoolKernels;
struct SrmKernels;
struct LayerKernels;
struct TapKernels;
struct WinogradKernels;

struct Kernels {
  const char* isa;
  const SrmKernels* srm;
  const PoolKernels* pool;
  const LayerKernels* layer;
  const ScanKernels* scan;
  const ScanPoolKernels* scan_pool;
  const BatchNormKernels* batch_norm;
  const RecurrentKernels* recurrent;
  const DelayKernels* delay;
  const DelayedLinearKernels* delayed_linear;
  const NonzeroKernels* nonzero;
  const PackKernels* pack;
  const MaxPoolKernels* max_pool;
  const TapKernels* taps;
  const WinogradKernels* winograd;
};

const Kernels& kernels();
// Throws std::invalid_argument for a name that is not in available_isas().
void select_isa(const std::string& name);
// Compiled in and supported by this processor, narrowest first.
std::vector<std::string> available_isas();

}  // namespace snnlib
