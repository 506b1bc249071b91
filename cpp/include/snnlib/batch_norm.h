// Batch normalisation over the rows of a matrix: the launchers that the bindings call.
#pragma once

#include "snnlib/core/platform.h"

namespace snnlib {

// Values [rows, channels], as channels-last memory has the frames of a sequence.
struct MomentsArgs {
  int64_t rows, channels;
  const float* values;
  // [channels] each; the variance is that of the rows, divided by their number.
  double *mean, *variance;
  Executor executor;
  SNNLIB_FIELDS(rows, channels, values, mean, variance, executor)
};

// With d = value - mean, per channel:
//   sums = (sum of grad, sum of grad d)
//   grad <- grad - sum grad / rows - d (sum of grad d) / (rows (variance + epsilon))
struct NormalizeBackwardArgs {
  int64_t rows, channels;
  const float* values;
  const double *mean, *variance;
  double epsilon;
  float* grad;
  // [2, channels].
  double* sums;
  Executor executor;
  SNNLIB_FIELDS(rows, channels, values, mean, variance, epsilon, grad, sums, executor)
};

struct BatchNormKernels {
  void (*moments)(const MomentsArgs&);
  void (*backward)(const NormalizeBackwardArgs&);
};

}  // namespace snnlib
