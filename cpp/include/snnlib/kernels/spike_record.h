// What a forward pass keeps of its spikes, and how gradients are driven by it alone.
//
//   kept       a bit per neuron and step; per spike, in the order of the bits,
//              slope = min(1/delta_u, clamp) and gain = 1/delta_ut, each 0 where the neuron has no rise
//   weights    a[t] of kernels/srm.h only changes at spikes. With input traces that run forward without resets,
//              U <- e_m U + (S + x) r_s, S <- e_s (S + x), a spike at t whose successor fires D steps later adds
//              dW += (A - A' e_m^D) U[t] - A' k(D) S[t],      A = q slope, A' the successor's (0 without one)
//              where k(D) is what a unit of S leaves in U after D steps: k(0) = 0, k(D+1) = e_m k(D) + r_s e_s^D
//   inputs     V <- e_g V backwards in time; a spike adds e_g (C - C' e_g^D) W to its patch of V, C = q gain;
//              dL/dx[t] = x[t] V[t]
//
// Both follow from summing a[t] x[t] and b[t] between two spikes; no dense signal is built.
#pragma once

#include "snnlib/kernels/srm.h"
#include "snnlib/simd.h"

namespace snnlib {
namespace SNNLIB_ISA {

// State of a band of neurons, u, s and g apart. One step writes 0/1 to `spikes`, or with Add adds it to what is there,
// and with Keep writes the bits of the row and the deltas of its spikes; returns their number. All rows may be read and
// written up to padded(n).
template <bool Keep, bool Add>
SNNLIB_NOINLINE int64_t srm_row(const float* current, const float* threshold, float* u, float* s, float* g, int64_t n,
                                const SrmDecay<float>& k, float* spikes, uint16_t* bits, float* delta_u,
                                float* delta_ut) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; i += kGroup) {
    uint32_t group = 0;
    for (int64_t j = i; j < i + kGroup; j += kLanes) {
      SrmState<Floats> state{load(u + j), load(s + j), load(g + j)};
      const Floats limit = load(threshold + j);
      const SrmStep<Floats> out = srm_step(state, load(current + j), limit, k);
      store(u + j, state.u);
      store(s + j, state.s);
      store(g + j, state.g);
      store(spikes + j, Add ? load(spikes + j) + out.spike : out.spike);
      if (Keep) {
        uint32_t lanes = lanes_at_least(out.u, limit);
        if (j + kLanes > n) lanes &= j < n ? (uint32_t(1) << (n - j)) - 1 : 0;
        store_selected(delta_u + count, out.delta_u, lanes);
        store_selected(delta_ut + count, out.delta_ut, lanes);
        count += count_bits(lanes);
        group |= lanes << (j - i);
      }
    }
    if (Keep) bits[i / kGroup] = uint16_t(group);
  }
  return count;
}

// Slopes and gains of `count` spikes from their deltas.
inline void to_slope_and_gain(const float* __restrict delta_u, const float* __restrict delta_ut, int64_t count,
                              float clamp, float* __restrict slope, float* __restrict gain) {
  SNNLIB_SIMD
  for (int64_t i = 0; i < count; ++i) {
    const float rise = 1.0f / delta_u[i], steep = rise < clamp ? rise : clamp;
    const float inverse = 1.0f / delta_ut[i];
    slope[i] = delta_u[i] > 0.0f ? steep : 0.0f;
    gain[i] = delta_ut[i] > 0.0f ? inverse : 0.0f;
  }
}

// Calls f(place) for every set bit of a row of `words` 16-bit words, in ascending order.
template <class F>
inline void for_each_spike(const uint16_t* bits, int64_t words, const F& f) {
  for (int64_t w = 0; w < words; w += 4) {
    uint64_t four = 0;
    std::memcpy(&four, bits + w, words - w < 4 ? size_t(words - w) * 2 : 8);
    for (; four; four &= four - 1) f(w * 16 + lowest_bit(four));
  }
}

inline int64_t count_spikes(const uint16_t* bits, int64_t words) {
  int64_t count = 0;
  for (int64_t w = 0; w < words; ++w) count += count_bits(bits[w]);
  return count;
}

// A neuron's next spike in time, as the way back meets it first.
struct NextSpike {
  float amount;  // A or C; 0 without one
  int32_t step;
};

// Powers by distance: e_m^D, k(D) and e_g^D for D = 0 .. steps.
struct DecayTable {
  float *e_m, *k, *e_g;

  static int64_t floats(int64_t steps) { return 3 * (steps + 1); }
  DecayTable(float* memory, int64_t steps, const SrmConstants& c)
      : e_m(memory), k(memory + steps + 1), e_g(memory + 2 * (steps + 1)) {
    double m = 1, unit = 0, s = 1, g = 1;
    for (int64_t d = 0; d <= steps; ++d) {
      e_m[d] = float(m);
      k[d] = float(unit);
      e_g[d] = float(g);
      unit = c.e_m * unit + c.r_s * s;
      m *= c.e_m;
      s *= c.e_s;
      g *= c.e_g;
    }
  }
};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
