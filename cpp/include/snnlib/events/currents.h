// Currents of a convolution in the order of addition of the event-driven kernels of the CPU, on CUDA: the launcher that
// the bindings call.
#pragma once

#include "snnlib/core/call.h"
#include "snnlib/core/dtype.h"

namespace snnlib {

struct EventCurrentsArgs {
  DType dtype;  // of the input; weights and currents are float32
  // Frames lie [outer][batch]; sizes of a frame of inputs and of outputs, and of the kernel.
  int64_t outer, batch;
  int64_t in_channels, in_height, in_width;
  int64_t channels, height, width;
  int64_t kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w;
  const void* input;
  int64_t outer_stride, batch_stride, channel_stride, row_stride, column_stride;  // of the input, in elements
  const float* weight;                                                            // [kernel_h][kernel_w][in][out]
  float* output;                                                                  // [outer][batch][height][width][out]
  Executor executor;
};

namespace cuda {
void event_currents(const EventCurrentsArgs& args);
}  // namespace cuda

}  // namespace snnlib
