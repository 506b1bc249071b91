// A row of neurons of one state (neurons/linear.h) through one step, and what a forward pass keeps of it: entries, the
// steps at which the adjoint does not decay freely. With a surrogate of compact support these are the steps near the
// threshold and the spikes, otherwise all. An entry keeps u, the distance of the membrane from the threshold.
#pragma once

#include "snnlib/core/scratch.h"
#include "snnlib/core/simd.h"
#include "snnlib/layer/layer.h"
#include "snnlib/neurons/linear.h"

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

}  // namespace SNNLIB_ISA
}  // namespace snnlib
