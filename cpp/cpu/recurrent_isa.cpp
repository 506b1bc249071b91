#include <cstring>

#include "snnlib/isa.h"
#include "snnlib/recurrent.h"

namespace snnlib {

#define SNNLIB_DECLARE(isa)                      \
  namespace isa {                                \
  extern const RecurrentKernels recurrent_table; \
  }
SNNLIB_DECLARE(portable)
#ifdef SNNLIB_HAS_avx2
SNNLIB_DECLARE(avx2)
#endif
#ifdef SNNLIB_HAS_avx512
SNNLIB_DECLARE(avx512)
#endif

const RecurrentKernels& recurrent_kernels() {
  const char* isa = kernels().isa;
  (void)isa;
#ifdef SNNLIB_HAS_avx512
  if (!std::strcmp(isa, "avx512")) return avx512::recurrent_table;
#endif
#ifdef SNNLIB_HAS_avx2
  if (!std::strcmp(isa, "avx2")) return avx2::recurrent_table;
#endif
  return portable::recurrent_table;
}

}  // namespace snnlib
