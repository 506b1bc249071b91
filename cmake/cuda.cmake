# Adds the CUDA kernels to _C. The runtime is linked statically: the module loads where there is no CUDA and no driver.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  # Machine code for one GPU of every generation that the compiler knows, and PTX for those to come.
  set(CMAKE_CUDA_ARCHITECTURES all-major)
endif()
if(SNNLIB_CUDA STREQUAL "AUTO")
  include(${CMAKE_CURRENT_LIST_DIR}/nvidia_driver.cmake)
  snnlib_find_nvidia_driver("/" SNNLIB_NVIDIA_DRIVER)
  if(NOT SNNLIB_NVIDIA_DRIVER)
    message(STATUS "snnlib: no CUDA kernels, for there is no NVIDIA driver (SNNLIB_CUDA=ON builds them all the same)")
    return()
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    message(STATUS "snnlib: no CUDA kernels, for there is no CUDA compiler")
    return()
  endif()
endif()
enable_language(CUDA)
message(NOTICE "snnlib: compiling CUDA kernels for ${CMAKE_CUDA_ARCHITECTURES}, which takes some minutes; to leave them "
               "out: -Ccmake.define.SNNLIB_CUDA=OFF")
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)

# Multiply and add stay separate roundings, and denormal numbers of float32 count as zero, as on the CPU: the same bits on
# both.
add_library(snnlib_cuda OBJECT ${SNNLIB_CUDA_KERNELS} cuda/problem.cu)
set_target_properties(snnlib_cuda PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_include_directories(snnlib_cuda PRIVATE cpp/include cuda)
target_compile_options(snnlib_cuda PRIVATE -fmad=false -ftz=true --threads=0 -Xcompiler=-Wall,-Wextra)
target_compile_definitions(snnlib_cuda PRIVATE SNNLIB_ISA=cuda)

# Plain C++ beside them, compiled without nvcc. cuDNN is looked up when the program runs.
target_sources(_C PRIVATE cuda/kernels.cpp cuda/info.cpp cpp/bindings/cuda.cpp
                          cuda/cudnn_api.cpp cuda/cudnn_conv.cpp cpp/bindings/cudnn.cpp)
target_include_directories(_C PRIVATE cuda ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
target_compile_definitions(_C PRIVATE SNNLIB_HAS_CUDA=1)
target_link_libraries(_C PRIVATE snnlib_cuda ${CMAKE_DL_LIBS})
# The runtime's own symbols stay inside.
target_link_options(_C PRIVATE -Wl,--exclude-libs,ALL)

# The target was made before the language was known.
set_target_properties(_C PROPERTIES CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}")

string(REPLACE ";" ", " SNNLIB_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}")
foreach(target _C snnlib_cuda)
  target_compile_definitions(${target} PRIVATE SNNLIB_CUDA_ARCHITECTURES="${SNNLIB_ARCHITECTURES}")
endforeach()
