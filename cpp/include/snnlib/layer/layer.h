// Event-driven convolution and neurons as one kernel: the launchers that the bindings call. Math: neurons/srm.h,
// neurons/linear.h, neurons/credit.h, events/conv.h, layer/rows.h, layer/adjoint.h.
#pragma once

#include <cstdint>

#include "snnlib/core/dtype.h"
#include "snnlib/core/simd.h"
#include "snnlib/neurons/credit.h"
#include "snnlib/neurons/linear.h"
#include "snnlib/neurons/srm.h"

namespace snnlib {

// Frames are channels-last, [height, width, channels]; the kernel of a fully connected layer is as large as the image.
struct ConvShape {
  int64_t steps, batch;
  int64_t in_channels, in_height, in_width;
  int64_t channels, height, width;
  int64_t kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w;
  SNNLIB_FIELDS(steps, batch, in_channels, in_height, in_width, channels, height, width, kernel_h, kernel_w, stride_h,
                stride_w, padding_h, padding_w)

  int64_t row() const { return width * channels; }
  // 16-bit words of one row's spike bits.
  int64_t row_words() const { return (row() + 15) / 16; }
};

// Average pooling of the spikes in windows without overlap, as part of the kernel; 1x1 leaves them as they are. Rows
// and columns that fill no window are left out.
struct PoolWindow {
  int64_t h, w;
  SNNLIB_FIELDS(h, w)

  bool none() const { return h == 1 && w == 1; }
};

// Where frame (t, n) starts, in frames.
struct FrameOrder {
  int64_t step_stride, batch_stride;
  SNNLIB_FIELDS(step_stride, batch_stride)

  int64_t operator()(int64_t t, int64_t n) const { return t * step_stride + n * batch_stride; }
};

struct InputSequence {
  Elements elements;
  int64_t step, batch, channel, height, width;  // strides in elements
  SNNLIB_FIELDS(elements, step, batch, channel, height, width)
};

// The neurons of a layer: of one or two linear states (neurons/linear.h), none, which gives currents, or whose spike
// times are differentiated (neurons/credit.h), SRM neurons among them.
enum class LayerNeuron : int { kLinear, kNone, kSpikeTime };

// Neurons of one or two linear states (LinearFlags) or whose spike times are differentiated (SynapseFlags).
template <class Flags>
struct NeuronOf {
  // Coefficients [rows][period] with period 1 or the number of channels.
  const float* rows;
  int64_t period;
  Flags flags;
  SNNLIB_FIELDS(rows, period, flags)
};
using LinearNeuron = NeuronOf<LinearFlags>;
using ExactNeuron = NeuronOf<SynapseFlags>;

// (slope, gain) of every spike of one task, in the order (step, row, place in the row): min(1/delta_u, clamp) and
// 1/delta_ut, each 0 where the neuron has no rise. Of neurons with exact times: (rise, passed). Of linear neurons: u of
// every entry (layer/rows.h).
struct TaskSpikes {
  float* slope_gain = nullptr;  // [2][count] or [1][count], from malloc
  int64_t count = 0;
};

// Record of a row that a forward pass keeps for the backward pass. Where entries are few, what vectors without any do
// not need is branched around, which costs more than it saves where they are many; what is kept is the same.
enum class Keep { kNothing, kMany, kFew };

// Counts of a forward pass, made where its rows lie in the L1 cache (`snnlib.profile`).
struct Tally {
  int64_t products = 0;  // sum of the fan-outs of events
  int64_t events = 0;    // nonzero inputs, those that meet no weight among them
  int64_t graded = 0;    // not 0 if there are events other than -1 and 1
  int64_t spikes = 0;    // nonzero outputs of neurons, before pooling
  int64_t unknown = 0;   // not 0 where NaN among them kept these from being counted
};

// The work of a sample is cut into bands of output rows. Bands depend on shapes only, so that no result depends on the
// number of threads.
struct Bands {
  int64_t rows;   // rows of neurons of a band, whole windows
  int64_t count;  // bands of a sample
  SNNLIB_FIELDS(rows, count)
};

// Arguments of all passes.
struct LayerArgs {
  ConvShape shape;
  Bands bands;
  FrameOrder frames;  // of all that lies in the order of the output: its gradient, bits, currents and signals
  PoolWindow pool;
  LayerNeuron neuron;
  int64_t states;  // K of linear neurons: 1 or 2
  // At most one of these is given; the others are zero.
  LinearNeuron linear;
  ExactNeuron exact;
  Executor executor;
  SNNLIB_FIELDS(shape, bands, frames, pool, neuron, states, linear, exact, executor)

  bool gives_currents() const { return neuron == LayerNeuron::kNone; }
  bool is_linear() const { return neuron == LayerNeuron::kLinear; }
  // Means of spikes hand their gradient to the spikes, as each of them is moved, and not in equal parts to all cells.
  bool moves_spikes() const { return neuron == LayerNeuron::kSpikeTime; }
  // True if inputs have a signal of their own.
  bool is_srm() const { return moves_spikes() && exact.flags.srm; }
  bool times_spikes() const { return moves_spikes() && !exact.flags.srm; }
  // True if what spikes and near-threshold steps change comes to the inputs by two states.
  bool has_two_fields() const { return times_spikes() || (is_linear() && states == 2); }
  // A coefficient of neurons whose spikes are moved, which all channels share.
  float shared(int row) const { return exact.rows[row * exact.period]; }
};

struct LayerForwardArgs : LayerArgs {
  InputSequence input;
  // [kernel_h][...] as `scatter` or `gather` of events/conv.h want them; null with `current`. The bindings fill it.
  const float* weight;
  bool scatter;
  const float* current;  // given instead of being computed from events
  const float* state_in;
  float* state_out;
  Elements output;  // spikes, pooled
  // Record for backward, null where nothing is to be kept.
  uint16_t* bits;
  TaskSpikes* tasks;  // [batch * bands.count]
  // The numbers of all entries where every neuron has one in each step, task by task; null: `tasks` collect them.
  float* entries;
  // Nonzero weights that an input cell meets, [in_height, in_width, in_channels], and what is counted with them for
  // each task; null where nothing is. A pass that keeps entries does not count.
  const int32_t* fan_out;
  Tally* tallies;
  SNNLIB_MORE_FIELDS(LayerArgs, input, scatter, current, state_in, state_out, output, bits, entries, fan_out)
};

// Record of a forward pass of its spikes, and the gradient that comes back to them.
struct LayerRecord : LayerArgs {
  const uint16_t* bits;
  const float* slope;
  const float* gain;
  const int64_t* task_starts;  // [batch * bands.count + 1]
  Elements output;             // of the forward pass; read if neurons whose spikes are moved have a pool
  Elements grad_output;
  // dL/dstate after the last step, [K][batch][height][row], with K = 3 (u, s, g) of SRM neurons; of linear neurons
  // dL/dh there (layer/adjoint.h). Null: zero.
  const float* grad_state;
  SNNLIB_MORE_FIELDS(LayerArgs, bits, slope, gain, task_starts, output, grad_output, grad_state)

  const float* grad_state_row(int64_t variable, int64_t n, int64_t y) const {
    return grad_state + ((variable * shape.batch + n) * shape.height + y) * shape.row();
  }
};

struct LayerBackwardArgs : LayerRecord {
  InputSequence input;
  // dL/dW of each block of tasks and their sum in order, `block_floats` each, by events of the inputs, with so many
  // output channels at a time (16 or 32), or 0: by output spikes. Layouts: layer/weights_by_inputs.h and
  // weights_by_spikes.h. The bindings allocate them.
  int64_t by_inputs;
  float* grad_weight_blocks;
  float* grad_weight;
  int64_t block_floats;
  int64_t tasks_per_block;
  // dL/dx in `input_frames` channels-last frames, with the weight as `scatter` or `gather` want it, which the bindings
  // fill; null: not wanted.
  Elements grad_input;
  FrameOrder input_frames;
  const float* weight;
  bool scatter;
  float input_grad_scale;
  // dL/dstate before the first step, as `grad_state`; null: not wanted.
  float* grad_start;
  SNNLIB_MORE_FIELDS(LayerRecord, input, by_inputs, block_floats, tasks_per_block, grad_input, input_frames, scatter,
                     input_grad_scale, grad_start)
};

// The signals a and b of neurons/srm.h, channels-last, and dL/dstate before the first step, as `grad_state`; each null
// where it is not wanted.
struct LayerSignalsArgs : LayerRecord {
  float* a;
  float* b;
  float* grad_start;
  SNNLIB_MORE_FIELDS(LayerRecord, a, b, grad_start)
};

struct LayerKernels {
  void (*forward)(const LayerForwardArgs&);
  void (*backward)(const LayerBackwardArgs&);
  void (*signals)(const LayerSignalsArgs&);
};

namespace SNNLIB_ISA {

inline int64_t clamp(int64_t i, int64_t low, int64_t high) { return i < low ? low : i < high ? i : high; }

// Rows [first, last) of an image.
struct Rows {
  int64_t first, last;

  int64_t count() const { return last - first; }
  bool has(int64_t y) const { return y >= first && y < last; }
};

inline Rows either(const Rows& a, const Rows& b) {
  if (!a.count() || !b.count()) return a.count() ? a : b;
  return {a.first < b.first ? a.first : b.first, a.last > b.last ? a.last : b.last};
}

// Rows of neurons of a band.
inline Rows output_rows(const ConvShape& s, const Bands& bands, int64_t band) {
  return {band * bands.rows, clamp((band + 1) * bands.rows, 0, s.height)};
}

// Input rows in equal shares of the image.
inline Rows input_rows(const ConvShape& s, const Bands& bands, int64_t band) {
  const int64_t height = s.in_height, share = (height + bands.count - 1) / bands.count;
  return {clamp(band * share, 0, height), clamp((band + 1) * share, 0, height)};
}

// Input rows that some output rows see.
inline Rows seen_rows(const ConvShape& s, const Rows& out) {
  return {clamp(out.first * s.stride_h - s.padding_h, 0, s.in_height),
          clamp((out.last - 1) * s.stride_h - s.padding_h + s.kernel_h, 0, s.in_height)};
}

// Output rows whose kernels reach some input rows.
inline Rows reaching_rows(const ConvShape& s, const Rows& in) {
  if (!in.count()) return {0, 0};
  const int64_t reach = in.first + s.padding_h - s.kernel_h + 1;
  const int64_t first = reach <= 0 ? 0 : clamp((reach + s.stride_h - 1) / s.stride_h, 0, s.height);
  return {first, clamp((in.last - 1 + s.padding_h) / s.stride_h + 1, first, s.height)};
}

// The spikes of a row, in ascending order.
struct SpikeRow {
  const int32_t* places;
  const float* q;             // dL/ds of the neurons that fired, by place
  const float *slope, *gain;  // of every spike
  int64_t count;
};

// The mean of a window, and its adjoint.
//
// out[x] = sum over the pixels of window x / cells. Pixel by pixel in whole vectors: the next one overwrites the
// excess.
SNNLIB_NOINLINE inline void pool_columns(const float* sum, int64_t channels, int64_t window, int64_t width, float cells,
                                         float* out) {
  for (int64_t x = 0; x < width; ++x) {
    for (int64_t c = 0; c < channels; c += kLanes) {
      const float* p = sum + x * window * channels + c;
      Floats total = load(p);
      for (int64_t i = 1; i < window; ++i) total += load(p + i * channels);
      store(out + x * channels + c, total / cells);
    }
  }
}

// Spikes of a window from their mean: the nearest integer (below 2^22), so that a mean that was rounded to as few as 8
// bits gives the exact number for up to 255 cells.
inline float spikes_of_mean(float mean, float cells) {
  constexpr float kNoFraction = 3 << 22;
  return mean * cells + kNoFraction - kNoFraction;
}

// The gradient of a window goes whole to its spikes, in equal parts, where these are moved; else to all cells.
SNNLIB_NOINLINE inline void share_among_spikes(const float* grad, const float* pooled, float cells, int64_t n,
                                               float* share) {
  SNNLIB_SIMD
  for (int64_t i = 0; i < n; ++i) share[i] = grad[i] / spikes_of_mean(pooled[i], cells);
}
SNNLIB_NOINLINE inline void share_among_cells(const float* grad, float cells, int64_t n, float* share) {
  SNNLIB_SIMD
  for (int64_t i = 0; i < n; ++i) share[i] = grad[i] / cells;
}

// q of a row from the shares of its row of windows. Pixel by pixel in whole vectors: the next one overwrites the
// excess.
SNNLIB_NOINLINE inline void spread_out(const float* share, int64_t windows, int64_t channels, int64_t window,
                                       float* q) {
  for (int64_t x = 0; x < windows; ++x, share += channels) {
    for (int64_t p = 0; p < window; ++p, q += channels) {
      for (int64_t c = 0; c < channels; c += kLanes) store(q + c, load(share + c));
    }
  }
}

// First element of row y of frame (t, n) of an input sequence in any memory format.
inline int64_t row_start(const InputSequence& x, int64_t t, int64_t n, int64_t y) {
  return t * x.step + n * x.batch + y * x.height;
}

// Torch gives an axis of size 1 any stride.
inline bool is_channels_last(const InputSequence& x, const ConvShape& s) {
  return (x.channel == 1 || s.in_channels == 1) && (x.width == s.in_channels || s.in_width == 1);
}

// Row, channels-last: where it lies, or else a copy in `buffer`.
inline const float* read_row(const InputSequence& x, const ConvShape& s, int64_t t, int64_t n, int64_t y,
                             float* buffer) {
  const int64_t start = row_start(x, t, n, y);
  if (is_channels_last(x, s)) return read_floats(x.elements, start, s.in_width * s.in_channels, buffer);
  typed(x.elements, start, [&](const auto* row) {
    for (int64_t c = 0; c < s.in_channels; ++c) {
      const auto* channel = row + c * x.channel;
      // Channels far apart are a page each, so nothing but this sees the next row coming.
      if (x.width == 1 && y + 1 < s.in_height) prefetch(channel + x.height, s.in_width);
      for (int64_t i = 0; i < s.in_width; ++i) buffer[i * s.in_channels + c] = to_state(channel[i * x.width]);
    }
  });
  return buffer;
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
