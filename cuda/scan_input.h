// How a scan reads its currents: as they are, or normalised per channel by a thread whose neurons have one channel.
#pragma once

#include <cmath>

#include "launch.h"
#include "snnlib/loop/normalized.h"

namespace snnlib {
namespace cuda {

struct AsTheyAre {};

// Without a pool: scan.cu.
void normalized_forward(const ScanForwardArgs& a, const Normalization& input);
void normalized_backward(const ScanBackwardArgs& a, const Normalization& input);

// After how many neurons of a step the channels of a thread repeat.
inline int64_t period_of(const ScanArgs& a, AsTheyAre) { return a.period; }
inline int64_t period_of(const ScanArgs&, const Normalization& input) { return input.channels; }

template <class Input, class S>
struct ScanInput {
  static constexpr bool kNormalizes = false;

  __device__ ScanInput(const Input&, int64_t) {}
  __device__ S read(S x) const { return x; }
  __device__ S back(S grad, S) { return grad; }
  __device__ void end_group() {}
  __device__ bool stores() const { return true; }
  __device__ void store_sums(int64_t, int64_t) const {}
};

template <>
struct ScanInput<Normalization, float> {
  static constexpr bool kNormalizes = true;
  Normalization input;
  float mean, inverse, gain, bias, mean_grad, mean_product;
  // Sums of a group of steps, and in double of all before it.
  float sum = 0, product = 0;
  double sums = 0, products = 0;

  __device__ ScanInput(const Normalization& given, int64_t channel) : input(given) {
    mean = input.mean[channel];
    inverse = 1.0f / sqrtf(input.variance[channel] + input.epsilon);
    gain = input.factor * (input.weight ? input.weight[channel] : 1.0f);
    bias = input.bias ? input.bias[channel] : 0.0f;
    mean_grad = input.means ? input.means[channel] : 0.0f;
    mean_product = input.means ? input.means[input.channels + channel] : 0.0f;
  }
  __device__ float whitened(float x) const { return (x - mean) * inverse; }
  __device__ float read(float x) const { return gain * whitened(x) + bias; }
  // dL/dcurrent for the gradient of what the neuron has read, which is added to the sums.
  __device__ float back(float grad, float x) {
    const float w = whitened(x);
    sum += grad;
    product += grad * w;
    return gain * inverse * (grad - mean_grad - w * mean_product);
  }
  __device__ void end_group() {
    sums += double(sum);
    products += double(product);
    sum = product = 0;
  }
  __device__ bool stores() const { return !input.sums; }
  __device__ void store_sums(int64_t thread, int64_t threads) const {
    if (!input.sums) return;
    input.sums[thread] = float(sums);
    input.sums[threads + thread] = float(products);
  }
};

}  // namespace cuda
}  // namespace snnlib
