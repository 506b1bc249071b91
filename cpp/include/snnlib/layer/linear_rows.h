// Rows of neurons of one state (neurons/linear.h) in a layer, forward and backward.
//
// A forward pass keeps entries, the steps at which the adjoint does not decay freely. With a surrogate of compact
// support these are the steps near the threshold and the spikes, otherwise all. An entry keeps u, the distance of the
// membrane from the threshold.
//
// Backward, the adjoint lam = dL/dh decays freely from step to step and changes at entries by an amount m,
//
//   g[t] = decay lam[t+1],   lam[t] = slope q + carry g[t],   m[t] = lam[t] - g[t]
//   g of the last step is what comes back to the state after it
//   carry = (keep where s = 1, else 1) + slope (keep h + offset - h) (reset not detached)
//
// slope is the surrogate's derivative at u and h = u + threshold; from neurons/linear.h with one state.
#pragma once

#include "snnlib/core/threads.h"
#include "snnlib/layer/layer.h"

namespace snnlib {
namespace SNNLIB_ISA {

// Coefficients of a row of neurons, whose channels are next to each other.
class RowCoefficients {
 public:
  using Rows = LinearRows<1>;
  using Coefficients = LinearCoefficients<1, Floats>;

  void load(const LinearNeuron& neuron, int64_t row) {
    shared_ = neuron.period == 1;
    const int64_t vectors = shared_ ? 1 : padded(row) / kLanes;
    Coefficients* all = coefficients_.reserve(vectors);
    for (int64_t v = 0; v < vectors; ++v) {
      for (int64_t i = 0; i < Rows::count; ++i) {
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

inline bool is_compact(SurrogateKind kind) {
  return kind == SurrogateKind::kTriangle || kind == SurrogateKind::kRectangle;
}

// One step writes 0/1 to `spikes`, or with Add adds it to what is there, and where something is kept writes the bits of
// the entries of the row and their u; returns their number. With Count the spikes of every lane are added to `fired`.
// All rows may be read and written up to padded(n).
template <Keep kKeep, bool Add, bool Count>
SNNLIB_NOINLINE int64_t linear_row(const float* current, const RowCoefficients& coefficients, const LinearFlags& flags,
                                   float* v, int64_t n, float* spikes, uint16_t* bits, float* distance, Floats* fired) {
  const Floats zero = Floats{}, one = zero + 1.0f;
  const bool compact = is_compact(flags.surrogate), skims = kKeep == Keep::kFew && compact && !flags.rectified;
  const RowCoefficients::Coefficients* own = &coefficients.at(0);
  const int64_t next = coefficients.shared() ? 0 : 1;
  int64_t count = 0;
  Floats total = Count ? *fired : zero;
  for (int64_t i = 0; i < n; i += kGroup) {
    uint32_t group = 0;
    for (int64_t j = i; j < i + kGroup; j += kLanes, own += next) {
      const RowCoefficients::Coefficients& k = *own;
      LinearState<1, Floats> state{{load(v + j)}, zero};
      if (skims) {
        Floats h[1];
        linear_charge<1>(state.y, load(current + j), k, h);
        // All are below the support of the surrogate and so below the threshold, and all are finite.
        const Floats z = linear_distance<1>(h, k) * k.row[RowCoefficients::Rows::scale] + (h[0] - h[0]);
        if (lanes_below(z, zero - one) == kAllLanes) {
          store(v + j, linear_floor<1>(h[0], k));
          if (!Add) store(spikes + j, zero);
          continue;
        }
      }
      const auto out = linear_step<1, false>(state, load(current + j), k, flags, 1.0f);
      store(v + j, state.y[0]);
      store(spikes + j, Add ? load(spikes + j) + out.spike : out.spike);
      if (Count) {
        if (j + kLanes <= n) {
          total += out.spike;
        } else {
          total += first_lanes(out.spike, n - j);
        }
      }
      if (kKeep != Keep::kNothing) {
        const Floats u = linear_distance<1>(out.h, k), z = u * k.row[RowCoefficients::Rows::scale];
        uint32_t lanes = kAllLanes;
        if (compact) lanes = lanes_at_least(out.spike, one) | lanes_at_least(one, z < zero ? -z : z);
        if (j + kLanes > n) lanes &= j < n ? (uint32_t(1) << (n - j)) - 1 : 0;
        store_selected(distance + count, u, lanes);
        count += count_bits(lanes);
        group |= lanes << (j - i);
      }
    }
    if (kKeep != Keep::kNothing) bits[i / kGroup] = uint16_t(group);
  }
  if (Count) *fired = total;
  return count;
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
      RowCoefficients::Coefficients own;
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
      const Floats z = u * k.row[Coefficients::scale];
      const Floats slope = k.row[Coefficients::height] * surrogate_shape(flags.surrogate, magnitude(z), 1.0f);
      const auto fired = linear_fires(u, flags);
      Floats carry = fired ? k.row[Coefficients::keep] : one;
      if (!flags.detach_reset) {
        const Floats h[1] = {u + k.row[Coefficients::threshold]};
        carry = carry + slope * (linear_reset<1>(h, 0, k) - h[0]);
      }
      store(slope_.data() + i, slope);
      store(carry_.data() + i, carry);
    }
  }

  const LinearNeuron* neuron_ = nullptr;
  Rows rows_ = {};
  int64_t row_ = 0;
  int64_t last_step_ = 0;  // rows of the last step that are still to come
  RowCoefficients coefficients_;
  Scratch<float> lam_, slope_, carry_, amount_;
};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
