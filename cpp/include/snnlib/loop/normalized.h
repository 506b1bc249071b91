// Neurons that normalise their currents on reading, as batch norm in front of them does, on CUDA: the launchers that
// the bindings call. Per channel, with w = (current - mean) / sqrt(variance + epsilon) and g = dL/dz:
//
//   z = factor weight w + bias
//   dL/dcurrent = factor weight / sqrt(variance + epsilon) (g - mean of g - w mean of (g w))
//
// A backward pass runs the neurons twice: for the sums of both means, then for the gradient. It stores no gradient in
// between. Currents are channels-last.
#pragma once

#include "snnlib/loop/scan.h"

namespace snnlib {

struct Normalization {
  int64_t channels;
  const float *mean, *variance;  // [channels]
  const float *weight, *bias;    // [channels]; null: ones and zeros
  float epsilon, factor;
  // Sums of the first backward pass: of g and of g w of every thread, [2][threads][channels of a thread]; else null.
  float* sums;
  // Means of g and of g w for the second, [2][channels]; null, zero: mean and variance are constants.
  const float* means;
  SNNLIB_FIELDS(channels, mean, variance, weight, bias, epsilon, factor, sums, means)
};

// Neurons of one state in float32, neither quadratic nor refractory, that reset in the same step. Without planes their
// spikes are not pooled.
template <class Args>
struct Normalized : Args {
  Normalization input;
  SNNLIB_MORE_FIELDS(Args, input)
};

struct NormalizedKernels {
  void (*forward)(const Normalized<ScanPoolForwardArgs>&);
  void (*backward)(const Normalized<ScanPoolBackwardArgs>&);
};

}  // namespace snnlib
