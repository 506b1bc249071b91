#include "snnlib/core/isa.h"

#include <atomic>
#include <stdexcept>

namespace snnlib {

#define SNNLIB_DECLARE(isa)                                 \
  namespace isa {                                           \
  extern const SrmKernels srm_kernels;                      \
  extern const PoolKernels pool_kernels;                    \
  extern const LayerKernels layer_kernels;                  \
  extern const ScanKernels scan_kernels;                    \
  extern const ScanPoolKernels scan_pool_kernels;           \
  extern const BatchNormKernels batch_norm_kernels;         \
  extern const RecurrentKernels recurrent_kernels;          \
  extern const DelayKernels delay_kernels;                  \
  extern const DelayedLinearKernels delayed_linear_kernels; \
  extern const NonzeroKernels nonzero_kernels;              \
  extern const PackKernels pack_kernels;                    \
  extern const MaxPoolKernels max_pool_kernels;             \
  extern const TapKernels tap_kernels;                      \
  extern const WinogradKernels winograd_kernels;            \
  }
#define SNNLIB_KERNELS(isa)      \
  {#isa,                         \
   &isa::srm_kernels,            \
   &isa::pool_kernels,           \
   &isa::layer_kernels,          \
   &isa::scan_kernels,           \
   &isa::scan_pool_kernels,      \
   &isa::batch_norm_kernels,     \
   &isa::recurrent_kernels,      \
   &isa::delay_kernels,          \
   &isa::delayed_linear_kernels, \
   &isa::nonzero_kernels,        \
   &isa::pack_kernels,           \
   &isa::max_pool_kernels,       \
   &isa::tap_kernels,            \
   &isa::winograd_kernels}
SNNLIB_DECLARE(portable)
#ifdef SNNLIB_HAS_avx2
SNNLIB_DECLARE(avx2)
#endif
#ifdef SNNLIB_HAS_avx512
SNNLIB_DECLARE(avx512)
#endif

namespace {

std::vector<Kernels> supported() {
  std::vector<Kernels> list = {SNNLIB_KERNELS(portable)};
  // AVX2 and AVX-512 stand for the x86-64-v3 and -v4 levels that the compiler was given.
#if defined(SNNLIB_HAS_avx2) || defined(SNNLIB_HAS_avx512)
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
#endif
#ifdef SNNLIB_HAS_avx2
  if (v3) list.push_back(SNNLIB_KERNELS(avx2));
#endif
#ifdef SNNLIB_HAS_avx512
  if (v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    list.push_back(SNNLIB_KERNELS(avx512));
  }
#endif
  return list;
}

const std::vector<Kernels>& table() {
  static const std::vector<Kernels> list = supported();
  return list;
}

std::atomic<const Kernels*> selected{nullptr};

}  // namespace

const Kernels& kernels() {
  const Kernels* now = selected.load();
  return now ? *now : table().back();
}

void select_isa(const std::string& name) {
  std::string names;
  for (const Kernels& k : table()) {
    if (name == k.isa) {
      selected.store(&k);
      return;
    }
    names += names.empty() ? k.isa : std::string(", ") + k.isa;
  }
  throw std::invalid_argument("instruction set: expected one of " + names + ", got " + name);
}

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const Kernels& k : table()) names.push_back(k.isa);
  return names;
}

}  // namespace snnlib
