// Rows of neurons in a layer: a step forward with its record, and the adjoint.
//
// SRM neurons. Forward keeps a bit per neuron and step; per spike, in the order of the bits,
// slope = min(1/delta_u, clamp) and gain = 1/delta_ut, each 0 where the neuron has no rise.
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
//
// Neurons of one state (neurons/linear.h). A forward pass keeps entries, the steps at which the adjoint does not decay
// freely. With a surrogate of compact support these are the steps near the threshold and the spikes, otherwise all. An
// entry keeps u, the distance of the membrane from the threshold, with several levels the membrane.
//
// Backward, the adjoint lam = dL/dh decays freely from step to step and changes at entries by an amount m,
//
//   g[t] = decay lam[t+1],   lam[t] = slope q + carry g[t],   m[t] = lam[t] - g[t]
//   g of the last step is what comes back to the state after it
//   carry = (keep where s = 1, else 1) + slope (keep h + offset - h) (reset not detached)
//
// Neurons with exact times (neurons/credit.h). Forward keeps a bit per neuron and step and (rise, passed) of every
// spike. Backward, (G_v, G_i) decay freely from step to step, and a spike changes them by
//
//   m[t] = passed G_v + q rise - G_v,   n[t] = -G_i at a spike that resets the current
//
// With input traces that run forward without resets, I <- decay_s I + gain_s x and U <- decay_m U + gain_m I, a spike
// adds dW += m U[t] + n I[t]; with fields over the inputs backwards in time, M <- decay_m M + W^T m and
// I <- decay_s I + W^T n + gain_m M, dL/dx[t] = gain_s I[t].
//
// slope is the surrogate's derivative at u and h = u + threshold; from neurons/linear.h with one state.
#pragma once

#include "snnlib/core/threads.h"
#include "snnlib/layer/layer.h"

namespace snnlib {
namespace SNNLIB_ISA {

// What a vector of neurons makes of one step: spikes, and of each entry two numbers that may be kept. `quiet`: no spike
// and no entry.
struct RowStep {
  Floats spike, first, second;
  uint32_t entries;
  bool quiet;
};

// One step of a row of `n` neurons, `step(place)` of each vector of them. Writes 0/1 to `spikes`, or with Add adds it
// to what is there, and where something is kept writes the bits of the entries of the row and their numbers, the second
// ones with Two; returns how many there are. With Count the spikes of every lane are added to `fired`. All rows may be
// read and written up to padded(n).
template <Keep kKeep, bool Add, bool Count, bool Two, class F>
inline int64_t step_vectors(int64_t n, float* spikes, uint16_t* bits, float* first, float* second, Floats* fired,
                            const F& step) {
  int64_t count = 0;
  Floats total = Count ? *fired : Floats{};
  for (int64_t i = 0; i < n; i += kGroup) {
    uint32_t group = 0;
    for (int64_t j = i; j < i + kGroup; j += kLanes) {
      const RowStep out = step(j);
      if (kKeep == Keep::kFew && out.quiet) {
        if (!Add) store(spikes + j, Floats{});
        continue;
      }
      store(spikes + j, Add ? load(spikes + j) + out.spike : out.spike);
      if (Count) {
        if (j + kLanes <= n) {
          total += out.spike;
        } else {
          total += first_lanes(out.spike, n - j);
        }
      }
      if (kKeep == Keep::kNothing) continue;
      uint32_t lanes = out.entries;
      if (j + kLanes > n) lanes &= j < n ? (uint32_t(1) << (n - j)) - 1 : 0;
      store_selected(first + count, out.first, lanes);
      if (Two) store_selected(second + count, out.second, lanes);
      count += count_bits(lanes);
      group |= lanes << (j - i);
    }
    if (kKeep != Keep::kNothing) bits[i / kGroup] = uint16_t(group);
  }
  if (Count) *fired = total;
  return count;
}

// State of a band of neurons, u, s and g apart; see `step_vectors`.
template <Keep kKeep, bool Add, bool Count>
SNNLIB_NOINLINE int64_t srm_row(const float* current, const float* threshold, float* u, float* s, float* g, int64_t n,
                                const SrmDecay<float>& k, float* spikes, uint16_t* bits, float* delta_u,
                                float* delta_ut, Floats* fired) {
  return step_vectors<kKeep, Add, Count, true>(n, spikes, bits, delta_u, delta_ut, fired, [&](int64_t j) -> RowStep {
    SrmState<Floats> state{load(u + j), load(s + j), load(g + j)};
    const Floats limit = load(threshold + j);
    if (kKeep == Keep::kFew) {
      const SrmState<Floats> charged = srm_charge(state, load(current + j), k);
      // None of them fires, and all are finite.
      if (lanes_below(charged.u + (charged.u - charged.u), limit) == kAllLanes) {
        store(u + j, charged.u);
        store(s + j, charged.s);
        store(g + j, charged.g);
        return {Floats{}, Floats{}, Floats{}, 0, true};
      }
    }
    const SrmStep<Floats> out = srm_step(state, load(current + j), limit, k);
    store(u + j, state.u);
    store(s + j, state.s);
    store(g + j, state.g);
    const uint32_t entries = kKeep == Keep::kNothing ? 0 : lanes_at_least(out.u, limit);
    return {out.spike, out.delta_u, out.delta_ut, entries, false};
  });
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

// Coefficients of a row of neurons, whose channels are next to each other.
template <class Coefficients>
class RowCoefficients {
 public:
  static constexpr int64_t kRows = sizeof(Coefficients) / sizeof(Floats);

  template <class Neuron>
  void load(const Neuron& neuron, int64_t row) {
    shared_ = neuron.period == 1;
    const int64_t vectors = shared_ ? 1 : padded(row) / kLanes;
    Coefficients* all = coefficients_.reserve(vectors);
    for (int64_t v = 0; v < vectors; ++v) {
      for (int64_t i = 0; i < kRows; ++i) {
        float lane[kLanes];
        for (int64_t j = 0; j < kLanes; ++j)
          lane[j] = neuron.rows[i * neuron.period + (v * kLanes + j) % neuron.period];
        std::memcpy(&all[v].row[i], lane, sizeof lane);
      }
    }
  }

  bool shared() const { return shared_; }
  // Of the vector that starts at this place of the row.
  const Coefficients& at(int64_t place) const { return coefficients_.data()[shared_ ? 0 : place / kLanes]; }
  float of(int row, int64_t place) const {
    float lane[kLanes];
    std::memcpy(lane, &at(place).row[row], sizeof lane);
    return lane[shared_ ? 0 : place % kLanes];
  }

 private:
  Scratch<Coefficients> coefficients_;
  bool shared_ = true;
};

using LinearRowCoefficients = RowCoefficients<LinearCoefficients<1, Floats>>;
using ExactRowCoefficients = RowCoefficients<SynapseCoefficients<Floats>>;

// See `step_vectors`; a spike keeps its rise and what it passes on.
template <bool All, Keep kKeep, bool Add, bool Count>
SNNLIB_NOINLINE int64_t exact_row(const float* current, const ExactRowCoefficients& coefficients,
                                  const SynapseFlags& flags, float* v, float* synapse, float* left, int64_t n,
                                  float* spikes, uint16_t* bits, float* rises, float* passed, Floats* fired) {
  const Floats zero = Floats{}, one = zero + 1.0f;
  return step_vectors<kKeep, Add, Count, true>(n, spikes, bits, rises, passed, fired, [&](int64_t j) -> RowStep {
    const SynapseCoefficients<Floats>& k = coefficients.at(j);
    NeuronState<2, Floats> state{{load(v + j), load(synapse + j)}, zero, flags.refractory ? load(left + j) : zero};
    const Stepped<2, Floats> step = SpikeTimeNeuron<All>::charge_and_fire(state, load(current + j), k, flags);
    store(v + j, state.y[0]);
    store(synapse + j, state.y[1]);
    if (flags.refractory) store(left + j, state.left);
    const uint32_t entries = kKeep == Keep::kNothing ? 0 : lanes_at_least(step.spike, one);
    if (!entries && kKeep != Keep::kMany) return {step.spike, zero, zero, 0, false};
    using Credit = SpikeTime<All>;
    const Floats rise = Credit::rise(Credit::delta(step), k);
    return {step.spike, rise, Credit::passed(step.h[1], rise, k), entries, false};
  });
}

// What an entry keeps of c . h: its distance from the threshold, from which it cannot be found again but by rounding;
// with several levels itself.
inline Floats linear_kept(Floats level, const LinearCoefficients<1, Floats>& k, const LinearFlags& flags) {
  return flags.levels == 1 ? level - k.row[LinearRows<1>::threshold] : level;
}

// See `step_vectors` and `linear_kept`.
template <Keep kKeep, bool Add, bool Count>
SNNLIB_NOINLINE int64_t linear_row(const float* current, const LinearRowCoefficients& coefficients,
                                   const LinearFlags& flags, float* v, float* left, int64_t n, float* spikes,
                                   uint16_t* bits, float* distance, Floats* fired) {
  using R = LinearRows<1>;
  const Floats zero = Floats{}, one = zero + 1.0f;
  const bool compact = is_compact(flags.surrogate), rests = flags.refractory != 0;
  const bool plain = !flags.rectified && !flags.fixed_point && !rests, graded = flags.levels != 1;
  const bool skims = kKeep == Keep::kFew && compact && plain;
  // Where the surrogate of graded neurons has its first center, and what is safely below their first spike.
  const bool lower = graded && flags.rounds && flags.spread != SurrogateSpread::kFlat;
  const float center = lower ? 0.5f : 1.0f, below = flags.rounds ? 0.49f : 0.99f;
  return step_vectors<kKeep, Add, Count, false>(n, spikes, bits, distance, nullptr, fired, [&](int64_t j) -> RowStep {
    const LinearCoefficients<1, Floats>& k = coefficients.at(j);
    LinearState<1, Floats> state{{load(v + j)}, zero, rests ? load(left + j) : zero};
    if (skims) {
      Floats h[1];
      linear_charge<1>(state.y, load(current + j), k, h);
      // All are below the support of the surrogate and below the first spike, and all are finite.
      const Floats threshold = k.row[R::threshold];
      const Floats z = (h[0] - threshold * center) * k.row[R::scale] + (h[0] - h[0]);
      if (lanes_below(z, zero - one) == kAllLanes && (!graded || lanes_below(h[0], threshold * below) == kAllLanes)) {
        store(v + j, linear_floor<1>(h[0], k));
        return {zero, zero, zero, 0, true};
      }
    }
    const auto out = linear_step<1, false>(state, load(current + j), k, flags, 1.0f);
    store(v + j, state.y[0]);
    if (rests) store(left + j, state.left);
    if (kKeep == Keep::kNothing) return {out.spike, zero, zero, 0, false};
    const Floats z = magnitude(linear_distance<1>(out.h[0], k, flags, 1.0f) * k.row[R::scale]);
    const uint32_t near = lanes_at_least(out.spike, one) | lanes_at_least(one, z);
    return {out.spike, linear_kept(out.h[0], k, flags), zero, compact ? near : kAllLanes, false};
  });
}

// Factor of the adjoint from one step to the one before.
inline float linear_decay(const LinearNeuron& neuron) {
  return neuron.flags.through_time ? neuron.rows[LinearRows<1>::a(0, 0) * neuron.period] : 0.0f;
}

class LinearAdjoint {
 public:
  // Rows `rows` of neurons of sample `n`.
  void start(const LayerRecord& a, int64_t n, const Rows& rows) {
    neuron_ = &a.linear;
    rows_ = rows;
    row_ = a.shape.row();
    coefficients_.load(a.linear, row_);
    lam_.zeroed(rows.count() * padded(row_));
    for (int64_t y = rows.first; a.grad_state && y < rows.last; ++y) {
      std::memcpy(lam(y), a.grad_state_row(0, n, y), size_t(row_) * sizeof(float));
    }
    last_step_ = rows.count();
    slope_.reserve(padded(row_) + kGroup);
    carry_.reserve(padded(row_) + kGroup);
    amount_.reserve(padded(row_) + kGroup);
  }

  // Goes one step back in row y. `amounts` gets m of every entry.
  SNNLIB_NOINLINE const float* step(int64_t y, const SpikeRow& entries) {
    float* lam = this->lam(y);
    if (last_step_ > 0) {
      --last_step_;
    } else {
      scale(lam, padded(row_), linear_decay(*neuron_));
    }
    const bool all = entries.count == row_;
    all ? weigh<true>(entries) : weigh<false>(entries);
    const float *slope = slope_.data(), *carry = carry_.data();
    float* amount = amount_.data();
    if (all) {
      for (int64_t i = 0; i < padded(row_); i += kLanes) {
        const Floats g = load(lam + i), q = i + kLanes > row_ ? tail(entries.q + i, row_ - i) : load(entries.q + i);
        const Floats now = load(slope + i) * q + load(carry + i) * g;
        store(amount + i, now - g);
        store(lam + i, now);
      }
    } else {
      for (int64_t i = 0; i < entries.count; ++i) {
        const int32_t place = entries.places[i];
        const float g = lam[place], now = slope[i] * entries.q[place] + carry[i] * g;
        amount[i] = now - g;
        lam[place] = now;
      }
    }
    return lam;
  }

  const float* amounts() const { return amount_.data(); }

  // After the first step, what comes back to row y of the state before it. Call it once.
  const float* before(int64_t y) {
    if (last_step_ == 0) scale(lam(y), padded(row_), linear_decay(*neuron_));
    return lam(y);
  }

 private:
  using Coefficients = LinearRows<1>;

  float* lam(int64_t y) const { return lam_.data() + (y - rows_.first) * padded(row_); }

  static Floats tail(const float* p, int64_t count) { return load_lanes<float>(p, count); }

  // slope and carry of all entries from their u; `All`: entry i is at place i.
  template <bool All>
  void weigh(const SpikeRow& entries) {
    const LinearFlags& flags = neuron_->flags;
    const Floats zero = Floats{}, one = zero + 1.0f;
    for (int64_t i = 0; i < entries.count; i += kLanes) {
      LinearCoefficients<1, Floats> own;
      const bool gathered = !coefficients_.shared() && !All;
      if (gathered) {
        constexpr int kUsed[] = {Coefficients::keep, Coefficients::offset, Coefficients::threshold,
                                 Coefficients::height, Coefficients::scale};
        for (int row : kUsed) {
          float lane[kLanes] = {};
          for (int64_t j = 0; j < kLanes && i + j < entries.count; ++j) {
            lane[j] = coefficients_.of(row, entries.places[i + j]);
          }
          std::memcpy(&own.row[row], lane, sizeof lane);
        }
      }
      const auto& k = gathered ? own : coefficients_.at(i);
      const Floats u = load_lanes<float>(entries.slope + i, entries.count - i);
      const bool graded = flags.levels != 1;
      const Floats h[1] = {graded ? u : u + k.row[Coefficients::threshold]};
      const Floats distance = graded ? linear_distance<1>(u, k, flags, 1.0f) : u;
      const Floats slope = linear_slope<1>(distance, k, flags, 1.0f);
      const auto fired = graded ? linear_firing<1>(u, k, flags, 1.0f).fired : linear_fires(u, flags);
      Floats carry = fired ? k.row[Coefficients::keep] : one;
      if (!flags.detach_reset) {
        carry = carry + slope * (linear_reset<1>(h, 0, one, k) - h[0]);
      }
      store(slope_.data() + i, slope);
      store(carry_.data() + i, carry);
    }
  }

  const LinearNeuron* neuron_ = nullptr;
  Rows rows_ = {};
  int64_t row_ = 0;
  int64_t last_step_ = 0;  // rows of the last step that are still to come
  LinearRowCoefficients coefficients_;
  Scratch<float> lam_, slope_, carry_, amount_;
};

// The adjoint of neurons with exact times, whose decays and gains all channels share.
class ExactAdjoint {
 public:
  // Rows `rows` of neurons.
  void start(const LayerRecord& a, const Rows& rows) {
    a_ = &a;
    rows_ = rows;
    stored_ = padded(a.shape.row());
    carried_.zeroed(2 * rows.count() * stored_);
    signal_.reserve(stored_);
    amounts_.reserve(2 * (stored_ + kGroup));
  }

  // Goes one step back in row y and returns dL/dcurrent, all of it if it is wanted.
  SNNLIB_NOINLINE const float* step(int64_t y, const SpikeRow& spikes, bool wanted) {
    const bool resets = a_->exact.flags.reset_current;
    float *v = carried_.data() + 2 * (y - rows_.first) * stored_, *s = v + stored_;
    float *to_v = amounts_.data(), *to_s = to_v + stored_ + kGroup;
    for (int64_t i = 0; i < spikes.count; ++i) {
      const int32_t place = spikes.places[i];
      const float g_v = v[place],
                  now = SpikeTime<true>::at_spike(g_v, spikes.q[place], spikes.slope[i], spikes.gain[i]);
      to_v[i] = now - g_v;
      to_s[i] = -s[place];
      v[place] = now;
      if (resets) s[place] = 0.0f;
    }
    const Floats zero = Floats{}, decay_m = zero + row(SynapseRows::decay_m),
                 decay_s = zero + row(SynapseRows::decay_s);
    const float gain_m = row(SynapseRows::gain_m), gain_s = row(SynapseRows::gain_s);
    for (int64_t i = 0; i < stored_; i += kLanes) {
      const Floats m = load(v + i), g = load(s + i) + gain_m * m;
      if (wanted) store(signal_.data() + i, gain_s * g);
      store(v + i, decay_m * m);
      store(s + i, decay_s * g);
    }
    return signal_.data();
  }

  // What the spikes of the last step changed dL/dv by, and where they reset the current dL/di; else null.
  const float* to_membrane() const { return amounts_.data(); }
  const float* to_current() const {
    return a_->exact.flags.reset_current ? amounts_.data() + stored_ + kGroup : nullptr;
  }

 private:
  float row(int i) const { return a_->exact.rows[i * a_->exact.period]; }

  const LayerRecord* a_ = nullptr;
  Rows rows_ = {};
  int64_t stored_ = 0;
  Scratch<float> carried_, signal_, amounts_;
};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
