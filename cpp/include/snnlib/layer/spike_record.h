// What a forward pass keeps of its spikes: a bit per neuron and step; per spike, in the order of the bits,
// slope = min(1/delta_u, clamp) and gain = 1/delta_ut, each 0 where the neuron has no rise.
#pragma once

#include "snnlib/core/simd.h"
#include "snnlib/neurons/srm.h"

namespace snnlib {
namespace SNNLIB_ISA {

// State of a band of neurons, u, s and g apart. One step writes 0/1 to `spikes`, or with Add adds it to what is there,
// and where something is kept writes the bits of the row and the deltas of its spikes; returns their number. With Count
// the spikes of every lane are added to `fired`. All rows may be read and written up to padded(n).
template <Keep kKeep, bool Add, bool Count>
SNNLIB_NOINLINE int64_t srm_row(const float* current, const float* threshold, float* u, float* s, float* g, int64_t n,
                                const SrmDecay<float>& k, float* spikes, uint16_t* bits, float* delta_u,
                                float* delta_ut, Floats* fired) {
  int64_t count = 0;
  Floats total = Count ? *fired : Floats{};
  for (int64_t i = 0; i < n; i += kGroup) {
    uint32_t group = 0;
    for (int64_t j = i; j < i + kGroup; j += kLanes) {
      SrmState<Floats> state{load(u + j), load(s + j), load(g + j)};
      const Floats limit = load(threshold + j);
      if (kKeep == Keep::kFew) {
        const SrmState<Floats> charged = srm_charge(state, load(current + j), k);
        // None of them fires, and all are finite.
        if (lanes_below(charged.u + (charged.u - charged.u), limit) == kAllLanes) {
          store(u + j, charged.u);
          store(s + j, charged.s);
          store(g + j, charged.g);
          if (!Add) store(spikes + j, Floats{});
          continue;
        }
      }
      const SrmStep<Floats> out = srm_step(state, load(current + j), limit, k);
      store(u + j, state.u);
      store(s + j, state.s);
      store(g + j, state.g);
      store(spikes + j, Add ? load(spikes + j) + out.spike : out.spike);
      if (Count) {
        if (j + kLanes <= n) {
          total += out.spike;
        } else {
          total += first_lanes(out.spike, n - j);
        }
      }
      if (kKeep != Keep::kNothing) {
        uint32_t lanes = lanes_at_least(out.u, limit);
        if (j + kLanes > n) lanes &= j < n ? (uint32_t(1) << (n - j)) - 1 : 0;
        store_selected(delta_u + count, out.delta_u, lanes);
        store_selected(delta_ut + count, out.delta_ut, lanes);
        count += count_bits(lanes);
        group |= lanes << (j - i);
      }
    }
    if (kKeep != Keep::kNothing) bits[i / kGroup] = uint16_t(group);
  }
  if (Count) *fired = total;
  return count;
}

// Slopes and gains of `count` spikes from their deltas.
inline void to_slope_and_gain(const float* __restrict delta_u, const float* __restrict delta_ut, int64_t count,
                              float clamp, float* __restrict slope, float* __restrict gain) {
  SNNLIB_SIMD
  for (int64_t i = 0; i < count; ++i) {
    slope[i] = srm_slope(delta_u[i], clamp, RiseReciprocal());
    gain[i] = srm_gain(delta_ut[i], RiseReciprocal());
  }
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
