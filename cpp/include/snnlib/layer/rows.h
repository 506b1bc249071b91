// Rows of neurons in a layer: a step forward with its record. The adjoint is in layer/adjoint.h.
//
// Neurons of one or two states (neurons/linear.h). A forward pass keeps entries, the steps at which the adjoint does
// not decay freely. With a surrogate of compact support these are the steps near the threshold and the spikes,
// otherwise all. An entry keeps u, the distance of c . h from the threshold, with several levels c . h.
//
// Neurons whose spikes are moved (neurons/credit.h, neurons/srm.h). Forward keeps a bit per neuron and step and two
// numbers of every spike in the order of the bits: (rise, passed), of SRM neurons (slope, gain) with
// slope = min(1/delta_u, clamp) and gain = 1/delta_ut, each 0 where the neuron has no rise.
#pragma once

#include "snnlib/core/threads.h"
#include "snnlib/layer/layer.h"

namespace snnlib {
namespace SNNLIB_ISA {

// Result of one step of a vector of neurons: spikes, and of each entry two numbers that may be kept. `quiet`: no spike
// and no entry.
struct RowStep {
  Floats spike, first, second;
  uint32_t entries;
  bool quiet;
};

// A step of a row of `n` neurons, `step(place)` of each vector of them. Writes 0/1 to `spikes`, or with Add adds it
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
      // Branches around vectors in which no neuron fires and all are finite.
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

inline SrmDecay<float> srm_decay(const LayerArgs& a) {
  return {a.shared(SrmRows::decay_m), a.shared(SrmRows::decay_s), a.shared(SrmRows::decay_g),
          a.shared(SrmRows::gain_m)};
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
  // Coefficients of the vector that starts at this place of the row.
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

template <int K>
using LinearRowCoefficients = RowCoefficients<LinearCoefficients<K, Floats>>;
using ExactRowCoefficients = RowCoefficients<SynapseCoefficients<Floats>>;

// See `step_vectors`; a spike keeps its rise and what it passes on. `Plain`: the usual options, and coefficients that
// all channels share, which no store can change.
template <bool All, bool Plain, Keep kKeep, bool Add, bool Count>
SNNLIB_NOINLINE int64_t exact_row_of(const float* current, const ExactRowCoefficients& coefficients,
                                     const SynapseFlags& given, float* v, float* synapse, float* left, int64_t n,
                                     float* spikes, uint16_t* bits, float* rises, float* passed, Floats* fired) {
  using Credit = SpikeTime<All>;
  const Floats zero = Floats{}, one = zero + 1.0f;
  const SynapseFlags flags = known_flags<(Plain ? Options::kUsual : Options::kAny)>(given);
  const SynapseCoefficients<Floats> shared = coefficients.at(0);
  return step_vectors<kKeep, Add, Count, true>(n, spikes, bits, rises, passed, fired, [&](int64_t j) -> RowStep {
    const SynapseCoefficients<Floats>& k = Plain ? shared : coefficients.at(j);
    NeuronState<2, Floats> state{{load(v + j), load(synapse + j)}, zero, flags.refractory ? load(left + j) : zero};
    if (kKeep == Keep::kFew && !flags.refractory) {
      Floats h[2];
      Synapse<All>::charge(state.y, load(current + j), k, h);
      // Branches around vectors in which no neuron fires and all are finite.
      if (lanes_below(h[0] + (h[0] - h[0]), k.row[SynapseRows::threshold]) == kAllLanes) {
        store(v + j, h[0]);
        store(synapse + j, h[1]);
        return {zero, zero, zero, 0, true};
      }
    }
    const Stepped<2, Floats> step = SpikeTimeNeuron<All>::charge_and_fire(state, load(current + j), k, flags);
    store(v + j, state.y[0]);
    store(synapse + j, state.y[1]);
    if (flags.refractory) store(left + j, state.left);
    const uint32_t entries = kKeep == Keep::kNothing ? 0 : lanes_at_least(step.spike, one);
    if (!entries && kKeep != Keep::kMany) return {step.spike, zero, zero, 0, false};
    const Floats rise = Credit::rise(Credit::delta(step), k);
    return {step.spike, rise, Credit::passed(step.h[1], rise, k), entries, false};
  });
}

template <Keep kKeep, bool Add, bool Count>
int64_t exact_row(const float* current, const ExactRowCoefficients& coefficients, const SynapseFlags& flags, float* v,
                  float* synapse, float* left, int64_t n, float* spikes, uint16_t* bits, float* rises, float* passed,
                  Floats* fired) {
  const bool plain = coefficients.shared() && !flags.strict && !flags.refractory;
  const auto run =
      flags.reset_current
          ? (plain ? exact_row_of<true, true, kKeep, Add, Count> : exact_row_of<true, false, kKeep, Add, Count>)
          : (plain ? exact_row_of<false, true, kKeep, Add, Count> : exact_row_of<false, false, kKeep, Add, Count>);
  return run(current, coefficients, flags, v, synapse, left, n, spikes, bits, rises, passed, fired);
}

// The flags with one level, and without a rectified membrane, fixed point and refractory time, as constants.
inline LinearFlags plain_flags(LinearFlags flags) {
  flags.levels = 1, flags.refractory = 0;
  flags.rectified = flags.fixed_point = false;
  return flags;
}

// Number that an entry keeps of c . h: its distance from the threshold, from which it cannot be found again but by
// rounding; with several levels itself.
template <int K>
inline Floats linear_kept(Floats level, const LinearCoefficients<K, Floats>& k, const LinearFlags& flags) {
  return flags.levels == 1 ? level - k.row[LinearRows<K>::threshold] : level;
}

// See `step_vectors` and `linear_kept`; variable i of the state lies at `state_row + i * stride`. `Plain` as in
// `exact_row_of`.
template <int K, bool Plain, Keep kKeep, bool Add, bool Count>
SNNLIB_NOINLINE SNNLIB_FLATTEN int64_t linear_row_of(const float* current, const LinearRowCoefficients<K>& coefficients,
                                                     const LinearFlags& given, float* state_row, int64_t stride,
                                                     int64_t n, float* spikes, uint16_t* bits, float* distance,
                                                     Floats* fired) {
  using R = LinearRows<K>;
  const Floats zero = Floats{}, one = zero + 1.0f;
  const LinearFlags flags = Plain ? plain_flags(given) : given;
  const LinearCoefficients<K, Floats> shared = coefficients.at(0);
  const bool compact = is_compact(flags.surrogate), rests = flags.refractory != 0;
  const bool plain = !flags.rectified && !flags.fixed_point && !rests, graded = flags.levels != 1;
  const bool skims = kKeep == Keep::kFew && compact && plain;
  // Where the surrogate of graded neurons has its first center, and what is safely below their first spike.
  const bool lower = graded && flags.rounds && flags.spread != SurrogateSpread::kFlat;
  const float center = lower ? 0.5f : 1.0f, below = flags.rounds ? 0.49f : 0.99f;
  float* left = state_row + K * stride;
  return step_vectors<kKeep, Add, Count, false>(n, spikes, bits, distance, nullptr, fired, [&](int64_t j) -> RowStep {
    const LinearCoefficients<K, Floats>& k = Plain ? shared : coefficients.at(j);
    LinearState<K, Floats> state{{}, zero, rests ? load(left + j) : zero};
    for (int i = 0; i < K; ++i) state.y[i] = load(state_row + i * stride + j);
    if (skims) {
      Floats h[K];
      linear_charge<K>(state.y, load(current + j), k, h);
      // All are below the support of the surrogate and below the first spike, and all are finite.
      const Floats threshold = k.row[R::threshold], level = linear_level<K>(h, k);
      const Floats z = (level - threshold * center) * k.row[R::scale] + (level - level);
      if (lanes_below(z, zero - one) == kAllLanes && (!graded || lanes_below(level, threshold * below) == kAllLanes)) {
        for (int i = 1; i < K; ++i) store(state_row + i * stride + j, h[i] + k.row[R::p + i] * h[0]);
        store(state_row + j, linear_floor<K>(h[0], k));
        return {zero, zero, zero, 0, true};
      }
    }
    const auto out = linear_step<K, false>(state, load(current + j), k, flags, 1.0f);
    for (int i = 0; i < K; ++i) store(state_row + i * stride + j, state.y[i]);
    if (rests) store(left + j, state.left);
    if (kKeep == Keep::kNothing) return {out.spike, zero, zero, 0, false};
    const Floats level = linear_level<K>(out.h, k);
    const Floats z = magnitude(linear_distance<K>(level, k, flags, 1.0f) * k.row[R::scale]);
    const uint32_t near = lanes_at_least(out.spike, one) | lanes_at_least(one, z);
    return {out.spike, linear_kept<K>(level, k, flags), zero, compact ? near : kAllLanes, false};
  });
}

template <int K, Keep kKeep, bool Add, bool Count>
int64_t linear_row(const float* current, const LinearRowCoefficients<K>& coefficients, const LinearFlags& flags,
                   float* state, int64_t stride, int64_t n, float* spikes, uint16_t* bits, float* distance,
                   Floats* fired) {
  const bool plain = coefficients.shared() && !flags.rectified && !flags.fixed_point && !flags.refractory;
  const auto run = plain && flags.levels == 1 ? linear_row_of<K, true, kKeep, Add, Count>
                                              : linear_row_of<K, false, kKeep, Add, Count>;
  return run(current, coefficients, flags, state, stride, n, spikes, bits, distance, fired);
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
