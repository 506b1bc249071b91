# snnlib_find_nvidia_driver(root result): sets `result` to a file below `root` that only an installed driver makes, or to
# nothing. Kernels take minutes to compile, so that a build by default has them only where something can run them; many
# build machines have a CUDA compiler and no GPU.
function(snnlib_find_nvidia_driver root result)
  set(${result} "" PARENT_SCOPE)
  # Linux, containers with a GPU, Windows' Linux and Windows.
  foreach(sign proc/driver/nvidia/version dev/nvidiactl usr/lib/wsl/lib/libcuda.so.1 Windows/System32/nvcuda.dll)
    if(EXISTS "${root}${sign}")
      set(${result} "${root}${sign}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()
