// Neurons of one state and the average of their spikes over windows without overlap on the CPU. The cells of a block
// of windows walk through all time steps with their states in the L1 cache. Spikes are never stored, and gradients of
// windows are read where a cell wants its share.
#include "snnlib/core/threads.h"
#include "snnlib/loop/scan.h"
#include "snnlib/loop/window_blocks.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

using Vec = StateVector<float>;
using Coefficients = LinearCoefficients<1, Vec>;
using Cells = Line<float>;
using State = LinearState<1, Vec>;
using Carry = LinearCarry<1, Vec>;

constexpr int64_t kVecLanes = Cells::kLanes;
// 4 KiB of each of two rows of cells.
constexpr int64_t kBlockLines = kBlockNeurons / kLineNeurons;

// Rows and columns of a window: of 2 x 2 cells, which most nets have, as constants.
template <bool Small>
struct WindowSize {
  int64_t high, wide;
  explicit WindowSize(const WindowGrid& w) : high(Small ? 2 : w.high), wide(Small ? 2 : w.wide) {}
  // As a pool divides: by a power of two a product has the same bits.
  Vec mean(const Vec& sum) const { return Small ? sum * 0.25f : sum / float(high * wide); }
};

// The coefficients of the channels of a block, one for all where they do not differ.
SNNLIB_NOINLINE const Coefficients* load_coefficients(const ScanArgs& a, const WindowBlock& block) {
  thread_local Scratch<Coefficients> memory;
  const bool own = a.period != 1;
  const int64_t vectors = own ? block.lines * kVectors : 1;
  Coefficients* out = memory.reserve(vectors);
  const float* rows = static_cast<const float*>(a.coefficients);
  for (int64_t v = 0; v < vectors; ++v) {
    for (int row = 0; row < LinearRows<1>::count; ++row) {
      float lanes[kVecLanes];
      for (int64_t j = 0; j < kVecLanes; ++j) {
        lanes[j] = rows[row * a.period + (own ? block.line * kLineNeurons + v * kVecLanes + j : 0)];
      }
      std::memcpy(&out[v].row[row], lanes, sizeof lanes);
    }
  }
  return out;
}

SNNLIB_NOINLINE State* load_states(const ScanArgs& a, const WindowGrid& w, const WindowBlock& block) {
  thread_local Scratch<State> memory;
  State* states = memory.zeroed(w.lines_in_block() * kVectors);
  const float* in = static_cast<const float*>(a.state_in);
  if (in) {
    const int64_t all = a.view.outer * a.view.inner;
    for_each_cell_state(w, block, [&](int64_t v, int64_t at) {
      states[v].y[0] = load_lanes<float>(in + at, kVecLanes);
      if (a.flags.refractory) states[v].left = load_lanes<float>(in + all + at, kVecLanes);
    });
  }
  return states;
}

template <Options O, bool Small>
void forward_block(const ScanPoolForwardArgs& a, const WindowGrid& w, const WindowBlock& block, bool streamed) {
  const Coefficients* coefficients = load_coefficients(a, block);
  State* states = load_states(a, w, block);
  const LinearFlags flags = known_flags<O>(a.flags);
  const int64_t stride = a.view.step_stride, per_vector = a.period != 1;
  const WindowSize<Small> size(w);
  const int64_t start = block.start(a.view, w);
  const float* current = static_cast<const float*>(a.current) + start + block.cell(w);
  float* value = static_cast<float*>(a.value) + start / w.area + block.window(w);
  const int64_t beyond = block.columns * w.wide * w.channels;
  // Spikes of the upper rows of every window.
  thread_local Scratch<Cells> memory;
  Cells* upper = memory.reserve(w.lines_in_block() / w.area * kSteps);
  for_each_step_group(a.view.steps, [&](auto group, int64_t t) {
    constexpr int kRows = decltype(group)::value;
    const float* now = current + t * stride;
    const float* next = t + kRows < a.view.steps ? now + kRows * stride : current + beyond;
    for_each_cell_row(w, block, [&](int64_t y, int64_t number, int64_t line, int64_t window, int64_t first) {
      Cells* kept = upper + number * kRows;
      Cells sum[kRows] = {};
      if (y) {
        for (int row = 0; row < kRows; ++row) sum[row] = kept[row];
      }
      for (int64_t x = 0; x < size.wide; ++x) {
        const int64_t cell = y * size.wide + x, at = first + w.offset(y, x);
        Cells rows[kRows];
        load_rows(now + at, next + at, stride, kLineNeurons, rows);
        for (int64_t j = 0; j < kVectors; ++j) {
          const Coefficients& k = coefficients[per_vector * (line * kVectors + j)];
          State& place = states[(number * size.high * size.wide + cell) * kVectors + j];
          State state = place;
          for (int row = 0; row < kRows; ++row) {
            const auto out = linear_step<1, false>(state, rows[row].vector[j], k, flags, 1.0f);
            sum[row].vector[j] = sum[row].vector[j] + out.spike;
          }
          place = state;
        }
      }
      for (int row = 0; row < kRows; ++row) {
        if (y + 1 < size.high) {
          kept[row] = sum[row];
          continue;
        }
        float* to = value + (t + row) * (stride / w.area) + window;
        for (int64_t j = 0; j < kVectors; ++j) sum[row].vector[j] = size.mean(sum[row].vector[j]);
        streamed ? sum[row].template store<true>(to, kLineNeurons) : sum[row].template store<false>(to, kLineNeurons);
      }
    });
  });
  float* out = static_cast<float*>(a.state_out);
  const int64_t all = a.view.outer * a.view.inner;
  for_each_cell_state(w, block, [&](int64_t v, int64_t at) {
    store_lanes<float>(out + at, states[v].y[0], kVecLanes);
    if (flags.refractory) store_lanes<float>(out + all + at, states[v].left, kVecLanes);
  });
  if (streamed) finish_streams();
}

template <Options O, bool Small>
void backward_block(const ScanPoolBackwardArgs& a, const WindowGrid& w, const WindowBlock& block, bool streamed) {
  const Coefficients* coefficients = load_coefficients(a, block);
  State* states = load_states(a, w, block);
  const LinearFlags flags = known_flags<O>(a.flags);
  const int64_t stride = a.view.step_stride, per_vector = a.period != 1, vectors = w.lines_in_block() * kVectors;
  const int64_t apart = stride / w.area;
  const WindowSize<Small> size(w);
  const int64_t start = block.start(a.view, w);
  const float* current = static_cast<const float*>(a.current) + start + block.cell(w);
  const float* grad = static_cast<const float*>(a.grad_value) + start / w.area + block.window(w);
  float* grad_current = static_cast<float*>(a.grad_current) + start + block.cell(w);
  const int64_t beyond = block.columns * w.wide * w.channels;
  // h before the reset, of every vector and step, and what is left of a refractory time before it.
  const int64_t values = 1 + (flags.refractory != 0);
  thread_local Scratch<Vec> raws;
  Vec* saved = raws.reserve(a.view.steps * vectors * values);
  const auto place = [&](int64_t t, int64_t number, int64_t cell, int kRows, int row, int64_t j) {
    return saved + (t * vectors + ((number * size.high * size.wide + cell) * kRows + row) * kVectors + j) * values;
  };
  for_each_step_group(a.view.steps, [&](auto group, int64_t t) {
    constexpr int kRows = decltype(group)::value;
    const float* now = current + t * stride;
    const float* next = t + kRows < a.view.steps ? now + kRows * stride : now;
    for_each_cell_row(w, block, [&](int64_t y, int64_t number, int64_t line, int64_t, int64_t first) {
      for (int64_t x = 0; x < size.wide; ++x) {
        const int64_t cell = y * size.wide + x, at = first + w.offset(y, x);
        Cells rows[kRows];
        load_rows(now + at, next + at, stride, kLineNeurons, rows);
        for (int64_t j = 0; j < kVectors; ++j) {
          const Coefficients& k = coefficients[per_vector * (line * kVectors + j)];
          State& kept = states[(number * size.high * size.wide + cell) * kVectors + j];
          State state = kept;
          for (int row = 0; row < kRows; ++row) {
            Vec* keep = place(t, number, cell, kRows, row, j);
            if (flags.refractory) keep[1] = state.left;
            keep[0] = linear_step<1, false>(state, rows[row].vector[j], k, flags, 1.0f).raw[0];
          }
          kept = state;
        }
      }
    });
  });
  thread_local Scratch<Carry> memory;
  Carry* carry = memory.zeroed(vectors);
  const float* from = static_cast<const float*>(a.grad_state_out);
  if (from) {
    for_each_cell_state(w, block,
                        [&](int64_t v, int64_t at) { carry[v].g[0] = load_lanes<float>(from + at, kVecLanes); });
  }
  Coefficients unused;
  for_each_step_group_reversed(a.view.steps, [&](auto group, int64_t t) {
    constexpr int kRows = decltype(group)::value;
    const float* now = grad + t * apart;
    const float* next = t >= kRows ? now - kRows * apart : now;
    for_each_cell_row(w, block, [&](int64_t y, int64_t number, int64_t line, int64_t window, int64_t first) {
      Cells shares[kRows];
      load_rows(now + window, next + window, apart, kLineNeurons, shares);
      for (int row = 0; row < kRows; ++row) {
        for (int64_t j = 0; j < kVectors; ++j) shares[row].vector[j] = size.mean(shares[row].vector[j]);
      }
      for (int64_t x = 0; x < size.wide; ++x) {
        const int64_t cell = y * size.wide + x;
        Cells rows[kRows];
        for (int64_t j = 0; j < kVectors; ++j) {
          const Coefficients& k = coefficients[per_vector * (line * kVectors + j)];
          Carry& kept = carry[(number * size.high * size.wide + cell) * kVectors + j];
          Carry back = kept;
          for (int row = kRows - 1; row >= 0; --row) {
            LinearSeen<1, Vec> seen;
            const Vec* keep = place(t, number, cell, kRows, row, j);
            seen.raw[0] = keep[0];
            if (flags.refractory) seen.left = keep[1];
            rows[row].vector[j] =
                linear_back<1, false, false>(back, shares[row].vector[j], seen, k, flags, 1.0f, unused);
          }
          kept = back;
        }
        for (int row = 0; row < kRows; ++row) {
          const int64_t at = row * stride + first + w.offset(y, x);
          // Start of the next block.
          if (t == 0) prefetch(current + beyond + at);
          float* to = grad_current + t * stride + at;
          streamed ? rows[row].template store<true>(to, kLineNeurons)
                   : rows[row].template store<false>(to, kLineNeurons);
        }
      }
    });
  });
  float* to = static_cast<float*>(a.grad_state_in);
  const int64_t all = a.view.outer * a.view.inner;
  for_each_cell_state(w, block, [&](int64_t v, int64_t at) {
    store_lanes<float>(to + at, carry[v].g[0], kVecLanes);
    if (flags.refractory) store_lanes<float>(to + all + at, Vec{}, kVecLanes);
  });
  if (streamed) finish_streams();
}

// f(options, whether windows have 2 x 2 cells), as constants; any options take a loop for windows of any size.
template <class F>
void by_window(const LinearFlags& flags, const WindowGrid& w, const F& f) {
  by_options<true>(flags, [&](auto options) {
    constexpr bool kHasSmall = decltype(options)::value != Options::kAny;
    kHasSmall&& w.high == 2 && w.wide == 2 ? f(options, std::bool_constant<kHasSmall>())
                                           : f(options, std::false_type());
  });
}

void forward(const ScanPoolForwardArgs& a) {
  const WindowGrid w(a, a.planes, kBlockLines);
  const SequenceView& view = a.view;
  const bool streamed = streamable(a.value, w.samples * view.steps * w.cells() / w.area * int64_t(sizeof(float)),
                                   view.step_stride / w.area * int64_t(sizeof(float)));
  for_each_window_block(w, a.executor.threads(), [&](const WindowBlock& block) {
    by_window(a.flags, w, [&](auto options, auto small) {
      forward_block<decltype(options)::value, decltype(small)::value>(a, w, block, streamed);
    });
  });
}

void backward(const ScanPoolBackwardArgs& a) {
  const SequenceView& view = a.view;
  const int64_t steps = view.steps > 0 ? view.steps : 1, values = 1 + (a.flags.refractory != 0);
  const int64_t room = kScratchBytes / (steps * values * kCacheLine);
  const WindowGrid w(a, a.planes, room < kBlockLines ? room : kBlockLines);
  const bool streamed = streamable_sequence<float>(view, a.grad_current);
  for_each_window_block(w, a.executor.threads(), [&](const WindowBlock& block) {
    by_window(a.flags, w, [&](auto options, auto small) {
      backward_block<decltype(options)::value, decltype(small)::value>(a, w, block, streamed);
    });
  });
}

}  // namespace

extern const ScanPoolKernels scan_pool_kernels = {forward, backward};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
