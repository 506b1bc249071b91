# The CUDA kernels, unchanged, as plain C++: the tests call them on CPU tensors. Needs the headers of a CUDA toolkit, no
# compiler of it.
find_path(SNNLIB_CUDA_HEADERS cuda_fp16.h
          PATHS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES include)
if(NOT SNNLIB_CUDA_HEADERS)
  message(FATAL_ERROR "SNNLIB_EMULATION needs cuda_fp16.h of a CUDA toolkit; set CUDA_HOME")
endif()

set_source_files_properties(${SNNLIB_CUDA_KERNELS} PROPERTIES LANGUAGE CXX)
add_library(snnlib_emulated OBJECT ${SNNLIB_CUDA_KERNELS})
set_target_properties(snnlib_emulated PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_include_directories(snnlib_emulated PRIVATE cuda tests/native)
target_include_directories(snnlib_emulated SYSTEM PRIVATE ${SNNLIB_CUDA_HEADERS})
# Built for tests on the spot: compiling counts as much as running.
target_compile_options(snnlib_emulated PRIVATE -x c++ -O1)
target_compile_definitions(snnlib_emulated PRIVATE SNNLIB_EMULATION SNNLIB_ISA=cuda)
target_link_libraries(snnlib_emulated PRIVATE snnlib_flags)

pybind11_add_module(_C_emulated NO_EXTRAS tests/native/emulation/module.cpp cuda/kernels.cpp
                    cpp/bindings/kernels.cpp cpp/cpu/threads.cpp)
target_compile_options(_C_emulated PRIVATE -O1)
set_target_properties(_C_emulated PROPERTIES UNITY_BUILD ON)
target_include_directories(_C_emulated PRIVATE cuda cpp/bindings tests/native)
target_include_directories(_C_emulated SYSTEM PRIVATE ${SNNLIB_CUDA_HEADERS})
target_compile_definitions(_C_emulated PRIVATE SNNLIB_EMULATION)
target_link_libraries(_C_emulated PRIVATE snnlib_flags snnlib_emulated)
