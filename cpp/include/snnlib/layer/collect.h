// Weight gradients of a convolution from its output spikes: each spike adds the patch [kx][c] of two input traces that
// its kernel row sees to the weights [kx][c] of its channel,
//
//   grad[row ...] += u trace_u[at ...] + s trace_s[at ...]
//
// with what layer/spike_credit.h says the spike takes from them, u and s.
#pragma once

#include "snnlib/core/simd.h"

namespace snnlib {
namespace SNNLIB_ISA {

// An output spike with what it takes from the two input traces.
struct TraceSample {
  int32_t at;
  uint32_t row;
  float u, s;
};

// Traces of one pixel stay in registers for all of its spikes.
template <int V>
SNNLIB_NOINLINE void collect_fixed(const TraceSample* sample, const TraceSample* end, const float* trace_u,
                                   const float* trace_s, float* grad) {
  while (sample != end) {
    const int32_t at = sample->at;
    Floats u[V], s[V];
    for (int v = 0; v < V; ++v) u[v] = load(trace_u + at + v * kLanes);
    for (int v = 0; v < V; ++v) s[v] = load(trace_s + at + v * kLanes);
    do {
      float* g = grad + sample->row;
      for (int v = 0; v < V; ++v) store(g + v * kLanes, load(g + v * kLanes) + (sample->u * u[v] + sample->s * s[v]));
      ++sample;
    } while (sample != end && sample->at == at);
  }
}

// The same for patches of up to kGroup floats and all kernel rows at once: with so little to add, the loop itself
// counts. Rows of traces and of weights lie `trace_row` and `grad_row` apart.
SNNLIB_NOINLINE inline void collect_narrow(const TraceSample* sample, const TraceSample* end, const float* trace_u,
                                           const float* trace_s, int64_t trace_row, float* grad, int64_t grad_row,
                                           int64_t kernel_rows) {
  for (; sample != end; ++sample) {
    const float *u = trace_u + sample->at, *s = trace_s + sample->at;
    float* g = grad + sample->row;
    for (int64_t ky = 0; ky < kernel_rows; ++ky, u += trace_row, s += trace_row, g += grad_row) {
      for (int64_t i = 0; i < kGroup; i += kLanes) {
        store(g + i, load(g + i) + (sample->u * load(u + i) + sample->s * load(s + i)));
      }
    }
  }
}

// For patches of `length` floats and what fills the last vector.
inline void collect(const TraceSample* begin, const TraceSample* end, const float* trace_u, const float* trace_s,
                    float* grad, int64_t length) {
  const auto run = [&](auto kernel) {
    return [=](int64_t i) { kernel(begin, end, trace_u + i, trace_s + i, grad + i); };
  };
  // Two traces a vector: twice four is what fits.
  const auto twice = [&](int64_t i) {
    run(collect_fixed<4>)(i);
    run(collect_fixed<4>)(i + 4 * kLanes);
  };
  in_registers(length, twice, run(collect_fixed<4>), run(collect_fixed<2>), run(collect_fixed<1>));
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
