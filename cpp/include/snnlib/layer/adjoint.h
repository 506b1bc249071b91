// Adjoints of the neurons of a layer, row by row, from the record of layer/rows.h.
//
// Neurons of one or two states: the adjoint lam = dL/dh decays freely from step to step and changes at entries by an
// amount m,
//
//   g[t] = decay lam[t+1],   lam[t] = slope q + carry g[t],   m[t] = lam[t] - g[t]
//   g of the last step is what comes back to the state after it
//   carry = (keep where s = 1, else 1) + slope (keep h + offset - h) (reset not detached)
//
// With two states, h[t] = F h[t-1] + B x[t] between entries, with F = A P and P h = (h_0, h_1 + p_1 h_0):
//
//   g[t] = F^T lam[t+1],   lam[t] = c slope q + carry g[t],   m[t] = lam[t] - g[t],   dL/dx[t] = B . lam[t]
//   g of the last step is P^T dL/dy
//   carry = (keep where s = 1, less r_1 in row 1 of column 0; else 1) + c slope w^T
//   w_i = keep_i h_i + offset_i - h_i (reset not detached), and (j_0, j_1 - p_1 j_0) (jump not detached)
//
// A record of two states holds no h_1: gradients of a reset need it detached, or of h_0 alone, which is then compared
// alone. A spike adds m . Y[t] to dW, with the input traces Y <- F Y + B x, and m to the field Z <- F^T Z + W^T m over
// the inputs, dL/dx[t] = B . Z[t].
//
// Neurons whose spikes are moved: (G_v, G_i) decay freely from step to step, and a spike changes them by
//
//   m[t] = passed G_v + q rise - G_v,   n[t] = -G_i at a spike that resets the current, 0 at others;
//   of SRM neurons m[t] = q slope - G_v, n[t] = -G_i
//
// With input traces that run forward without resets, I <- decay_s I + gain_s x and U <- decay_m U + gain_m I, a spike
// adds dW += m U[t] + n I[t], and what comes back to the state after the last step adds G_v U[T-1] + G_i I[T-1]; with
// fields over the inputs backwards in time, M <- decay_m M + W^T m and I <- decay_s I + W^T n + gain_m M,
// dL/dx[t] = gain_s I[t].
//
// SRM neurons have the constants (e_m, e_s, r_s, 1), their state s is decay_s i, and their inputs get a signal of their
// own, b = e_g g: g becomes C = q gain at a spike. It changes at spikes alone: with V <- e_g V backwards in time, a
// spike whose successor fires D steps later, with C', adds e_g (C - C' e_g^D) W to its patch of V, dL/dx[t] = x[t]
// V[t]. What comes back to g after the last step acts like a successor there.
//
// slope is the surrogate's derivative at u and h = u + threshold; from neurons/linear.h.
#pragma once

#include "snnlib/layer/rows.h"

namespace snnlib {
namespace SNNLIB_ISA {

// Constants of a synapse that charges a membrane (neurons/synapse.h), which all channels share. Neurons of one state
// have no memory in it.
struct SynapseConstants {
  float decay_m, decay_s, gain_m, gain_s;
};

// The next spike of a neuron: its C, and its step.
struct Successor {
  float amount;
  int32_t step;
};

// For neurons that have not fired yet.
inline void no_successors(Scratch<Successor>& successors, int64_t neurons, int64_t steps) {
  Successor* next = successors.reserve(neurons);
  for (int64_t i = 0; i < neurons; ++i) next[i] = {0.0f, int32_t(steps)};
}

// Coefficient of linear neurons, which all channels share where a record suffices for gradients.
inline float shared_row(const LinearNeuron& neuron, int row) { return neuron.rows[row * neuron.period]; }

// Factor of the adjoint from one step to the one before.
inline float linear_decay(const LinearNeuron& neuron) {
  return neuron.flags.through_time ? shared_row(neuron, LinearRows<1>::a(0, 0)) : 0.0f;
}

// F and B of two states, F without a gradient through time 0.
struct FreeDynamics {
  float f[2][2], b[2];

  // True if an input reaches the second state.
  bool reaches_second() const { return b[1] != 0.0f || f[1][0] != 0.0f; }
};

inline FreeDynamics free_dynamics(const LinearNeuron& neuron) {
  using R = LinearRows<2>;
  FreeDynamics free = {};
  for (int i = 0; i < 2; ++i) {
    free.b[i] = shared_row(neuron, R::b + i);
    if (!neuron.flags.through_time) continue;
    free.f[i][1] = shared_row(neuron, R::a(i, 1));
    free.f[i][0] = shared_row(neuron, R::a(i, 0)) + free.f[i][1] * shared_row(neuron, R::p + 1);
  }
  return free;
}

// The adjoint of neurons of K linear states.
template <int K>
class LinearAdjoint {
 public:
  // Rows `rows` of neurons of sample `n`.
  void start(const LayerRecord& a, int64_t n, const Rows& rows) {
    a_ = &a;
    rows_ = rows;
    n_ = n;
    row_ = a.shape.row();
    stored_ = padded(row_);
    coefficients_.load(a.linear, row_);
    lam_.zeroed(K * rows.count() * stored_);
    for (int64_t y = rows.first; a.grad_state && y < rows.last; ++y) {
      for (int i = 0; i < K; ++i) std::memcpy(lam(i, y), a.grad_state_row(i, n, y), size_t(row_) * sizeof(float));
    }
    last_step_ = rows.count();
    slope_.reserve(K * room());
    carry_.reserve(K * K * room());
    amount_.reserve(K * room());
    if (K == 2) free_ = free_dynamics(a.linear), changes_second_ = free_.reaches_second() && second_changes();
    if (K == 2) signal_.reserve(stored_);
  }

  // Goes one step back in row y and returns, if it is wanted, dL/dcurrent, of one state without the factor b.
  SNNLIB_NOINLINE const float* step(int64_t y, const SpikeRow& entries, bool wanted) {
    last_step_ > 0 ? void(--last_step_) : decay(y);
    const bool all = entries.count == row_;
    all ? weigh<true>(entries) : weigh<false>(entries);
    const float *slope = slope_.data(), *carry = carry_.data();
    float *amount = amount_.data(), *lam = this->lam(0, y);
    const int64_t next = lam_stride(), room = this->room();
    if (all) {
      for (int64_t i = 0; i < stored_; i += kLanes) {
        const Floats q = i + kLanes > row_ ? tail(entries.q + i, row_ - i) : load(entries.q + i);
        Floats g[K];
        for (int k = 0; k < K; ++k) g[k] = load(lam + k * next + i);
        for (int k = 0; k < K; ++k) {
          Floats now = load(slope + k * room + i) * q;
          for (int m = 0; m < K; ++m) now = now + load(carry + (k * K + m) * room + i) * g[m];
          store(amount + k * room + i, now - g[k]);
          store(lam + k * next + i, now);
        }
      }
    } else {
      for (int64_t i = 0; i < entries.count; ++i) {
        const int32_t place = entries.places[i];
        const float q = entries.q[place];
        float g[K];
        for (int k = 0; k < K; ++k) g[k] = lam[k * next + place];
        for (int k = 0; k < K; ++k) {
          float now = slope[k * room + i] * q;
          for (int m = 0; m < K; ++m) now = now + carry[(k * K + m) * room + i] * g[m];
          amount[k * room + i] = now - g[k];
          lam[k * next + place] = now;
        }
      }
    }
    if (K == 1) return lam;
    for (int64_t i = 0; wanted && i < stored_; i += kLanes) {
      store(signal_.data() + i, free_.b[0] * load(lam + i) + free_.b[1] * load(lam + next + i));
    }
    return signal_.data();
  }

  // m of every entry of the last step, of the second state null where no entry changes it or no input reaches it.
  const float* to_membrane() const { return amount_.data(); }
  const float* to_current() const { return changes_second_ ? amount_.data() + room() : nullptr; }

  // After the first step, g of row y of the state before it, to `out`, laid out as `grad_state`. Call it once.
  void finish(int64_t y, float* out) {
    if (last_step_ == 0) decay(y);
    const ConvShape& s = a_->shape;
    for (int i = 0; i < K; ++i) {
      std::memcpy(out + ((i * s.batch + n_) * s.height + y) * row_, lam(i, y), size_t(row_) * sizeof(float));
    }
  }

 private:
  using Coefficients = LinearRows<K>;

  int64_t room() const { return stored_ + kGroup; }
  int64_t lam_stride() const { return rows_.count() * stored_; }
  float* lam(int i, int64_t y) const { return lam_.data() + i * lam_stride() + (y - rows_.first) * stored_; }

  static Floats tail(const float* p, int64_t count) { return load_lanes<float>(p, count); }

  // True if spikes or near-threshold steps change the adjoint of the second state.
  bool second_changes() const {
    const LinearNeuron& neuron = a_->linear;
    for (int64_t i = 0; i < neuron.period; ++i) {
      const auto row = [&](int r) { return neuron.rows[r * neuron.period + i]; };
      const bool compared = row(Coefficients::c + K - 1) != 0.0f;
      if (compared || row(Coefficients::keep + K - 1) != 1.0f || row(Coefficients::r + K - 1) != 0.0f) return true;
    }
    return false;
  }

  // From lam to g of the step before.
  void decay(int64_t y) {
    float *first = lam(0, y), *second = lam(K - 1, y);
    if (K == 1) return scale(first, stored_, linear_decay(a_->linear));
    for (int64_t i = 0; i < stored_; i += kLanes) {
      const Floats a = load(first + i), b = load(second + i);
      store(first + i, free_.f[0][0] * a + free_.f[1][0] * b);
      store(second + i, free_.f[0][1] * a + free_.f[1][1] * b);
    }
  }

  // slope and carry of all entries from their u; `All`: entry i is at place i.
  template <bool All>
  void weigh(const SpikeRow& entries) {
    const LinearFlags& flags = a_->linear.flags;
    const Floats zero = Floats{}, one = zero + 1.0f;
    for (int64_t i = 0; i < entries.count; i += kLanes) {
      LinearCoefficients<K, Floats> own;
      const bool gathered = !coefficients_.shared() && !All;
      if (gathered) gather(entries, i, own);
      const auto& k = gathered ? own : coefficients_.at(i);
      const Floats u = load_lanes<float>(entries.slope + i, entries.count - i);
      const bool graded = flags.levels != 1;
      Floats h[K] = {graded ? u : u + k.row[Coefficients::threshold]};
      const Floats distance = graded ? linear_distance<K>(u, k, flags, 1.0f) : u;
      const Floats slope = linear_slope<K>(distance, k, flags, 1.0f);
      const auto fired = graded ? linear_firing<K>(u, k, flags, 1.0f).fired : linear_fires(u, flags);
      for (int row = 0; row < K; ++row) {
        const Floats own_slope = K == 1 ? slope : slope * k.row[Coefficients::c + row];
        store(slope_.data() + row * room() + i, own_slope);
        for (int column = 0; column < K; ++column) {
          Floats carry = row != column ? zero : fired ? k.row[Coefficients::keep + row] : one;
          if (row > column) carry = fired ? -k.row[Coefficients::r + row] : zero;
          if (!flags.detach_reset) {
            carry = carry + own_slope * (linear_reset<K>(h, column, one, k) - h[column]);
          }
          if (K > 1 && !flags.detach_jump) carry = carry + own_slope * jump(column, k);
          store(carry_.data() + (row * K + column) * room() + i, carry);
        }
      }
    }
  }

  // (j_0, j_1 - p_1 j_0)
  static Floats jump(int column, const LinearCoefficients<K, Floats>& k) {
    const Floats own = k.row[Coefficients::j + column];
    return column ? own - k.row[Coefficients::p + column] * k.row[Coefficients::j] : own;
  }

  // Coefficients of the entries from `i` on.
  void gather(const SpikeRow& entries, int64_t i, LinearCoefficients<K, Floats>& own) const {
    using R = Coefficients;
    // The first five are of one state alone.
    constexpr int last = K - 1, used[] = {R::keep,        R::offset,        R::threshold, R::height, R::scale,
                                          R::keep + last, R::offset + last, R::c,         R::j,      R::c + last,
                                          R::j + last,    R::p + last,      R::r + last};
    for (int row = 0; row < (K == 1 ? 5 : 13); ++row) {
      float lane[kLanes] = {};
      for (int64_t j = 0; j < kLanes && i + j < entries.count; ++j) {
        lane[j] = coefficients_.of(used[row], entries.places[i + j]);
      }
      std::memcpy(&own.row[used[row]], lane, sizeof lane);
    }
  }

  const LayerRecord* a_ = nullptr;
  Rows rows_ = {};
  int64_t n_ = 0, row_ = 0, stored_ = 0;
  int64_t last_step_ = 0;  // rows of the last step that are still to come
  FreeDynamics free_ = {};
  bool changes_second_ = false;
  LinearRowCoefficients<K> coefficients_;
  Scratch<float> lam_, slope_, carry_, amount_, signal_;
};

inline SynapseConstants synapse_constants(const LayerArgs& a) {
  if (a.is_linear()) return {linear_decay(a.linear), 0.0f, 1.0f, 1.0f};
  using R = SynapseRows;
  return {a.shared(R::decay_m), a.shared(R::decay_s), a.shared(R::gain_m), a.shared(R::gain_s)};
}

// The adjoint of neurons whose spikes are moved. SRM neurons carry dL/d(decay_s i), as their state has it.
class SpikeAdjoint {
 public:
  // Rows `rows` of neurons of sample `n`.
  void start(const LayerRecord& a, int64_t n, const Rows& rows) {
    a_ = &a;
    n_ = n;
    rows_ = rows;
    srm_ = a.is_srm();
    resets_ = a.exact.flags.reset_current;
    constants_ = synapse_constants(a);
    stored_ = padded(a.shape.row());
    carried_.zeroed(states() * rows.count() * stored_);
    for (int64_t y = rows.first; a.grad_state && y < rows.last; ++y) {
      for (int64_t i = 0; i < states(); ++i) std::memcpy(state(i, y), a.grad_state_row(i, n, y), row_bytes());
    }
    signal_.reserve(stored_);
    amounts_.reserve(2 * (stored_ + kGroup));
  }

  // Goes one step back in row y and returns dL/dcurrent, all of it if it is wanted.
  const float* step(int64_t y, const SpikeRow& spikes, bool wanted) {
    srm_ ? step_as<true>(y, spikes, wanted) : step_as<false>(y, spikes, wanted);
    return signal_.data();
  }

  // Goes one step back in row y of SRM neurons and returns the inputs' signal b.
  SNNLIB_NOINLINE const float* step_input(int64_t y, const SpikeRow& spikes) {
    float* g = state(2, y);
    for (int64_t i = 0; i < spikes.count; ++i) g[spikes.places[i]] = spikes.q[spikes.places[i]] * spikes.gain[i];
    scale(g, stored_, a_->shared(SrmRows::decay_g));
    return g;
  }

  // Changes of dL/dv by the spikes of the last step, and of dL/di where they reset the current; else null.
  const float* to_membrane() const { return amounts_.data(); }
  const float* to_current() const { return resets_ ? amounts_.data() + stored_ + kGroup : nullptr; }

  // After the first step, what comes back to row y of the state before it, to `out`, laid out as `grad_state`.
  void finish(int64_t y, float* out) const {
    const ConvShape& s = a_->shape;
    for (int64_t i = 0; i < states(); ++i) {
      std::memcpy(out + ((i * s.batch + n_) * s.height + y) * s.row(), state(i, y), row_bytes());
    }
  }

 private:
  int64_t states() const { return 2 + srm_; }
  size_t row_bytes() const { return size_t(a_->shape.row()) * sizeof(float); }
  float* state(int64_t i, int64_t y) const { return carried_.data() + (states() * (y - rows_.first) + i) * stored_; }

  template <bool Srm>
  SNNLIB_NOINLINE void step_as(int64_t y, const SpikeRow& spikes, bool wanted) {
    float *v = state(0, y), *s = state(1, y), *to_v = amounts_.data(), *to_s = to_v + stored_ + kGroup;
    const SynapseConstants k = constants_;
    for (int64_t i = 0; i < spikes.count; ++i) {
      const int32_t place = spikes.places[i];
      const float g_v = v[place], q = spikes.q[place], rise = spikes.slope[i];
      const float now = Srm ? q * rise : SpikeTime<true>::at_spike(g_v, q, rise, spikes.gain[i]);
      to_v[i] = now - g_v;
      to_s[i] = Srm ? -k.decay_s * s[place] : -s[place];
      v[place] = now;
      if (resets_) s[place] = 0.0f;
    }
    for (int64_t i = 0; i < stored_; i += kLanes) {
      const Floats m = load(v + i), after = load(s + i), g = (Srm ? k.decay_s * after : after) + k.gain_m * m;
      if (wanted) store(signal_.data() + i, Srm ? g : k.gain_s * g);
      store(v + i, k.decay_m * m);
      store(s + i, Srm ? g : k.decay_s * g);
    }
  }

  const LayerRecord* a_ = nullptr;
  Rows rows_ = {};
  int64_t n_ = 0, stored_ = 0;
  bool srm_ = false, resets_ = false;
  SynapseConstants constants_ = {};
  Scratch<float> carried_, signal_, amounts_;
};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
