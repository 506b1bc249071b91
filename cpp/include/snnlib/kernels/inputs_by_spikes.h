// Input gradient of one band from the output spikes: a field V over the input that decays backwards in time and grows
// at spikes, dL/dx[t] = x[t] V[t].
#pragma once

#include "snnlib/kernels/band_rows.h"
#include "snnlib/kernels/event_rows.h"
#include "snnlib/kernels/input_row.h"

namespace snnlib {
namespace SNNLIB_ISA {

SNNLIB_NOINLINE inline void scale(float* x, int64_t n, float factor) {
  for (int64_t i = 0; i < n; i += kLanes) store(x + i, load(x + i) * factor);
}

// dL/dx of one row: x V, and 0 where there is no event.
SNNLIB_NOINLINE inline void input_gradient(const float* __restrict x, const float* __restrict field, int64_t n,
                                           float scale, float* __restrict grad) {
  SNNLIB_SIMD
  for (int64_t i = 0; i < n; ++i) {
    const float product = x[i] * field[i] * scale;
    grad[i] = x[i] == 0.0f ? 0.0f : product;
  }
}

class InputsBySpikes {
 public:
  // Input rows `in` of sample `n`, which the spikes of output rows `reaching` reach.
  void start(const SrmConvBackwardArgs& a, int64_t n, const Rows& in, const Rows& reaching) {
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
    spikes_.start(conv_, reaching.count());
  }

  void begin_step() {
    spikes_.clear();
    spikes_.not_binary();
  }

  // The spikes of one row after the other are `lister.add`ed, and end with `end_row`.
  struct Lister {
    Event* event;
    const Place* places;

    void add(int64_t place, float change) { *event++ = {places[place].at, places[place].row, change}; }
  };
  Lister begin_row() { return {spikes_.place_next(), &spikes_.place(0)}; }
  void end_row(const Lister& lister) { spikes_.finish_row(lister.event); }

  // With the spikes of all rows at step t.
  void step(int64_t t) {
    const ConvShape& s = a_->shape;
    const int64_t row = s.in_width * s.in_channels;
    scale(field_.data(), in_.count() * tile_, float(a_->constants.e_g));
    if (a_->scatter) {
      for (int64_t y = reaching_.first; y < reaching_.last; ++y) scatter_row(y);
    }
    for (int64_t y = in_.first; y < in_.last; ++y) {
      if (!a_->scatter) gather_row(y);
      const float* x = read_row(a_->input, s, t, n_, y, in_row_.data());
      const int64_t at = (a_->input_frames(t, n_) * s.in_height + y) * row;
      float* place = in_place(a_->grad_input, at);
      float* grad = place ? place : grad_row_.data();
      input_gradient(x, field_row(y) + conv_.first_pixel(), row, a_->input_grad_scale, grad);
      if (!place) write_floats(grad, row, a_->grad_input, at);
    }
  }

 private:
  float* field_row(int64_t y) const { return field_.data() + (y - in_.first) * tile_; }

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

  const SrmConvBackwardArgs* a_ = nullptr;
  Rows in_ = {}, reaching_ = {};
  RowConv conv_ = {};
  int64_t n_ = 0, tile_ = 0;
  Scratch<float> field_, in_row_, grad_row_;
  Scratch<float*> reached_;
  EventRows spikes_;
};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
