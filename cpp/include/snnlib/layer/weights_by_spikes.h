// Weight gradient of one band from its output spikes. Each spike samples two eligibility traces of the input, which run
// forward in time; the backward pass lists the samples, from the last step to the first.
//
// Each spike adds the patch [kx][c] of two input traces that
// its kernel row sees to the weights [kx][c] of its channel,
//
//   grad[row ...] += u trace_u[at ...] + s trace_s[at ...]
//
// with what layer/adjoint.h says the spike takes from them, u and s.
#pragma once

#include "snnlib/core/threads.h"
#include "snnlib/events/conv.h"
#include "snnlib/layer/adjoint.h"

namespace snnlib {
namespace SNNLIB_ISA {

// An output spike and its factors for both input traces.
struct TraceSample {
  int32_t at;
  uint32_t row;
  float u, s;
};

// Traces of one pixel stay in registers for all of its spikes.
template <int V>
SNNLIB_NOINLINE void collect_fixed(const TraceSample* sample, const TraceSample* end, const float* trace_u,
                                   const float* trace_s, float* grad) {
  while (sample != end) {
    const int32_t at = sample->at;
    Floats u[V], s[V];
    for (int v = 0; v < V; ++v) u[v] = load(trace_u + at + v * kLanes);
    for (int v = 0; v < V; ++v) s[v] = load(trace_s + at + v * kLanes);
    do {
      float* g = grad + sample->row;
      for (int v = 0; v < V; ++v) store(g + v * kLanes, load(g + v * kLanes) + (sample->u * u[v] + sample->s * s[v]));
      ++sample;
    } while (sample != end && sample->at == at);
  }
}

// Patches of up to kGroup floats and all kernel rows at once: with so little to add, the loop itself
// counts. Rows of traces and of weights lie `trace_row` and `grad_row` apart.
SNNLIB_NOINLINE inline void collect_narrow(const TraceSample* sample, const TraceSample* end, const float* trace_u,
                                           const float* trace_s, int64_t trace_row, float* grad, int64_t grad_row,
                                           int64_t kernel_rows) {
  for (; sample != end; ++sample) {
    const float *u = trace_u + sample->at, *s = trace_s + sample->at;
    float* g = grad + sample->row;
    for (int64_t ky = 0; ky < kernel_rows; ++ky, u += trace_row, s += trace_row, g += grad_row) {
      for (int64_t i = 0; i < kGroup; i += kLanes) {
        store(g + i, load(g + i) + (sample->u * load(u + i) + sample->s * load(s + i)));
      }
    }
  }
}

// For patches of `length` floats and what fills the last vector.
inline void collect(const TraceSample* begin, const TraceSample* end, const float* trace_u, const float* trace_s,
                    float* grad, int64_t length) {
  const auto run = [&](auto kernel) {
    return [=](int64_t i) { kernel(begin, end, trace_u + i, trace_s + i, grad + i); };
  };
  // Two traces a vector: twice four is what fits.
  const auto twice = [&](int64_t i) {
    run(collect_fixed<4>)(i);
    run(collect_fixed<4>)(i + 4 * kLanes);
  };
  in_registers(length, twice, run(collect_fixed<4>), run(collect_fixed<2>), run(collect_fixed<1>));
}

// A step of the input traces of one row, of the membrane and of the current.
SNNLIB_NOINLINE inline void step_traces(const float* x, int64_t n, const SynapseConstants& k, float* trace_u,
                                        float* trace_s) {
  SNNLIB_SIMD
  for (int64_t i = 0; i < n; ++i) {
    trace_s[i] = trace_s[i] * k.decay_s + k.gain_s * x[i];
    trace_u[i] = trace_u[i] * k.decay_m + k.gain_m * trace_s[i];
  }
}

// A step of the input traces of one row, of two linear states.
SNNLIB_NOINLINE inline void step_linear_traces(const float* x, int64_t n, const FreeDynamics& k, float* first,
                                               float* second) {
  SNNLIB_SIMD
  for (int64_t i = 0; i < n; ++i) {
    const float a = first[i], b = second[i];
    first[i] = k.f[0][0] * a + k.f[0][1] * b + k.b[0] * x[i];
    second[i] = k.f[1][0] * a + k.f[1][1] * b + k.b[1] * x[i];
  }
}

class WeightsBySpikes {
 public:
  // Output rows `own` of sample `n`, with at most `spikes` spikes. `grad` is [kernel_h][channels][padded(kernel_w x
  // in_channels)].
  void start(const LayerBackwardArgs& a, int64_t n, const Rows& own, int64_t spikes, float* grad) {
    a_ = &a;
    n_ = n;
    own_ = own;
    seen_ = seen_rows(a.shape, own);
    grad_ = grad;
    const ConvShape& s = a.shape;
    length_ = s.kernel_w * s.in_channels;
    // From column -padding on, with room for a whole vector at the end.
    trace_row_ = padded((s.in_width + 2 * s.padding_w) * s.in_channels + kGroup);
    samples_.reserve(spikes + (a.grad_state ? own.count() * s.row() : 0));
    begins_.reserve(s.steps * own.count() + 1)[0] = 0;
    in_row_.reserve(s.in_width * s.in_channels);
    Place* places = places_.reserve(s.row());
    for (int64_t i = 0; i < s.row(); ++i) {
      const int64_t x = i / s.channels, o = i % s.channels;
      places[i] = {int32_t(x * s.stride_w * s.in_channels), uint32_t(o * padded(length_))};
    }
    two_linear_ = a.is_linear() && a.states == 2;
    if (two_linear_) free_ = free_dynamics(a.linear);
    constants_ = synapse_constants(a);
  }

  // The entries of row y at step t, steps in descending order and rows of a step in ascending, with what each adds to
  // the adjoint of the membrane and, if given, of the current: so much of its trace it samples.
  SNNLIB_NOINLINE void add_amounts(int64_t t, int64_t y, const SpikeRow& row, const float* amounts,
                                   const float* of_current = nullptr) {
    const ConvShape& s = a_->shape;
    const Place* places = places_.data();
    const int32_t shift = int32_t((y * s.stride_h - s.padding_h - seen_.first) * trace_row_);
    int64_t* begin = begins(t) + y;
    TraceSample* sample = add_state(t, y, shift, samples_.data() + begin[0]);
    for (int64_t i = 0; i < row.count; ++i) {
      const Place place = places[row.places[i]];
      sample[i] = {shift + place.at, place.row, amounts[i], of_current ? of_current[i] : 0.0f};
    }
    begin[1] = sample + row.count - samples_.data();
  }

  void run() {
    const ConvShape& s = a_->shape;
    float* trace_u = trace_u_.zeroed(seen_.count() * trace_row_);
    float* trace_s = trace_s_.zeroed(seen_.count() * trace_row_);
    for (int64_t t = 0; t < s.steps; ++t) {
      for (int64_t y = seen_.first; y < seen_.last; ++y) {
        const float* x = read_row(a_->input, s, t, n_, y, in_row_.data());
        const int64_t at = (y - seen_.first) * trace_row_ + s.padding_w * s.in_channels;
        const int64_t length = s.in_width * s.in_channels;
        two_linear_ ? step_linear_traces(x, length, free_, trace_u + at, trace_s + at)
                    : step_traces(x, length, constants_, trace_u + at, trace_s + at);
      }
      const int64_t* begin = begins(t);
      if (length_ <= kGroup) {
        for (int64_t y = own_.first; y < own_.last; ++y) {
          const int64_t top = y * s.stride_h - s.padding_h, first = clamp(seen_.first - top, 0, s.kernel_h);
          collect_narrow(samples_.data() + begin[y], samples_.data() + begin[y + 1], trace_u + first * trace_row_,
                         trace_s + first * trace_row_, trace_row_, grad_ + first * grad_row(), grad_row(),
                         clamp(seen_.last - top, first, s.kernel_h) - first);
        }
        continue;
      }
      // Kernel row by kernel row for all rows of the step: its weights stay in the cache.
      for (int64_t ky = 0; ky < s.kernel_h; ++ky) {
        const Rows valid = rows_under(ky);
        collect(samples_.data() + begin[valid.first], samples_.data() + begin[valid.last], trace_u + ky * trace_row_,
                trace_s + ky * trace_row_, grad_ + ky * grad_row(), length_);
      }
    }
  }

 private:
  // dL/dstate of row y, which samples the traces at the last step; returns where the next sample goes.
  TraceSample* add_state(int64_t t, int64_t y, int32_t shift, TraceSample* sample) {
    const ConvShape& s = a_->shape;
    if (!a_->grad_state || t != s.steps - 1) return sample;
    const bool one = a_->is_linear() && a_->states == 1;
    const float *u = a_->grad_state_row(0, n_, y), *synapse = one ? nullptr : a_->grad_state_row(1, n_, y);
    const float decay = a_->is_srm() ? constants_.decay_s : 1.0f;
    const Place* places = places_.data();
    for (int64_t i = 0; i < s.row(); ++i) {
      const float of_s = one ? 0.0f : decay * synapse[i];
      if (u[i] != 0.0f || of_s != 0.0f) *sample++ = {shift + places[i].at, places[i].row, u[i], of_s};
    }
    return sample;
  }

  int64_t grad_row() const { return a_->shape.channels * padded(length_); }
  // [y] is where the samples of row y begin, [y + 1] where they end.
  int64_t* begins(int64_t t) const { return begins_.data() + (a_->shape.steps - 1 - t) * own_.count() - own_.first; }
  // Output rows whose input row under kernel row ky exists.
  Rows rows_under(int64_t ky) const {
    const ConvShape& s = a_->shape;
    const auto above = [&](int64_t y) { return (y + s.padding_h - ky + s.stride_h - 1) / s.stride_h; };
    const int64_t first = clamp(above(seen_.first), own_.first, own_.last);
    return {first, clamp(above(seen_.last), first, own_.last)};
  }

  const LayerBackwardArgs* a_ = nullptr;
  Rows own_ = {}, seen_ = {};
  float* grad_ = nullptr;
  int64_t n_ = 0, length_ = 0, trace_row_ = 0;
  SynapseConstants constants_ = {};
  bool two_linear_ = false;
  FreeDynamics free_ = {};
  Scratch<TraceSample> samples_;
  Scratch<int64_t> begins_;
  Scratch<Place> places_;
  Scratch<float> in_row_, trace_u_, trace_s_;
};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
