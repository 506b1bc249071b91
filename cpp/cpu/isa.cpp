#include "snnlib/core/isa.h"

#include <atomic>
#include <stdexcept>

namespace snnlib {

#define SNNLIB_EXTERN(name, Table) extern const Table name##_kernels;
#define SNNLIB_SET(name, Table) table.name = &name##_kernels;
#define SNNLIB_INSTRUCTION_SET(isa) \
  namespace isa {                   \
  SNNLIB_FAMILIES(SNNLIB_EXTERN)    \
  Kernels all_kernels() {           \
    Kernels table{#isa};            \
    SNNLIB_FAMILIES(SNNLIB_SET)     \
    return table;                   \
  }                                 \
  }
#ifdef SNNLIB_HAS_portable
SNNLIB_INSTRUCTION_SET(portable)
#endif
#ifdef SNNLIB_HAS_avx2
SNNLIB_INSTRUCTION_SET(avx2)
#endif
#ifdef SNNLIB_HAS_avx512
SNNLIB_INSTRUCTION_SET(avx512)
#endif

namespace {

std::vector<Kernels> supported() {
  std::vector<Kernels> list;
#ifdef SNNLIB_HAS_portable
  list.push_back(portable::all_kernels());
#endif
  // AVX2 and AVX-512 stand for the x86-64-v3 and -v4 levels that the compiler was given.
#if defined(SNNLIB_HAS_avx2) || defined(SNNLIB_HAS_avx512)
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
#endif
#ifdef SNNLIB_HAS_avx2
  if (v3) list.push_back(avx2::all_kernels());
#endif
#ifdef SNNLIB_HAS_avx512
  if (v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    list.push_back(avx512::all_kernels());
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
