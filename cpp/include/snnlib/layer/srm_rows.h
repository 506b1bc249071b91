// Rows of SRM neurons in a layer: a step forward with what it keeps of its spikes, and what goes back from them.
//
// Forward keeps a bit per neuron and step; per spike, in the order of the bits, slope = min(1/delta_u, clamp) and gain
// = 1/delta_ut, each 0 where the neuron has no rise.
//
// Backward, an output spike adds to the gradients:
//
//   signals    a[t] and b[t] of neurons/srm.h, dense: a neuron carries (u, s) and g, which become (0, A) and C at its
//              spikes. A step back they decay to a = e_m u + r_s s, e_s s and b = e_g g.
//   changes    a and b only change at spikes, so these alone drive the gradients. With input traces that run forward
//              without resets, U <- e_m U + (S + x) r_s, S <- e_s (S + x), a spike at t whose successor fires D steps
//              later adds
//                dW += (A - A' e_m^D) U[t] - A' k(D) S[t],    A = q slope, A' the successor's (0 without one)
//              where k(D) is what a unit of S leaves in U after D steps; and with V <- e_g V backwards in time it adds
//                e_g (C - C' e_g^D) W to its patch of V,      C = q gain,    dL/dx[t] = x[t] V[t]
//   state      what comes back to the state after the last step T - 1, (Gu, Gs, Gg) = dL/d(u, s, g), acts like a
//              successor there: it adds dW += Gu U[T-1] + Gs S[T-1] and e_g Gg W to V, less what a spike at t takes
//              off,
//                dW -= Gu e_m^D U[t] + (Gu k(D) + Gs e_s^D) S[t] and e_g Gg e_g^D W, D = T-1 - t
//              A credit (au, as) of neurons/srm.h is the same in another basis:
//                Gs = au,   Gu = (1 - tau_s/tau_m) au + as
#pragma once

#include "snnlib/core/threads.h"
#include "snnlib/layer/layer.h"

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

inline SrmDecay<float> float_decay(const SrmConstants& c) {
  return {float(c.e_m), float(c.e_s), float(c.e_g), float(c.r_s)};
}

// 1 - tau_s/tau_m
inline float credit_ratio(const SrmConstants& c) { return float(1.0 - (1.0 - c.e_m) / c.r_s); }

// A step back of the signal a of `n` neurons: u becomes a.
SNNLIB_NOINLINE inline void step_back(float* u, float* s, int64_t n, SrmDecay<float> k) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const Floats from_s = load(s + i);
    store(u + i, load(u + i) * k.e_m + from_s * k.r_s);
    store(s + i, from_s * k.e_s);
  }
}

// A row of (au, as) from (Gu, Gs), and back.
SNNLIB_NOINLINE inline void credit_of_state(const float* __restrict grad_u, const float* __restrict grad_s, int64_t n,
                                            float ratio, float* __restrict au, float* __restrict as) {
  SNNLIB_SIMD
  for (int64_t i = 0; i < n; ++i) {
    au[i] = grad_s[i];
    as[i] = grad_u[i] - ratio * grad_s[i];
  }
}
SNNLIB_NOINLINE inline void state_of_credit(const float* __restrict au, const float* __restrict as, int64_t n,
                                            float ratio, float* __restrict grad_u, float* __restrict grad_s) {
  SNNLIB_SIMD
  for (int64_t i = 0; i < n; ++i) {
    grad_u[i] = ratio * au[i] + as[i];
    grad_s[i] = au[i];
  }
}

// The next spike of a neuron: its A or C, and its step.
struct Successor {
  float amount;
  int32_t step;
};

// For neurons that have not fired yet.
inline void no_successors(Scratch<Successor>& successors, int64_t neurons, int64_t steps) {
  Successor* next = successors.reserve(neurons);
  for (int64_t i = 0; i < neurons; ++i) next[i] = {0.0f, int32_t(steps)};
}

// dL/dstate before the first step: what the earliest spike of a neuron, or without one the state after the last step,
// sends back. Before that spike nothing changes but by decay, so a neuron's (u, s, g) take all their steps back at
// once, in registers. Each step rounds as in a walk through time.
class StateGradient {
 public:
  // Output rows `own` of sample `n`.
  void start(const LayerRecord& a, int64_t n, const Rows& own) {
    a_ = &a;
    n_ = n;
    own_ = own;
    row_ = a.shape.row();
    stored_ = padded(row_);
    plane_ = own.count() * stored_;
    float* left = carried_.zeroed(4 * plane_) + 3 * plane_;
    for (int64_t i = 0; i < plane_; ++i) left[i] = float(a.shape.steps);
    for (int64_t y = own.first; a.grad_state && y < own.last; ++y) {
      const float ratio = credit_ratio(a.constants);
      credit_of_state(a.grad_state_row(0, n, y), a.grad_state_row(1, n, y), row_, ratio, row(0, y), row(1, y));
      std::memcpy(row(2, y), a.grad_state_row(2, n, y), size_t(row_) * sizeof(float));
    }
  }

  // The spikes of row y at step t; steps in descending order.
  SNNLIB_NOINLINE void add_row(int64_t t, int64_t y, const SpikeRow& spikes) {
    float *u = row(0, y), *s = row(1, y), *g = row(2, y), *left = row(3, y);
    for (int64_t i = 0; i < spikes.count; ++i) {
      const int32_t place = spikes.places[i];
      u[place] = 0.0f;
      s[place] = spikes.q[place] * spikes.slope[i];
      g[place] = spikes.q[place] * spikes.gain[i];
      left[place] = float(t + 1);
    }
  }

  // Writes `out`, laid out as `grad_state`.
  void finish(float* out) {
    const int64_t image = a_->shape.height * row_, variable = a_->shape.batch * image;
    const float ratio = credit_ratio(a_->constants);
    int64_t i = 0;
    for (; i + kTogether * kLanes <= plane_; i += kTogether * kLanes) go_back<kTogether>(i);
    for (; i < plane_; i += kLanes) go_back<1>(i);
    for (int64_t y = own_.first; y < own_.last; ++y) {
      float* to = out + n_ * image + y * row_;
      state_of_credit(row(0, y), row(1, y), row_, ratio, to, to + variable);
      std::memcpy(to + 2 * variable, row(2, y), size_t(row_) * sizeof(float));
    }
  }

 private:
  // Vectors side by side, as a step of one waits for the one before.
  static constexpr int kTogether = 4;

  // u, s, g and the number of steps back that are left, of row y.
  float* row(int64_t which, int64_t y) const { return carried_.data() + which * plane_ + (y - own_.first) * stored_; }

  // All steps of V vectors of neurons.
  template <int V>
  SNNLIB_NOINLINE void go_back(int64_t at) {
    const SrmDecay<float> k = float_decay(a_->constants);
    float *pu = carried_.data() + at, *ps = pu + plane_, *pg = ps + plane_, *pleft = pg + plane_;
    Floats u[V], s[V], g[V], left[V];
    float most = 0.0f, least = pleft[0];
    bool any = false;
    for (int64_t i = 0; i < V * kLanes; ++i) {
      most = pleft[i] > most ? pleft[i] : most;
      least = pleft[i] < least ? pleft[i] : least;
      any |= pu[i] != 0.0f || ps[i] != 0.0f || pg[i] != 0.0f;
    }
    // Zeros stay zeros.
    if (!any) return;
    for (int v = 0; v < V; ++v) {
      u[v] = load(pu + v * kLanes);
      s[v] = load(ps + v * kLanes);
      g[v] = load(pg + v * kLanes);
      left[v] = load(pleft + v * kLanes);
    }
    int64_t step = 0;
    for (; step < int64_t(least); ++step) {
      for (int v = 0; v < V; ++v) {
        u[v] = u[v] * k.e_m + s[v] * k.r_s;
        s[v] = s[v] * k.e_s;
        g[v] = g[v] * k.e_g;
      }
    }
    for (; step < int64_t(most); ++step) {
      for (int v = 0; v < V; ++v) {
        const auto goes = left[v] > float(step);
        const Floats next = u[v] * k.e_m + s[v] * k.r_s;
        u[v] = goes ? next : u[v];
        s[v] = goes ? s[v] * k.e_s : s[v];
        g[v] = goes ? g[v] * k.e_g : g[v];
      }
    }
    for (int v = 0; v < V; ++v) {
      store(pu + v * kLanes, u[v]);
      store(ps + v * kLanes, s[v]);
      store(pg + v * kLanes, g[v]);
    }
  }

  const LayerRecord* a_ = nullptr;
  Rows own_ = {};
  int64_t n_ = 0, row_ = 0, stored_ = 0, plane_ = 0;
  Scratch<float> carried_;
};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
