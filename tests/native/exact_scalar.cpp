// Neurons with exact spike times as a CUDA thread would walk them: one scalar neuron after the other. Reads and writes
// the numbers of test_exact_scalar.py by files.
#include <cstdio>
#include <vector>

#include "snnlib/neurons/exact.h"

using namespace snnlib;
using snnlib::SNNLIB_ISA::ExactCoefficients;

constexpr int kSteps = 40, kNeurons = 300;

// Spikes and dL/dcurrent of neuron n; arrays are [steps][neurons].
SNNLIB_HD void walk(int n, const float* x, const float* q, const ExactCoefficients<float>& k, const ExactFlags& flags,
                    float* spikes, float* grad) {
  SNNLIB_ISA::ExactState<float> state = {};
  float rise[kSteps], passed[kSteps];
  bool fired[kSteps], acts[kSteps];
  for (int t = 0; t < kSteps; ++t) {
    acts[t] = state.left == 0;
    const auto step = SNNLIB_ISA::exact_step(state, x[t * kNeurons + n], k, flags);
    spikes[t * kNeurons + n] = step.spike;
    fired[t] = step.spike > 0;
    rise[t] = fired[t] ? SNNLIB_ISA::exact_rise(step, k) : 0.0f;
    passed[t] = SNNLIB_ISA::exact_passed(step, rise[t], k, flags);
  }
  SNNLIB_ISA::ExactCarry<float> carry = {};
  for (int t = kSteps - 1; t >= 0; --t) {
    grad[t * kNeurons + n] =
        SNNLIB_ISA::exact_back(carry, q[t * kNeurons + n], rise[t], passed[t], fired[t], acts[t], k, flags);
  }
}

int main(int, char** names) {
  std::vector<float> in(2 * kSteps * kNeurons + ExactRows::count + 4), out(2 * kSteps * kNeurons);
  std::FILE* file = std::fopen(names[1], "rb");
  if (std::fread(in.data(), sizeof(float), in.size(), file) != in.size()) return 1;
  std::fclose(file);
  const float *x = in.data(), *q = x + kSteps * kNeurons, *rows = q + kSteps * kNeurons,
              *options = rows + ExactRows::count;
  ExactCoefficients<float> k;
  for (int i = 0; i < ExactRows::count; ++i) k.row[i] = rows[i];
  const ExactFlags flags = {options[0] > 0, options[1] > 0, options[2] > 0, int64_t(options[3])};
  for (int n = 0; n < kNeurons; ++n) walk(n, x, q, k, flags, out.data(), out.data() + kSteps * kNeurons);
  file = std::fopen(names[2], "wb");
  std::fwrite(out.data(), sizeof(float), out.size(), file);
  return std::fclose(file);
}
