// Backward of convolution and SRM neurons, driven by the output spikes that the forward pass recorded. A task is one
// band of one sample: of output rows for the weights, of input rows for the inputs. Each first goes back in time from
// spike to spike; the weights then go forward with the input traces.
#include "snnlib/kernels/event_rows.h"
#include "snnlib/kernels/input_row.h"
#include "snnlib/kernels/spike_record.h"
#include "snnlib/kernels/spike_rows.h"
#include "snnlib/parallel.h"
#include "snnlib/srm_conv.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

struct Workspace {
  Scratch<float> decay, in_row, trace_u, trace_s, field;
  SpikeRowsMemory rows;
  Scratch<NextSpike> next;
  Scratch<Pick> picks;
  Scratch<Place> places;
  EventRows spikes;
};

int64_t clamp(int64_t i, int64_t low, int64_t high) { return i < low ? low : i < high ? i : high; }

// A step of the input traces of one row; `x` may be read up to padded(n).
SNNLIB_NOINLINE void step_traces(const float* x, int64_t n, const SrmDecay<float>& k, float* trace_u, float* trace_s) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const Floats sum = load(trace_s + i) + load(x + i);
    store(trace_u + i, load(trace_u + i) * k.e_m + sum * k.r_s);
    store(trace_s + i, sum * k.e_s);
  }
}

void weight_band(const SrmConvBackwardArgs& a, int64_t task, const DecayTable& decay, float* grad, Workspace& w) {
  const ConvShape& s = a.shape;
  const int64_t n = task / a.bands.count, first = task % a.bands.count * a.bands.rows;
  const int64_t last = first + a.bands.rows < s.height ? first + a.bands.rows : s.height;
  const int64_t length = s.kernel_w * s.in_channels, stored = padded(length);
  const SpikeRows rows(a, n, first, last, w.rows);
  const int64_t record = a.task_starts[task];

  Place* places = w.places.reserve(s.row());
  for (int64_t i = 0; i < s.row(); ++i) {
    const int64_t x = i / s.channels, o = i % s.channels;
    places[i] = {int32_t(x * s.stride_w * s.in_channels), int32_t(o * stored)};
  }
  Pick* picks = w.picks.reserve(a.task_starts[task + 1] - record);
  NextSpike* next = rows.no_next(w.next);
  for (int64_t t = s.steps - 1; t >= 0; --t) {
    for (int64_t y = first; y < last; ++y) {
      NextSpike* next_row = next + (y - first) * s.row();
      rows.for_each(t, y, [&](int64_t place, int64_t number, float q) {
        NextSpike& later = next_row[place];
        const int64_t distance = later.step - t;
        const float amount = q * a.slope[number];
        picks[number - record] = {places[place].at, places[place].row, amount - later.amount * decay.e_m[distance],
                                  -(later.amount * decay.k[distance])};
        later = {amount, int32_t(t)};
      });
    }
  }

  const SrmDecay<float> k{float(a.constants.e_m), float(a.constants.e_s), float(a.constants.e_g),
                          float(a.constants.r_s)};
  const int64_t in_first = clamp(first * s.stride_h - s.padding_h, 0, s.in_height);
  const int64_t in_last = clamp((last - 1) * s.stride_h - s.padding_h + s.kernel_h, 0, s.in_height);
  // Trace rows start at column -padding and end with room for a whole vector.
  const int64_t in_row = s.in_width * s.in_channels, margin = s.padding_w * s.in_channels;
  const int64_t trace_row = padded(in_row + 2 * margin + kGroup);
  float* trace_u = w.trace_u.zeroed((in_last - in_first) * trace_row);
  float* trace_s = w.trace_s.zeroed((in_last - in_first) * trace_row);
  float* x = w.in_row.zeroed(padded(in_row));
  for (int64_t t = 0; t < s.steps; ++t) {
    for (int64_t y = in_first; y < in_last; ++y) {
      copy_row(a.input, s, t, n, y, x);
      const int64_t at = (y - in_first) * trace_row + margin;
      step_traces(x, in_row, k, trace_u + at, trace_s + at);
    }
    const Pick* pick = picks + (rows.start(t, first) - record);
    for (int64_t y = first; y < last; ++y) {
      const bool at_end = t == s.steps - 1 && y == last - 1;
      const int64_t stop = at_end         ? a.task_starts[task + 1]
                           : y < last - 1 ? rows.start(t, y + 1)
                                          : rows.start(t + 1, first);
      const Pick* end = picks + (stop - record);
      // Kernel rows whose input row exists.
      const int64_t top = y * s.stride_h - s.padding_h;
      const int64_t ky_first = clamp(in_first - top, 0, s.kernel_h), ky_last = clamp(in_last - top, 0, s.kernel_h);
      const int64_t at = (top + ky_first - in_first) * trace_row, grad_row = s.channels * stored;
      if (length <= kGroup) {
        collect_narrow(pick, end, trace_u + at, trace_s + at, trace_row, grad + ky_first * grad_row, grad_row,
                       ky_last - ky_first);
      } else {
        for (int64_t ky = ky_first; ky < ky_last; ++ky) {
          const int64_t down = at + (ky - ky_first) * trace_row;
          collect(pick, end, trace_u + down, trace_s + down, grad + ky * grad_row, length);
        }
      }
      pick = end;
    }
  }
}

// dL/dx of one row: x V, and 0 where there is no event.
SNNLIB_NOINLINE void input_gradient(const float* __restrict x, const float* __restrict field, int64_t n, float scale,
                                    float* __restrict grad) {
  SNNLIB_SIMD
  for (int64_t i = 0; i < n; ++i) {
    const float product = x[i] * field[i] * scale;
    grad[i] = x[i] == 0.0f ? 0.0f : product;
  }
}

void input_band(const SrmConvBackwardArgs& a, int64_t task, const DecayTable& decay, Workspace& w) {
  const ConvShape& s = a.shape;
  const int64_t n = task / a.bands.count, in_rows = (s.in_height + a.bands.count - 1) / a.bands.count;
  const int64_t in_first = task % a.bands.count * in_rows;
  const int64_t in_last = in_first + in_rows < s.in_height ? in_first + in_rows : s.in_height;
  if (in_first >= in_last) return;
  // Output rows whose kernel reaches these input rows.
  const int64_t reach = in_first + s.padding_h - s.kernel_h + 1;
  const int64_t first = reach <= 0 ? 0 : clamp((reach + s.stride_h - 1) / s.stride_h, 0, s.height);
  const int64_t last = clamp((in_last - 1 + s.padding_h) / s.stride_h + 1, first, s.height);
  const SpikeRows rows(a, n, first, last, w.rows);

  const RowConv conv{a.scatter,     s.width,    s.channels, s.in_width,
                     s.in_channels, s.kernel_w, s.stride_w, s.kernel_w - 1 - s.padding_w};
  const int64_t in_row = s.in_width * s.in_channels, tile = padded(conv.tile_floats());
  float* field = w.field.zeroed((in_last - in_first) * tile);
  float* x = w.in_row.zeroed(padded(in_row));
  NextSpike* next = rows.no_next(w.next);
  w.spikes.start(conv, last - first);
  for (int64_t t = s.steps - 1; t >= 0; --t) {
    w.spikes.clear();
    w.spikes.not_binary();
    for (int64_t y = first; y < last; ++y) {
      NextSpike* next_row = next + (y - first) * s.row();
      Event* event = w.spikes.place_next();
      rows.for_each(t, y, [&](int64_t place, int64_t number, float q) {
        NextSpike& later = next_row[place];
        const float amount = q * a.gain[number];
        const float change = amount - later.amount * decay.e_g[later.step - t];
        const Place& at = w.spikes.place(place);
        *event++ = {at.at, at.row, decay.e_g[1] * change};
        later = {amount, int32_t(t)};
      });
      w.spikes.finish_row(event);
    }
    for (int64_t iy = in_first; iy < in_last; ++iy) {
      float* row = field + (iy - in_first) * tile;
      for (int64_t i = 0; i < tile; i += kLanes) store(row + i, load(row + i) * decay.e_g[1]);
      for (int64_t ky = 0; ky < s.kernel_h; ++ky) {
        const int64_t offset = iy + s.padding_h - ky;
        if (offset < 0 || offset % s.stride_h || offset / s.stride_h < first || offset / s.stride_h >= last) continue;
        w.spikes.add_kernel_row(offset / s.stride_h - first, a.weight + ky * conv.kernel_row_floats(), row);
      }
      copy_row(a.input, s, t, n, iy, x);
      input_gradient(x, row + conv.first_pixel(), in_row, a.input_grad_scale,
                     a.grad_input + (a.input_frames(t, n) * s.in_height + iy) * in_row);
    }
  }
}

// Sums of the blocks in their order, so that the number of threads changes nothing.
void sum_blocks(const SrmConvBackwardArgs& a, int64_t blocks, int64_t floats) {
  constexpr int64_t kChunk = 4096;
  parallel_for((floats + kChunk - 1) / kChunk, a.threads, [&](int64_t chunk) {
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

void srm_conv_backward(const SrmConvBackwardArgs& a) {
  const ConvShape& s = a.shape;
  const int64_t tasks = s.batch * a.bands.count, blocks = (tasks + a.tasks_per_block - 1) / a.tasks_per_block;
  const int64_t floats = s.kernel_h * s.channels * padded(s.kernel_w * s.in_channels);
  parallel_for(blocks, a.threads, [&](int64_t block) {
    thread_local Workspace workspace;
    const DecayTable decay(workspace.decay.reserve(DecayTable::floats(s.steps)), s.steps, a.constants);
    const int64_t end = (block + 1) * a.tasks_per_block < tasks ? (block + 1) * a.tasks_per_block : tasks;
    float* grad = a.grad_weight_blocks ? a.grad_weight_blocks + block * floats : nullptr;
    if (grad) std::memset(grad, 0, size_t(floats) * sizeof(float));
    for (int64_t task = block * a.tasks_per_block; task < end; ++task) {
      if (grad) weight_band(a, task, decay, grad, workspace);
      if (a.grad_input) input_band(a, task, decay, workspace);
    }
  });
  if (a.grad_weight_blocks) sum_blocks(a, blocks, floats);
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
