// A convolution without neurons, one matrix per tap of the kernel, driven by events: the launchers that the bindings
// call. Frames are channels-last.
//
//   I[y, x, o]      = sum over taps (ky, kx) and c of W[ky, kx, c, o] in[y', x', c]
//   dL/dW[k, c, o]  = sum over pixels of in[y', x', c] dL/dI[y, x, o]
//   y' = y stride + ky dilation - padding,   x' likewise
//
// The weights of one tap stay in the L2 cache while all pixels of a block meet them, so that these kernels are for
// weights that do not fit there as a whole. A fully connected layer is a kernel of one tap on images of one pixel.
// Kernels of neurons walk the rows of one image instead (events/conv.h); both add in the order (ky, kx, c).
#pragma once

#include "snnlib/core/dtype.h"
#include "snnlib/core/platform.h"

namespace snnlib {

struct TapShape {
  int64_t frames, in_channels, in_height, in_width, channels, height, width, kernel_h, kernel_w;
  int64_t stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w;
  SNNLIB_FIELDS(frames, in_channels, in_height, in_width, channels, height, width, kernel_h, kernel_w, stride_h,
                stride_w, padding_h, padding_w, dilation_h, dilation_w)

  int64_t taps() const { return kernel_h * kernel_w; }
  // Where input rows and columns under a tap begin: output (y, x) sees input (y stride_h + down, x stride_w + right).
  int64_t down(int64_t tap) const { return tap / kernel_w * dilation_h - padding_h; }
  int64_t right(int64_t tap) const { return tap % kernel_w * dilation_w - padding_w; }
};

struct TapCurrentsArgs {
  TapShape shape;
  const float* input;  // [frames][in_height][in_width][in_channels]
  // Channels in pieces, whole groups of kGroup: [channels / piece][kernel_h][kernel_w][in_channels][piece], ends in
  // zeros.
  const float* weight;
  int64_t piece;
  float* current;  // [frames][height][width][channels]
  Executor executor;
  SNNLIB_FIELDS(shape, input, weight, piece, current, executor)

  int64_t pieces() const { return (shape.channels + piece - 1) / piece; }
};

struct TapWeightsArgs {
  TapShape shape;
  const float* input;
  const float* signal;  // dL/dI, [frames][height][width][channels]
  float* grad_weight;   // [kernel_h][kernel_w][in_channels][channels]
  Executor executor;
  SNNLIB_FIELDS(shape, input, signal, grad_weight, executor)
};

struct TapKernels {
  void (*currents)(const TapCurrentsArgs&);
  void (*weights)(const TapWeightsArgs&);
};

// Currents in that order of addition on CUDA, from frames [frames / batch][batch] of any layout. Weights and currents
// are float32.
struct EventCurrentsArgs {
  TapShape shape;
  DType dtype;  // of the input
  int64_t batch;
  const void* input;
  int64_t strides[5];   // of the input, in elements: of its two outer axes, channels, rows and columns
  const float* weight;  // [kernel_h][kernel_w][in_channels][channels]
  float* output;        // [frames][height][width][channels]
  Executor executor;
  SNNLIB_FIELDS(shape, dtype, batch, input, strides, weight, output, executor)
};

struct EventKernels {
  void (*currents)(const EventCurrentsArgs&);
};

}  // namespace snnlib
