// dL/dstate of SRM neurons before the first step: what their earliest spike, or without one the state after the last
// step, sends back (layer/spike_credit.h). Before that spike nothing changes but by decay, so a neuron's (u, s, g)
// take all their steps back at once, in registers. Each step rounds as in a walk through time.
#pragma once

#include "snnlib/layer/bands.h"
#include "snnlib/layer/spike_credit.h"

namespace snnlib {
namespace SNNLIB_ISA {

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
