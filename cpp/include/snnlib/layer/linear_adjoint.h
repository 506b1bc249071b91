// The adjoint lam = dL/dh of rows of neurons of one state, backwards in time: it decays freely from step to step and
// changes at entries (layer/linear_row.h) by an amount m,
//
//   g[t] = decay lam[t+1],   lam[t] = slope q + carry g[t],   m[t] = lam[t] - g[t]
//   g of the last step is what comes back to the state after it
//   carry = (keep where s = 1, else 1) + slope (keep h + offset - h) (reset not detached)
//
// slope is the surrogate's derivative at u and h = u + threshold; from neurons/linear.h with one state.
#pragma once

#include "snnlib/layer/bands.h"
#include "snnlib/layer/linear_row.h"
#include "snnlib/layer/spike_credit.h"

namespace snnlib {
namespace SNNLIB_ISA {

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
