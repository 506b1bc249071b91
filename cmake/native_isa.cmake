# Sets SNNLIB_NATIVE_ISA to the widest of the x86-64 levels that this machine has, or to nothing.
include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_FLAGS -march=native)
# The compiler defines these where the processor and the operating system have them.
check_cxx_source_compiles("
#if !(defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512CD__) && defined(__AVX512DQ__) && defined(__AVX512VL__))
#error no x86-64-v4
#endif
int main() {}" SNNLIB_MACHINE_HAS_AVX512)
check_cxx_source_compiles("
#if !(defined(__AVX2__) && defined(__FMA__) && defined(__BMI2__))
#error no x86-64-v3
#endif
int main() {}" SNNLIB_MACHINE_HAS_AVX2)
unset(CMAKE_REQUIRED_FLAGS)
if(SNNLIB_MACHINE_HAS_AVX512)
  set(SNNLIB_NATIVE_ISA avx512)
elseif(SNNLIB_MACHINE_HAS_AVX2)
  set(SNNLIB_NATIVE_ISA avx2)
else()
  set(SNNLIB_NATIVE_ISA "")
endif()
