// Backward of convolution and neurons from the spikes that the forward pass recorded. A task is one band of one
// sample: of output rows for the weights and the state, of input rows for the inputs. It goes back in time row by row;
// all gradients take what they need from each.
#include "snnlib/core/threads.h"
#include "snnlib/events/conv.h"
#include "snnlib/layer/adjoint.h"
#include "snnlib/layer/layer.h"
#include "snnlib/layer/recorded_spikes.h"
#include "snnlib/layer/weights_by_inputs.h"
#include "snnlib/layer/weights_by_spikes.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

// dL/dx of one row: x V, and 0 where there is no event.
SNNLIB_NOINLINE inline void input_gradient(const float* __restrict x, const float* __restrict field, int64_t n,
                                           float scale, float* __restrict grad) {
  SNNLIB_SIMD
  for (int64_t i = 0; i < n; ++i) {
    const float product = x[i] * field[i] * scale;
    grad[i] = x[i] == 0.0f ? 0.0f : product;
  }
}

// Gradient of the input past the caches, in whole cache lines.
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

// Neurons with exact times: a step back of the fields of the membrane and of the current, and dL/dx of one row, by
// time x[t] (dL/dx[t] - dL/dx[t+1]).
SNNLIB_NOINLINE inline void exact_gradient(const float* __restrict x, int64_t n, const SynapseConstants& k,
                                           bool by_time, float* __restrict of_membrane, float* __restrict of_current,
                                           float* __restrict later, float* __restrict grad) {
  SNNLIB_SIMD
  for (int64_t i = 0; i < n; ++i) {
    const float g = of_current[i] + k.gain_m * of_membrane[i], dense = k.gain_s * g, timed = x[i] * (dense - later[i]);
    grad[i] = by_time ? timed : dense;
    later[i] = dense;
    of_membrane[i] *= k.decay_m;
    of_current[i] = k.decay_s * g;
  }
}

// Two linear states: a step back of their fields, and dL/dx of one row.
SNNLIB_NOINLINE inline void linear_gradient(int64_t n, const FreeDynamics& k, float* __restrict first,
                                            float* __restrict second, float* __restrict grad) {
  SNNLIB_SIMD
  for (int64_t i = 0; i < n; ++i) {
    const float a = first[i], b = second[i];
    grad[i] = k.b[0] * a + k.b[1] * b;
    first[i] = k.f[0][0] * a + k.f[1][0] * b;
    second[i] = k.f[0][1] * a + k.f[1][1] * b;
  }
}

// Input gradient of one band from the output spikes: a field V over the input that decays backwards in time and grows
// at spikes, dL/dx[t] = x[t] V[t]. Neurons with exact times and of two linear states have a field for each state.
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
    two_linear_ = a.is_linear() && a.states == 2;
    if (two_linear_) free_ = free_dynamics(a.linear);
    if (a.has_two_fields()) {
      of_current_.zeroed(in.count() * tile_);
      later_.zeroed(in.count() * s.in_width * s.in_channels);
      changes_.start(conv_, reaching.count());
    }
    in_row_.reserve(s.in_width * s.in_channels);
    grad_row_.reserve(s.in_width * s.in_channels);
    reached_.reserve(s.kernel_h);
    const int64_t row_bytes = s.in_width * s.in_channels * int64_t(sizeof(float));
    const float* grad = in_place(a.grad_input, 0);
    streamed_ = grad && streamable(grad, s.steps * s.batch * s.in_height * row_bytes, row_bytes);
    spikes_.start(conv_, reaching.count());
    constants_ = synapse_constants(a);
    decay_ = constants_.decay_m;
    if (a.is_srm()) {
      decay_ = a.shared(SrmRows::decay_g);
      no_successors(successors_, reaching.count() * s.row(), s.steps);
      double power = 1.0;
      float* left = left_.reserve(s.steps + 1);
      for (int64_t d = 0; d <= s.steps; ++d, power *= decay_) left[d] = float(power);
    }
    undecayed_ = false;
    if (a.grad_state) start_from_state();
  }

  void begin_step() {
    changes_listed_ = false;
    spikes_.clear(false);
    if (a_->has_two_fields()) changes_.clear(false);
  }

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

  // The entries of row y with what each adds to the adjoint of the membrane and, if given, of the current.
  void add_amounts(const SpikeRow& row, const float* amounts, const float* of_current = nullptr) {
    list_amounts(row, amounts, spikes_);
    changes_listed_ = of_current != nullptr;
    if (of_current) list_amounts(row, of_current, changes_);
  }

  // With the spikes of all rows at step t.
  void step(int64_t t) {
    const ConvShape& s = a_->shape;
    const int64_t row = s.in_width * s.in_channels;
    const bool two = a_->has_two_fields();
    if (!undecayed_ && !two) scale(field_.data(), in_.count() * tile_, decay_);
    undecayed_ = false;
    add_to_field(spikes_, field_.data());
    if (changes_listed_) add_to_field(changes_, of_current_.data());
    for (int64_t y = in_.first; y < in_.last; ++y) {
      const int64_t at = (a_->input_frames(t, n_) * s.in_height + y) * row;
      if (two_linear_) {
        const int64_t pixel = (y - in_.first) * tile_ + conv_.first_pixel();
        linear_gradient(row, free_, field_.data() + pixel, of_current_.data() + pixel, grad_row_.data());
        write_floats(grad_row_.data(), row, a_->grad_input, at);
        continue;
      }
      if (two) {
        const float* x = a_->exact.flags.by_time ? read_row(a_->input, s, t, n_, y, in_row_.data()) : in_row_.data();
        const int64_t pixel = (y - in_.first) * tile_ + conv_.first_pixel();
        exact_gradient(x, row, constants_, a_->exact.flags.by_time, field_.data() + pixel, of_current_.data() + pixel,
                       later_.data() + (y - in_.first) * row, grad_row_.data());
        write_floats(grad_row_.data(), row, a_->grad_input, at);
        continue;
      }
      if (!a_->is_srm()) {
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

  SNNLIB_NOINLINE static void list_amounts(const SpikeRow& row, const float* amounts, EventRows& rows) {
    const Place* places = &rows.place(0);
    Event* event = rows.place_next();
    for (int64_t i = 0; i < row.count; ++i) {
      event[i] = {places[row.places[i]].at, places[row.places[i]].row, amounts[i]};
    }
    rows.finish_row(event + row.count);
  }

  // The field of what comes back to the state after the last step. Of SRM neurons it decays from the last step on as
  // that of a spike there does, to that of other neurons the last step adds its entries as it is.
  void start_from_state() {
    const bool srm = a_->is_srm();
    add_state(srm ? 2 : 0, srm, field_.data());
    if (a_->has_two_fields()) add_state(1, false, of_current_.data());
    undecayed_ = !srm;
  }

  // Adds the gradient of a variable of the state to a field; with `succeeds` it succeeds the last spike.
  void add_state(int64_t variable, bool succeeds, float* field) {
    const ConvShape& s = a_->shape;
    const Place* places = &spikes_.place(0);
    spikes_.clear(false);
    for (int64_t y = reaching_.first; y < reaching_.last; ++y) {
      const float* grad = a_->grad_state_row(variable, n_, y);
      Event* event = spikes_.place_next();
      for (int64_t i = 0; i < s.row(); ++i) {
        if (succeeds) successors_.data()[(y - reaching_.first) * s.row() + i] = {grad[i], int32_t(s.steps - 1)};
        if (grad[i] != 0.0f) *event++ = {places[i].at, places[i].row, grad[i]};
      }
      spikes_.finish_row(event);
    }
    add_to_field(spikes_, field);
  }

  // The spikes of all rows that were listed.
  void add_to_field(EventRows& spikes, float* field) {
    for (int64_t y = reaching_.first; a_->scatter && y < reaching_.last; ++y) scatter_row(y, spikes, field);
    for (int64_t y = in_.first; !a_->scatter && y < in_.last; ++y) gather_row(y, spikes, field);
  }

  // The spikes of output row y, to the input rows that they reach.
  void scatter_row(int64_t y, EventRows& spikes, float* field) {
    const ConvShape& s = a_->shape;
    const int64_t top = y * s.stride_h - s.padding_h, kernel_row = conv_.kernel_row_floats();
    const int64_t first = clamp(in_.first - top, 0, s.kernel_h), last = clamp(in_.last - top, first, s.kernel_h);
    for (int64_t ky = first; ky < last; ++ky) reached_.data()[ky] = field + (top + ky - in_.first) * tile_;
    spikes.scatter_row(y - reaching_.first,
                       {a_->weight + first * kernel_row, kernel_row, reached_.data() + first, last - first});
  }

  // To input row y, the spikes of the output rows that reach it.
  void gather_row(int64_t y, EventRows& spikes, float* field) {
    const ConvShape& s = a_->shape;
    for (int64_t ky = 0; ky < s.kernel_h; ++ky) {
      const int64_t offset = y + s.padding_h - ky;
      if (offset < 0 || offset % s.stride_h || !reaching_.has(offset / s.stride_h)) continue;
      spikes.add_kernel_row(offset / s.stride_h - reaching_.first, a_->weight + ky * conv_.kernel_row_floats(),
                            field + (y - in_.first) * tile_);
    }
  }

  const LayerBackwardArgs* a_ = nullptr;
  Rows in_ = {}, reaching_ = {};
  RowConv conv_ = {};
  int64_t n_ = 0, tile_ = 0;
  SynapseConstants constants_ = {};
  bool two_linear_ = false;
  FreeDynamics free_ = {};
  float decay_ = 0.0f;  // of the field, of neurons with one
  bool streamed_ = false;
  bool undecayed_ = false;  // whether the next step takes the field as it is
  Scratch<float> field_, of_current_, later_, in_row_, grad_row_;
  Scratch<float> left_;  // of C after some steps: e_g^D
  Scratch<Successor> successors_;
  Scratch<float*> reached_;
  EventRows spikes_;
  EventRows changes_;  // of the adjoint of the current, or of the second state
  bool changes_listed_ = false;
};

struct Workspace {
  SpikeRowsMemory rows;
  WeightsBySpikes weights_by_spikes;
  WeightsByInputs weights_by_inputs;
  InputsBySpikes inputs;
  LinearAdjoint<1> one_state;
  LinearAdjoint<2> two_states;
  SpikeAdjoint spikes;
  Scratch<float> current;  // a row of currents' gradients
};

// The weight gradient of one band of a convolution without neurons: `grad_output` is the signal.
void run_band_of_currents(const LayerBackwardArgs& a, int64_t task, float* grad, Workspace& w) {
  const ConvShape& s = a.shape;
  const int64_t n = task / a.bands.count;
  const Rows own = output_rows(s, a.bands, task % a.bands.count);
  w.weights_by_inputs.start(a, n, own, grad);
  float* copy = w.current.reserve(s.row() + kGroup);
  for (int64_t t = s.steps - 1; t >= 0; --t) {
    w.weights_by_inputs.begin_step(t);
    for (int64_t y = own.first; y < own.last; ++y) {
      if (!w.weights_by_inputs.sees(y)) continue;
      const int64_t at = (a.frames(t, n) * s.height + y) * s.row();
      w.weights_by_inputs.set_row(y, read_floats(a.grad_output, at, s.row(), copy));
    }
    w.weights_by_inputs.step();
  }
}

// f(adjoint) with that of the layer's neurons.
template <class F>
void with_adjoint(const LayerArgs& a, Workspace& w, const F& f) {
  if (!a.is_linear()) return f(w.spikes);
  a.states == 1 ? f(w.one_state) : f(w.two_states);
}

// `grad` is null where no weight gradient is wanted.
template <class Adjoint>
void run_band(const LayerBackwardArgs& a, int64_t task, float* grad, Workspace& w, Adjoint& adjoint) {
  const ConvShape& s = a.shape;
  const int64_t n = task / a.bands.count, band = task % a.bands.count;
  const Rows own = grad ? output_rows(s, a.bands, band) : Rows{0, 0},
             in = a.grad_input.data ? input_rows(s, a.bands, band) : Rows{0, 0};
  const Rows state = a.grad_start ? output_rows(s, a.bands, band) : Rows{0, 0}, reaching = reaching_rows(s, in);
  const Rows all = either(either(own, state), reaching);
  SpikeRows rows(a, n, all.first, all.last, w.rows);
  if (own.count() && !a.by_inputs) w.weights_by_spikes.start(a, n, own, rows.spikes(), grad);
  if (own.count() && a.by_inputs) w.weights_by_inputs.start(a, n, own, grad);
  if (in.count()) w.inputs.start(a, n, in, reaching);
  const bool srm = a.is_srm();
  // The inputs of SRM neurons have a signal of their own.
  const Rows walked = srm ? either(own, state) : all;
  adjoint.start(a, n, walked);
  for (int64_t t = s.steps - 1; t >= 0; --t) {
    if (in.count()) w.inputs.begin_step();
    if (own.count() && a.by_inputs) w.weights_by_inputs.begin_step(t);
    for (int64_t y = all.first; y < all.last; ++y) {
      const SpikeRow spikes = rows.next();
      if (srm && reaching.has(y)) w.inputs.add_row(t, y, spikes);
      if (srm && state.has(y)) w.spikes.step_input(y, spikes);
      if (!walked.has(y)) continue;
      const bool dense = own.has(y) && a.by_inputs && w.weights_by_inputs.sees(y);
      const float *signal = adjoint.step(y, spikes, dense), *to_v = adjoint.to_membrane(), *to_i = adjoint.to_current();
      if (dense) w.weights_by_inputs.set_row(y, signal);
      if (own.has(y) && !a.by_inputs) w.weights_by_spikes.add_amounts(t, y, spikes, to_v, to_i);
      if (!srm && reaching.has(y)) w.inputs.add_amounts(spikes, to_v, to_i);
    }
    if (in.count()) w.inputs.step(t);
    if (own.count() && a.by_inputs) w.weights_by_inputs.step();
  }
  if (own.count() && !a.by_inputs) w.weights_by_spikes.run();
  for (int64_t y = state.first; y < state.last; ++y) adjoint.finish(y, a.grad_start);
}

// The dense signals a and b from the record of the spikes, for a dense backward pass, and what comes back to the state.
template <class Adjoint>
void run_band_of_signals(const LayerSignalsArgs& args, int64_t task, Workspace& w, Adjoint& adjoint) {
  const ConvShape& s = args.shape;
  const int64_t n = task / args.bands.count;
  const size_t bytes = size_t(s.row()) * sizeof(float);
  const Rows own = output_rows(s, args.bands, task % args.bands.count);
  const bool srm = args.is_srm();
  SpikeRows rows(args, n, own.first, own.last, w.rows);
  adjoint.start(args, n, own);
  for (int64_t t = s.steps - 1; t >= 0; --t) {
    for (int64_t y = own.first; y < own.last; ++y) {
      const int64_t at = (args.frames(t, n) * s.height + y) * s.row();
      const SpikeRow spikes = rows.next();
      if (args.a || args.grad_start) {
        const float* signal = adjoint.step(y, spikes, args.a);
        if (args.a) std::memcpy(args.a + at, signal, bytes);
      }
      if (srm && (args.b || args.grad_start)) {
        const float* signal = w.spikes.step_input(y, spikes);
        if (args.b) std::memcpy(args.b + at, signal, bytes);
      }
    }
  }
  for (int64_t y = own.first; args.grad_start && y < own.last; ++y) adjoint.finish(y, args.grad_start);
}

// Sums of the blocks in their order, so that the number of threads changes nothing.
void sum_blocks(const LayerBackwardArgs& a, int64_t blocks) {
  constexpr int64_t kChunk = 4096;
  const int64_t floats = a.block_floats;
  parallel_for((floats + kChunk - 1) / kChunk, a.executor.threads(), [&](int64_t chunk) {
    const int64_t end = (chunk + 1) * kChunk < floats ? (chunk + 1) * kChunk : floats;
    for (int64_t i = chunk * kChunk; i < end; ++i) a.grad_weight[i] = 0.0f;
    for (int64_t b = 0; b < blocks; ++b) {
      const float* __restrict block = a.grad_weight_blocks + b * floats;
      float* __restrict sum = a.grad_weight;
      SNNLIB_SIMD
      for (int64_t i = chunk * kChunk; i < end; ++i) sum[i] += block[i];
    }
  });
}

}  // namespace

void layer_backward(const LayerBackwardArgs& a) {
  const int64_t tasks = a.shape.batch * a.bands.count, blocks = (tasks + a.tasks_per_block - 1) / a.tasks_per_block;
  parallel_for(blocks, a.executor.threads(), [&](int64_t block) {
    thread_local Workspace local;
    Workspace& workspace = of_thread(local);
    const int64_t end = (block + 1) * a.tasks_per_block < tasks ? (block + 1) * a.tasks_per_block : tasks;
    float* grad = a.grad_weight_blocks ? a.grad_weight_blocks + block * a.block_floats : nullptr;
    if (grad) std::memset(grad, 0, size_t(a.block_floats) * sizeof(float));
    for (int64_t task = block * a.tasks_per_block; task < end; ++task) {
      if (a.gives_currents()) {
        run_band_of_currents(a, task, grad, workspace);
      } else {
        with_adjoint(a, workspace, [&](auto& adjoint) { run_band(a, task, grad, workspace, adjoint); });
      }
    }
  });
  if (a.grad_weight_blocks) sum_blocks(a, blocks);
}

void layer_signals(const LayerSignalsArgs& a) {
  parallel_for(a.shape.batch * a.bands.count, a.executor.threads(), [&](int64_t task) {
    thread_local Workspace local;
    Workspace& workspace = of_thread(local);
    with_adjoint(a, workspace, [&](auto& adjoint) { run_band_of_signals(a, task, workspace, adjoint); });
  });
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
