// Input gradient of one band from the output spikes: a field V over the input that decays backwards in time and grows
// at spikes, dL/dx[t] = x[t] V[t].
#pragma once

#include "snnlib/core/simd.h"
#include "snnlib/events/conv.h"
#include "snnlib/layer/layer.h"
#include "snnlib/layer/linear_rows.h"
#include "snnlib/layer/srm_rows.h"

namespace snnlib {
namespace SNNLIB_ISA {

// dL/dx of one row: x V, and 0 where there is no event.
SNNLIB_NOINLINE inline void input_gradient(const float* __restrict x, const float* __restrict field, int64_t n,
                                           float scale, float* __restrict grad) {
  SNNLIB_SIMD
  for (int64_t i = 0; i < n; ++i) {
    const float product = x[i] * field[i] * scale;
    grad[i] = x[i] == 0.0f ? 0.0f : product;
  }
}

// The same past the caches, in whole cache lines.
SNNLIB_NOINLINE inline void stream_input_gradient(const float* x, const float* field, int64_t n, float scale,
                                                  float* grad) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const Floats event = load(x + i), product = event * load(field + i) * scale;
    const Floats gradient = event == 0.0f ? Floats{} : product;
    stream_bytes<kVectorBytes>(grad + i, &gradient);
  }
}

// dL/dx of one row whose inputs all have a gradient.
SNNLIB_NOINLINE inline void scaled(const float* __restrict field, int64_t n, float scale, float* __restrict grad) {
  SNNLIB_SIMD
  for (int64_t i = 0; i < n; ++i) grad[i] = field[i] * scale;
}

class InputsBySpikes {
 public:
  // Input rows `in` of sample `n`, which the spikes of output rows `reaching` reach.
  void start(const LayerBackwardArgs& a, int64_t n, const Rows& in, const Rows& reaching) {
    a_ = &a;
    n_ = n;
    in_ = in;
    reaching_ = reaching;
    const ConvShape& s = a.shape;
    conv_ = {a.scatter,     s.width,    s.channels, s.in_width,
             s.in_channels, s.kernel_w, s.stride_w, s.kernel_w - 1 - s.padding_w};
    tile_ = padded(conv_.tile_floats());
    field_.zeroed(in.count() * tile_);
    in_row_.reserve(s.in_width * s.in_channels);
    grad_row_.reserve(s.in_width * s.in_channels);
    reached_.reserve(s.kernel_h);
    const int64_t row_bytes = s.in_width * s.in_channels * int64_t(sizeof(float));
    const float* grad = in_place(a.grad_input, 0);
    streamed_ = grad && streamable(grad, s.steps * s.batch * s.in_height * row_bytes, row_bytes);
    spikes_.start(conv_, reaching.count());
    decay_ = a.neuron == LayerNeuron::kSrm ? float(a.constants.e_g) : linear_decay(a.linear);
    if (a.neuron == LayerNeuron::kSrm) {
      no_successors(successors_, reaching.count() * s.row(), s.steps);
      double power = 1.0;
      float* left = left_.reserve(s.steps + 1);
      for (int64_t d = 0; d <= s.steps; ++d, power *= decay_) left[d] = float(power);
    }
    undecayed_ = false;
    if (a.grad_state) start_from_state();
  }

  void begin_step() { spikes_.clear(false); }

  // The spikes of row y at step t; rows in ascending order.
  SNNLIB_NOINLINE void add_row(int64_t t, int64_t y, const SpikeRow& row) {
    Successor* successors = successors_.data() + (y - reaching_.first) * a_->shape.row();
    const Place* places = &spikes_.place(0);
    const float *left = left_.data(), e_g = decay_;
    Event* event = spikes_.place_next();
    for (int64_t i = 0; i < row.count; ++i) {
      const int32_t place = row.places[i];
      const float amount = row.q[place] * row.gain[i];
      const Successor next = successors[place];
      successors[place] = {amount, int32_t(t)};
      event[i] = {places[place].at, places[place].row, (amount - next.amount * left[next.step - t]) * e_g};
    }
    spikes_.finish_row(event + row.count);
  }

  // The entries of row y with what each adds to the adjoint.
  SNNLIB_NOINLINE void add_amounts(const SpikeRow& row, const float* amounts) {
    const Place* places = &spikes_.place(0);
    Event* event = spikes_.place_next();
    for (int64_t i = 0; i < row.count; ++i) {
      event[i] = {places[row.places[i]].at, places[row.places[i]].row, amounts[i]};
    }
    spikes_.finish_row(event + row.count);
  }

  // With the spikes of all rows at step t.
  void step(int64_t t) {
    const ConvShape& s = a_->shape;
    const int64_t row = s.in_width * s.in_channels;
    if (!undecayed_) scale(field_.data(), in_.count() * tile_, decay_);
    undecayed_ = false;
    add_to_field();
    for (int64_t y = in_.first; y < in_.last; ++y) {
      const int64_t at = (a_->input_frames(t, n_) * s.in_height + y) * row;
      if (a_->neuron != LayerNeuron::kSrm) {
        scaled(field_row(y) + conv_.first_pixel(), row, a_->input_grad_scale, grad_row_.data());
        write_floats(grad_row_.data(), row, a_->grad_input, at);
        continue;
      }
      const float* x = read_row(a_->input, s, t, n_, y, in_row_.data());
      float* place = in_place(a_->grad_input, at);
      float* grad = place ? place : grad_row_.data();
      (streamed_ ? stream_input_gradient : input_gradient)(x, field_row(y) + conv_.first_pixel(), row,
                                                           a_->input_grad_scale, grad);
      if (!place) write_floats(grad, row, a_->grad_input, at);
    }
    if (streamed_) finish_streams();
  }

 private:
  float* field_row(int64_t y) const { return field_.data() + (y - in_.first) * tile_; }

  // The field of what comes back to the state after the last step. Of SRM neurons it decays from the last step on as
  // that of a spike there does, to that of other neurons the last step adds its entries as it is.
  void start_from_state() {
    const ConvShape& s = a_->shape;
    const bool srm = a_->neuron == LayerNeuron::kSrm;
    const Place* places = &spikes_.place(0);
    begin_step();
    for (int64_t y = reaching_.first; y < reaching_.last; ++y) {
      const float* grad = a_->grad_state_row(srm ? 2 : 0, n_, y);
      Event* event = spikes_.place_next();
      for (int64_t i = 0; i < s.row(); ++i) {
        if (srm) successors_.data()[(y - reaching_.first) * s.row() + i] = {grad[i], int32_t(s.steps - 1)};
        if (grad[i] != 0.0f) *event++ = {places[i].at, places[i].row, grad[i]};
      }
      spikes_.finish_row(event);
    }
    add_to_field();
    undecayed_ = !srm;
  }

  // The spikes of all rows that were listed.
  void add_to_field() {
    for (int64_t y = reaching_.first; a_->scatter && y < reaching_.last; ++y) scatter_row(y);
    for (int64_t y = in_.first; !a_->scatter && y < in_.last; ++y) gather_row(y);
  }

  // The spikes of output row y, to the input rows that they reach.
  void scatter_row(int64_t y) {
    const ConvShape& s = a_->shape;
    const int64_t top = y * s.stride_h - s.padding_h, kernel_row = conv_.kernel_row_floats();
    const int64_t first = clamp(in_.first - top, 0, s.kernel_h), last = clamp(in_.last - top, first, s.kernel_h);
    for (int64_t ky = first; ky < last; ++ky) reached_.data()[ky] = field_row(top + ky);
    spikes_.scatter_row(y - reaching_.first,
                        {a_->weight + first * kernel_row, kernel_row, reached_.data() + first, last - first});
  }

  // To input row y, the spikes of the output rows that reach it.
  void gather_row(int64_t y) {
    const ConvShape& s = a_->shape;
    for (int64_t ky = 0; ky < s.kernel_h; ++ky) {
      const int64_t offset = y + s.padding_h - ky;
      if (offset < 0 || offset % s.stride_h || !reaching_.has(offset / s.stride_h)) continue;
      spikes_.add_kernel_row(offset / s.stride_h - reaching_.first, a_->weight + ky * conv_.kernel_row_floats(),
                             field_row(y));
    }
  }

  const LayerBackwardArgs* a_ = nullptr;
  Rows in_ = {}, reaching_ = {};
  RowConv conv_ = {};
  int64_t n_ = 0, tile_ = 0;
  float decay_ = 0.0f;
  bool streamed_ = false;
  bool undecayed_ = false;  // whether the next step takes the field as it is
  Scratch<float> field_, in_row_, grad_row_;
  Scratch<float> left_;  // of C after some steps: e_g^D
  Scratch<Successor> successors_;
  Scratch<float*> reached_;
  EventRows spikes_;
};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
