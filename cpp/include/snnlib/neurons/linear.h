// Spiking neurons with linear dynamics: K states y, a threshold and a reset. One step, in this order:
//
//   h = A y + B x + d
//   fixed point   each a_ij y_j rounded towards zero and B x to the nearest multiple of 2^-12; h NaN beyond 23 bits
//   quadratic   h_i <- h_i + p_i y_0 y_0 of two states, h_i + p_i y_2 y_i of three; no p below; reset in the same step
//   rectified   h_0 <- max(0, c_0 h_0)      of one state, reset in the same step
//   next   h_i <- keep_i h_i + offset_i     where the last step spiked (reset_time "next")
//   u = c . h - threshold;   s = [u >= 0] or [u > 0]
//   levels   several: x = c . h / threshold and s = floor(x + r), or ceil(x + r) - 1 for [u > 0], within 0 and levels,
//            with r = 1/2 where they are rounded, else 0;   s offset_i stands for offset_i
//   same   h_i <- keep_i h_i + offset_i     where s > 0 (reset_time "same");   h_0 <- h_0 - s r . h
//   y_0 = h_0,   y_k = h_k + p_k h_0 (k > 0),   y <- y + j s,   y_0 <- max(y_0, floor)
//   refractory   s = 0 and y as it was before the step where left > 0, in fixed point y_0 alone;
//                left <- refractory where s = 1, else max(left - 1, 0); with a time without end it stays at 1
//
// Backward, with G = dL/dy from later steps, q = dL/ds, sg = surrogate(u) and qs = dL/ds from the next step's reset:
//
//   gs = q + qs + j . G (jump not detached);   g_0 = G_0 + p . G,  g_k = G_k
//   same   gs += sum of g_i (keep_i h_i + offset_i - h_i) (not detached);   g_i <- keep_i g_i where s = 1
//   lam = g + gs sg c
//   next   qs' = sum of lam_i (keep_i h_i + offset_i - h_i) (not detached);   lam_i <- keep_i lam_i where it was reset
//   rectified   lam_0 <- c_0 lam_0 where c_0 h_0 > 0, else 0;   dL/dc_0 = lam_0 h_0 there
//   levels   several: sg = surrogate(c . h - threshold v) with v = 1 - r at the first threshold, at every one
//            floor(x + r + 1/2) within 1 and levels, minus r, or flat x within 1 and levels; dL/dthreshold = -gs sg x
//   refractory   where left > 0: q = 0, and the g_i of held states are added to G'_i, with 0 in their place above
//   dL/dx = B . lam,   dL/dA = lam y^T,   dL/dB = lam x,   dL/dd = lam,   dL/dthreshold = -gs sg;   G' = A^T lam
//   quadratic   dL/dp_i = lam_i y_0 y_0 or lam_i y_2 y_i;   G'_0 += 2 y_0 p . lam of two states,
//               G'_i += p_i lam_i y_2 and G'_2 += sum of p_i lam_i y_i of three
//
// x is the input current of a step, in the units of the threshold; coefficients are per neuron. docs/neurons.md.
#pragma once

#include <math.h>

#include <type_traits>

#include "snnlib/core/platform.h"
#include "snnlib/neurons/linear_flags.h"
#include "snnlib/neurons/neuron.h"
#include "snnlib/neurons/surrogate.h"

namespace snnlib {

// Rows of the coefficients: `row_names` of snnlib/backends/arguments.py.
template <int K>
struct LinearRows {
  SNNLIB_HD static constexpr int a(int i, int j) { return i * K + j; }
  static constexpr int b = K * K, d = b + K, c = d + K, keep = c + K, offset = keep + K, p = offset + K, j = p + K,
                       r = j + K, threshold = r + K, floor = threshold + 1, height = floor + 1, scale = height + 1,
                       count = scale + 1;
};

namespace SNNLIB_ISA {

template <int K, class F>
struct LinearCoefficients {
  F row[LinearRows<K>::count];
};

template <int K, class F>
using LinearState = NeuronState<K, F>;

// Values of a step: h before the reset of "next", h that is compared, and the spike.
template <int K, class F>
struct LinearStep {
  F raw[K], h[K];
  F spike;
};

// Value that is compared with the threshold, c . h.
template <int K, class F>
SNNLIB_HD inline F linear_level(const F (&h)[K], const LinearCoefficients<K, F>& k) {
  using R = LinearRows<K>;
  F level = h[0];
  if constexpr (K > 1) {
    level = k.row[R::c] * h[0];
    for (int i = 1; i < K; ++i) level = level + k.row[R::c + i] * h[i];
  }
  return level;
}

template <class F>
SNNLIB_HD inline auto linear_fires(F u, const LinearFlags& flags) {
  const F zero = F{};
  const auto never = zero > zero, always = zero >= zero;
  return (u > zero) | ((u >= zero) & (flags.strict ? never : always));
}

// floor(x) of x >= 0 by the rounding of a sum; below 0 any number below 0.
template <class F, class S>
SNNLIB_HD inline F whole_part(F x, S one) {
  constexpr S kNoFraction = sizeof(S) == sizeof(double) ? S(int64_t(1) << 52) : S(1 << 23);
  const F nearest = (x + kNoFraction) - kNoFraction;
  return x < F{} + kNoFraction ? (nearest > x ? nearest - one : nearest) : x;
}

// A number of spikes, which is NaN or not below `least`, within the levels.
template <class F>
SNNLIB_HD inline F within_levels(F spikes, float least, const LinearFlags& flags) {
  const F low = F{} + least, most = F{} + (flags.levels < 0 ? float(INFINITY) : float(flags.levels));
  const F raised = spikes < low ? low : spikes;
  return most < raised ? most : raised;
}

// Tells if a neuron fires, and its spikes where it does; with several levels NaN where these are unknown.
template <class F>
struct LinearFiring {
  decltype((F{} > F{}) | (F{} > F{})) fired;
  F spikes;
};

template <int K, class F, class S>
SNNLIB_HD inline LinearFiring<F> linear_firing(F level, const LinearCoefficients<K, F>& k, const LinearFlags& flags,
                                               S one) {
  const F zero = F{}, threshold = k.row[LinearRows<K>::threshold];
  if (flags.levels == 1) return {linear_fires(level - threshold, flags), zero + one};
  const F x = level / threshold + (flags.rounds ? S(0.5) : S(0)), whole = whole_part(x, one);
  // ceil(x) - 1 where a threshold has to be passed.
  const F spikes = within_levels(flags.strict ? (whole < x ? whole : whole - one) : whole, 0.0f, flags);
  return {spikes > zero, spikes};
}

// h_i after a reset by so many spikes; a moving threshold takes r . h off the membrane as well.
template <int K, class F>
SNNLIB_HD inline F linear_reset(const F (&h)[K], int i, F spikes, const LinearCoefficients<K, F>& k) {
  using R = LinearRows<K>;
  F reset = k.row[R::keep + i] * h[i] + spikes * k.row[R::offset + i];
  if (i == 0) {
    for (int m = 1; m < K; ++m) reset = reset - k.row[R::r + m] * h[m];
  }
  return reset;
}

// Spikes by which the next step resets: a state that somebody sets may hold other numbers than a step gives.
template <class F>
SNNLIB_HD inline F linear_spikes_before(F fired_before, const LinearFlags& flags) {
  return flags.levels == 1 ? F{} + 1.0f : fired_before;
}

// True if a call's membrane is rectified: known to be false where it cannot be.
template <int K, bool Next>
SNNLIB_HD inline bool linear_rectifies(const LinearFlags& flags) {
  return K == 1 && !Next && flags.rectified;
}

// h as it is compared with the threshold: after the reset of "next", or rectified.
template <int K, bool Next, class F>
SNNLIB_HD inline void linear_compared(const F (&raw)[K], F fired_before, const LinearCoefficients<K, F>& k,
                                      const LinearFlags& flags, F (&h)[K]) {
  const F zero = F{}, before = linear_spikes_before(fired_before, flags);
  for (int i = 0; i < K; ++i)
    h[i] = Next ? (fired_before > zero ? linear_reset<K>(raw, i, before, k) : raw[i]) : raw[i];
  if (linear_rectifies<K, Next>(flags)) {
    const F scaled = k.row[LinearRows<K>::c] * raw[0];
    h[0] = scaled < zero ? zero : scaled;
  }
}

// The product of states in h_i. Kernels are compiled apart for neurons that have it: of two or three states.
template <int K, class F>
SNNLIB_HD inline F linear_product(const F (&y)[K], int i) {
  return K == 2 ? y[0] * y[0] : y[K - 1] * y[i];
}

// h = A y + B x + d, and the products.
template <int K, bool Quadratic = false, class F>
SNNLIB_HD inline void linear_charge(const F (&y)[K], F x, const LinearCoefficients<K, F>& k, F (&h)[K]) {
  using R = LinearRows<K>;
  for (int i = 0; i < K; ++i) {
    F sum = k.row[R::a(i, 0)] * y[0];
    for (int j = 1; j < K; ++j) sum = sum + k.row[R::a(i, j)] * y[j];
    h[i] = sum + k.row[R::b + i] * x + k.row[R::d + i];
    if (Quadratic) h[i] = h[i] + k.row[R::p + i] * linear_product<K>(y, i);
  }
}

// Fixed point: states are whole multiples of 2^-12 with 23 bits and a sign, as a Loihi chip has them, in float or
// double: exact, with the integer Z = 4096 z behind a state z. Twin: snnlib/backends/fixed_point.py.
constexpr float kGridSteps = 4096.0f, kStateLimit = 2048.0f;

// Rounds towards zero; numbers that no int32 holds and NaN give any number.
template <class F>
SNNLIB_HD inline F toward_zero(F x) {
  if constexpr (std::is_floating_point_v<F>) {
    return trunc(x);
  } else {
#if defined(__GNUC__) && !defined(__CUDACC__)
    typedef int32_t Numbers __attribute__((vector_size(sizeof(F) / sizeof(F{}[0]) * sizeof(int32_t))));
    return __builtin_convertvector(__builtin_convertvector(x, Numbers), F);
#endif
  }
}

// A state as its whole part and, in steps of the grid, the rest.
template <class F>
struct OnGrid {
  F whole, steps;
};

template <class F>
SNNLIB_HD inline OnGrid<F> split_on_grid(F z) {
  const F whole = toward_zero(z);
  // NaN, which has no whole part, is in the rest.
  return {whole, (z - whole) * kGridSteps};
}

// decay z rounded towards zero: a product of up to 35 bits, of which that of the whole part is on the grid and that of
// the rest has 24.
template <class F>
SNNLIB_HD inline F kept_on_grid(F decay, const OnGrid<F>& z) {
  const F steps = decay * z.steps;
  return decay * z.whole + (toward_zero(steps) + (steps - steps)) * (1 / kGridSteps);
}

// The nearest multiple: that of sums on the grid, whatever their order has rounded.
template <class F>
SNNLIB_HD inline F nearest_on_grid(F x) {
  const F zero = F{}, half = zero + 0.5f, steps = x * kGridSteps;
  return (toward_zero(steps + (x < zero ? -half : half)) + (steps - steps)) * (1 / kGridSteps);
}

// The state where 23 bits hold it, else NaN, which later steps keep.
template <class F>
SNNLIB_HD inline F within_bits(F z) {
  const F zero = F{}, limit = zero + kStateLimit, size = z < zero ? -z : z;
  return size < limit ? z : zero + NAN;
}

// `linear_charge` in fixed point: the states nearest to the input first, as later sums have more bits.
template <int K, class F>
SNNLIB_HD inline void linear_charge_on_grid(const F (&y)[K], F x, const LinearCoefficients<K, F>& k, F (&h)[K]) {
  using R = LinearRows<K>;
  OnGrid<F> state[K];
  for (int j = 0; j < K; ++j) state[j] = split_on_grid(y[j]);
  for (int i = 0; i < K; ++i) {
    F sum = nearest_on_grid(k.row[R::b + i] * x);
    for (int j = K - 1; j >= 0; --j) sum = sum + kept_on_grid(k.row[R::a(i, j)], state[j]);
    h[i] = within_bits(sum + k.row[R::d + i]);
  }
}

template <int K, class F>
SNNLIB_HD inline F linear_floor(F y, const LinearCoefficients<K, F>& k) {
  return y < k.row[LinearRows<K>::floor] ? k.row[LinearRows<K>::floor] : y;
}

// True if state i is held in the refractory time: on a Loihi chip the current runs on.
SNNLIB_HD inline bool linear_holds(int i, const LinearFlags& flags) { return i == 0 || !flags.fixed_point; }

// Undoes a step where a neuron is in its refractory time, and counts that down.
template <int K, bool Next, class F>
SNNLIB_HD inline void linear_hold(const LinearState<K, F>& before, const LinearFlags& flags, LinearState<K, F>& state,
                                  F& spike) {
  const F zero = F{}, fewer = before.left - 1.0f;
  const F last = zero + (flags.refractory < 0 ? 1.0f : float(flags.refractory));
  const auto acts = before.left == zero;
  state.left = acts ? (spike > zero ? last : zero) : (flags.refractory < 0 ? before.left : fewer);
  spike = acts ? spike : zero;
  for (int i = 0; i < K; ++i) {
    if (linear_holds(i, flags)) state.y[i] = acts ? state.y[i] : before.y[i];
  }
  if (Next) state.fired = acts ? state.fired : before.fired;
}

// A time step. A NaN membrane gives a NaN spike: `h - h` is zero for every finite number.
template <int K, bool Next, bool Quadratic = false, class F, class S>
SNNLIB_HD inline LinearStep<K, F> linear_step(LinearState<K, F>& state, F x, const LinearCoefficients<K, F>& k,
                                              const LinearFlags& flags, S one) {
  using R = LinearRows<K>;
  const LinearState<K, F> before = state;
  LinearStep<K, F> out;
#if !defined(__CUDACC__)
  if (!Quadratic && !Next && flags.fixed_point) {
    linear_charge_on_grid<K>(state.y, x, k, out.raw);
  } else
#endif
    linear_charge<K, Quadratic>(state.y, x, k, out.raw);
  linear_compared<K, Next>(out.raw, state.fired, k, flags, out.h);
  const auto [fired, spikes] = linear_firing<K>(linear_level<K>(out.h, k), k, flags, one);
  out.spike = fired ? spikes : flags.levels == 1 ? out.h[0] - out.h[0] : spikes;
  for (int i = 0; i < K; ++i) state.y[i] = Next ? out.h[i] : (fired ? linear_reset<K>(out.h, i, spikes, k) : out.h[i]);
  if (Next) state.fired = out.spike;
  for (int i = 1; i < K && !Quadratic; ++i) state.y[i] = state.y[i] + k.row[R::p + i] * state.y[0];
  if (K > 1) {
    for (int i = 0; i < K; ++i) state.y[i] = fired ? state.y[i] + k.row[R::j + i] : state.y[i];
  }
  state.y[0] = linear_floor<K>(state.y[0], k);
  if (flags.refractory) linear_hold<K, Next>(before, flags, state, out.spike);
  return out;
}

// dL/dy_j through the products.
template <int K, class F>
SNNLIB_HD inline F linear_product_back(const F (&y)[K], const F (&lam)[K], int j, const LinearCoefficients<K, F>& k) {
  const F* p = &k.row[LinearRows<K>::p];
  if (K == 2) return j == 0 ? (p[0] * lam[0] + p[1] * lam[1]) * (y[0] + y[0]) : F{};
  F sum = p[j] * lam[j] * y[K - 1];
  for (int i = 0; i < K && j == K - 1; ++i) sum = sum + p[i] * lam[i] * y[i];
  return sum;
}

template <int K, class F>
using LinearCarry = NeuronCarry<K, F>;

// Facts of a step that the forward pass knew.
template <int K, class F>
struct LinearSeen {
  F raw[K];
  F fired_before;  // "next" only
  F left;          // of the refractory time before the step, where there is one
  F y[K];          // state before the step, for gradients of coefficients and products only
  F x;             // for gradients of coefficients only
};

// Distance from the surrogate's bump.
template <int K, class F, class S>
SNNLIB_HD inline F linear_distance(F level, const LinearCoefficients<K, F>& k, const LinearFlags& flags, S one) {
  const F threshold = k.row[LinearRows<K>::threshold];
  if (flags.levels == 1) return level - threshold;
  const S r = flags.rounds ? S(0.5) : S(0);
  if (flags.spread == SurrogateSpread::kFirst) return level - threshold * (one - r);
  const F x = level / threshold;
  if (flags.spread == SurrogateSpread::kFlat) return level - threshold * within_levels(x, 1.0f, flags);
  return level - threshold * (within_levels(whole_part(x + (r + S(0.5)), one), 1.0f, flags) - r);
}

// The surrogate at this distance.
template <int K, class F, class S, class Reciprocal = Division<S>>
SNNLIB_HD inline F linear_slope(F u, const LinearCoefficients<K, F>& k, const LinearFlags& flags, S one,
                                const Reciprocal& reciprocal = {}) {
  const F z = magnitude(u * k.row[LinearRows<K>::scale]);
  return k.row[LinearRows<K>::height] * surrogate_shape(flags.surrogate, z, one, reciprocal);
}

// A step backwards: dL/dx, with the gradients of the coefficients added to `grads` where Learn.
template <int K, bool Next, bool Learn, bool Quadratic = false, class F, class S, class Reciprocal = Division<S>>
SNNLIB_HD inline F linear_back(LinearCarry<K, F>& carry, F q, const LinearSeen<K, F>& seen,
                               const LinearCoefficients<K, F>& k, const LinearFlags& flags, S one,
                               LinearCoefficients<K, F>& grads, const Reciprocal& reciprocal = {}) {
  using R = LinearRows<K>;
  const F zero = F{};
  F h[K], g[K], lam[K];
  auto acts = zero >= zero;
  if (flags.refractory) {
    acts = seen.left == zero;
    // The membrane of a step is computed, and can be its value, in the refractory time, too.
    if (!flags.membrane) q = acts ? q : zero;
  }
  const auto held_back = [&](F before, F later, bool held) {
    return flags.refractory && held ? (acts ? before : before + later) : before;
  };
  const auto passed = [&](F now, bool held) { return flags.refractory && held ? (acts ? now : zero) : now; };
  linear_compared<K, Next>(seen.raw, seen.fired_before, k, flags, h);
  for (int i = 0; i < K; ++i) g[i] = passed(carry.g[i], linear_holds(i, flags));
  const bool rectifies = linear_rectifies<K, Next>(flags);
  const F scaled = rectifies ? k.row[R::c] * seen.raw[0] : zero;
  const F level = linear_level<K>(h, k), once = zero + one;
  const auto [fired, spikes] = linear_firing<K>(level, k, flags, one);
  const F slope = linear_slope<K>(linear_distance<K>(level, k, flags, one), k, flags, one, reciprocal);
  const F after = Next ? h[0] : (fired ? linear_reset<K>(h, 0, spikes, k) : h[0]);
  const F unfloored = K > 1 ? (fired ? after + k.row[R::j] : after) : after;
  g[0] = unfloored < k.row[R::floor] ? zero : g[0];
  F gs = flags.membrane ? zero : q;
  if (Next) gs = gs + passed(carry.qs, true);
  if (K > 1) {
    for (int i = 0; i < K; ++i) {
      if (!flags.detach_jump) gs = gs + k.row[R::j + i] * g[i];
      if (Learn) grads.row[R::j + i] = grads.row[R::j + i] + (fired ? g[i] : zero);
    }
    for (int i = 1; i < K && !Quadratic; ++i) {
      if (Learn) grads.row[R::p + i] = grads.row[R::p + i] + g[i] * after;
      g[0] = g[0] + k.row[R::p + i] * g[i];
    }
  }
  if (!Next) {
    const F g0 = g[0];
    for (int i = 0; i < K; ++i) {
      if (!flags.detach_reset) gs = gs + g[i] * (linear_reset<K>(h, i, once, k) - h[i]);
      if (Learn) grads.row[R::offset + i] = grads.row[R::offset + i] + (fired ? spikes * g[i] : zero);
      if (Learn && i > 0) grads.row[R::r + i] = grads.row[R::r + i] - (fired ? g0 * h[i] : zero);
    }
    for (int i = 0; i < K; ++i) {
      F kept = k.row[R::keep + i] * g[i];
      if (i > 0) kept = kept - k.row[R::r + i] * g0;
      g[i] = fired ? kept : g[i];
    }
  }
  const F e = gs * slope;
  if (Learn)
    grads.row[R::threshold] = grads.row[R::threshold] - (flags.levels == 1 ? e : e * (level / k.row[R::threshold]));
  for (int i = 0; i < K; ++i) {
    lam[i] = K > 1 ? g[i] + e * k.row[R::c + i] : g[i] + e;
    if (Learn && K > 1) grads.row[R::c + i] = grads.row[R::c + i] + e * h[i];
  }
  if (flags.membrane) lam[0] = lam[0] + q;
  if (rectifies) {
    if (Learn) grads.row[R::c] = grads.row[R::c] + (scaled > zero ? lam[0] * seen.raw[0] : zero);
    lam[0] = scaled > zero ? k.row[R::c] * lam[0] : zero;
  }
  F qs = zero;
  if (Next) {
    const F l0 = lam[0], before = linear_spikes_before(seen.fired_before, flags);
    for (int i = 0; i < K; ++i) {
      if (!flags.detach_reset) qs = qs + lam[i] * (linear_reset<K>(seen.raw, i, once, k) - seen.raw[i]);
      if (Learn)
        grads.row[R::offset + i] = grads.row[R::offset + i] + (seen.fired_before > zero ? before * lam[i] : zero);
      if (Learn && i > 0)
        grads.row[R::r + i] = grads.row[R::r + i] - (seen.fired_before > zero ? l0 * seen.raw[i] : zero);
      F kept = k.row[R::keep + i] * lam[i];
      if (i > 0) kept = kept - k.row[R::r + i] * l0;
      lam[i] = seen.fired_before > zero ? kept : lam[i];
    }
  }
  F grad_x = k.row[R::b] * lam[0];
  for (int i = 1; i < K; ++i) grad_x = grad_x + k.row[R::b + i] * lam[i];
  if (Learn) {
    for (int i = 0; i < K; ++i) {
      for (int j = 0; j < K; ++j) grads.row[R::a(i, j)] = grads.row[R::a(i, j)] + lam[i] * seen.y[j];
      grads.row[R::b + i] = grads.row[R::b + i] + lam[i] * seen.x;
      grads.row[R::d + i] = grads.row[R::d + i] + lam[i];
      if (Quadratic) grads.row[R::p + i] = grads.row[R::p + i] + lam[i] * linear_product<K>(seen.y, i);
    }
  }
  for (int j = 0; j < K; ++j) {
    F before = k.row[R::a(0, j)] * lam[0];
    for (int i = 1; i < K; ++i) before = before + k.row[R::a(i, j)] * lam[i];
    if (Quadratic) before = before + linear_product_back<K>(seen.y, lam, j, k);
    const F after = held_back(before, carry.g[j], linear_holds(j, flags));
    carry.g[j] = flags.through_time ? after : zero;
  }
  qs = held_back(qs, carry.qs, Next);
  carry.qs = flags.through_time ? qs : zero;
  return grad_x;
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
