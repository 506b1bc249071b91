// The CUDA half of the module: the same table of entry points as an instruction set, and facts for `snnlib doctor`.
// Nothing here calls CUDA before a function is called: importing the module stays safe before a fork.
#pragma once

#include <string>

#include "snnlib/core/isa.h"

namespace snnlib {

// Takes tensors of the current device; `Executor` is the stream to run on.
const Kernels& cuda_kernels();

// The largest recurrent layer of float32 that its kernels take; float64 has half as many neurons.
int most_recurrent_neurons();

struct CudaInfo {
  int runtime;          // version that the module was built with, 13000 for 13.0
  int driver;           // newest version that the driver takes; 0 without a driver
  int devices;          // usable devices
  std::string problem;  // why there is no usable device; empty if there is one
};

CudaInfo cuda_info();

// Makes a device the current one of this thread for the module's own copy of the runtime, which need not know what
// torch's has chosen.
void cuda_use_device(int index);

// Why kernels cannot run on the current device: a driver too old for the module, or no machine code for the GPU. Empty
// if they can.
std::string cuda_problem();

}  // namespace snnlib
