// Neurons with exact spike times as a CUDA thread would walk them: one scalar neuron after the other. Reads and writes
// the numbers of test_exact_scalar.py by files.
#include <cstdio>
#include <vector>

#include "snnlib/neurons/credit.h"

using namespace snnlib;
using Coefficients = SNNLIB_ISA::SynapseCoefficients<float>;

constexpr int kSteps = 40, kNeurons = 300;

// Spikes and dL/dcurrent of neuron n; arrays are [steps][neurons].
template <class N>
SNNLIB_HD void walk(int n, const float* x, const float* q, Coefficients k, const SynapseFlags& flags, float* spikes,
                    float* grad) {
  SNNLIB_ISA::NeuronState<2, float> state = {};
  float kept[kSteps][N::kKept], left[kSteps];
  for (int t = 0; t < kSteps; ++t) {
    left[t] = state.left;
    spikes[t * kNeurons + n] = N::template step<true, float>(state, x[t * kNeurons + n], k, flags, kept[t]);
  }
  SNNLIB_ISA::NeuronCarry<2, float> carry = {};
  for (int t = kSteps - 1; t >= 0; --t) {
    const int at = t * kNeurons + n;
    grad[at] = N::template back<float>(carry, q[at], kept[t], x[at], left[t], k, flags, k);
  }
}

// Both kinds for CUDA, too.
template SNNLIB_HD void walk<SNNLIB_ISA::SpikeTimeNeuron<true>>(int, const float*, const float*, Coefficients,
                                                                const SynapseFlags&, float*, float*);
template SNNLIB_HD void walk<SNNLIB_ISA::SpikeTimeNeuron<false>>(int, const float*, const float*, Coefficients,
                                                                 const SynapseFlags&, float*, float*);

int main(int, char** names) {
  std::vector<float> in(2 * kSteps * kNeurons + SynapseRows::count + 4), out(2 * kSteps * kNeurons);
  std::FILE* file = std::fopen(names[1], "rb");
  if (std::fread(in.data(), sizeof(float), in.size(), file) != in.size()) return 1;
  std::fclose(file);
  const float *x = in.data(), *q = x + kSteps * kNeurons, *rows = q + kSteps * kNeurons,
              *options = rows + SynapseRows::count;
  Coefficients k;
  for (int i = 0; i < SynapseRows::count; ++i) k.row[i] = rows[i];
  const SynapseFlags flags = {options[0] > 0, options[1] > 0, options[2] > 0, false, int64_t(options[3])};
  const auto walk_all =
      flags.reset_current ? walk<SNNLIB_ISA::SpikeTimeNeuron<true>> : walk<SNNLIB_ISA::SpikeTimeNeuron<false>>;
  for (int n = 0; n < kNeurons; ++n) walk_all(n, x, q, k, flags, out.data(), out.data() + kSteps * kNeurons);
  file = std::fopen(names[2], "wb");
  std::fwrite(out.data(), sizeof(float), out.size(), file);
  return std::fclose(file);
}
