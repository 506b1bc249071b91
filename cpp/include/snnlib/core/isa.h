// The instruction sets in this binary and the one in use: the widest that the processor has, or the one asked for.
#pragma once

#include <string>
#include <vector>

// The families of kernels that an instruction set has, each a table of functions in the header of its name (those of
// taps in events/taps.h), and those that CUDA has alone.
// clang-format off
#define SNNLIB_FAMILIES(family)                                                                               \
  family(pool, PoolKernels) family(layer, LayerKernels) family(scan, ScanKernels)                             \
  family(scan_pool, ScanPoolKernels) family(batch_norm, BatchNormKernels) family(recurrent, RecurrentKernels) \
  family(delay, DelayKernels) family(delayed_linear, DelayedLinearKernels) family(nonzero, NonzeroKernels)    \
  family(pack, PackKernels) family(max_pool, MaxPoolKernels) family(tap, TapKernels)                          \
  family(winograd, WinogradKernels) family(spike_time, SpikeTimeKernels) family(sparse, SparseKernels)        \
  family(program, ProgramKernels)
#define SNNLIB_CUDA_FAMILIES(family)                             \
  family(srm, SrmKernels) family(srm_pool, SrmPoolKernels)       \
  family(event, EventKernels) family(normalized, NormalizedKernels)
// clang-format on

namespace snnlib {

#define SNNLIB_DECLARE(name, Table) struct Table;
SNNLIB_FAMILIES(SNNLIB_DECLARE)
SNNLIB_CUDA_FAMILIES(SNNLIB_DECLARE)
#undef SNNLIB_DECLARE

// Null for families that an instruction set or CUDA does not have.
struct Kernels {
  const char* isa;
#define SNNLIB_MEMBER(name, Table) const Table* name = nullptr;
  SNNLIB_FAMILIES(SNNLIB_MEMBER)
  SNNLIB_CUDA_FAMILIES(SNNLIB_MEMBER)
#undef SNNLIB_MEMBER
};

const Kernels& kernels();
// Throws std::invalid_argument for a name that is not in available_isas().
void select_isa(const std::string& name);
// Compiled in and supported by this processor, narrowest first.
std::vector<std::string> available_isas();

}  // namespace snnlib
