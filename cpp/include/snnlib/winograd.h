// The adjoint of a dense 3x3 convolution by Winograd's algorithm: the launcher that the binding calls. Frames are
// channels-last.
//
//   out[y, x, c] = sum over taps (ky, kx) and o of W[o, ky, kx, c] signal[y + padding - ky, x + padding - kx, o]
//
// A tile of 2x2 outputs sees 4x4 signals. Both are transformed by additions, the weights by additions and halving, so
// that a tile takes 16 products for each pair of channels instead of 36:
//
//   M[k] = V[k] U[k] for the 16 components k, V = B' S B, U = G W G', out = A' M A
//
// Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016.
#pragma once

#include "snnlib/core/platform.h"

namespace snnlib {

// Padding is that of the convolution: 0 to 2.
struct WinogradShape {
  int64_t frames, channels, height, width;  // of the signal
  int64_t out_channels, out_height, out_width, padding;
  SNNLIB_FIELDS(frames, channels, height, width, out_channels, out_height, out_width, padding)
};

struct WinogradArgs {
  WinogradShape shape;
  const float* signal;  // [frames][height][width][channels]
  const float* weight;  // [channels][3][3][out_channels]
  float* out;           // [frames][out_height][out_width][out_channels]
  Executor executor;
  SNNLIB_FIELDS(shape, signal, weight, out, executor)
};

struct WinogradKernels {
  void (*adjoint)(const WinogradArgs&);
};

}  // namespace snnlib
