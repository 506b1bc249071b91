// Neurons of one state and the average of their spikes over windows of 2 x 2 cells on the CPU. The cells of a block of
// windows walk through all time steps with their states in the L1 cache. Spikes are never stored, and gradients of
// windows are read where a cell wants its quarter.
#include "snnlib/scan_pool.h"

#include "snnlib/isa.h"
#include "snnlib/kernels/window_blocks.h"
#include "snnlib/scratch.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

using Vec = StateVector<float>;
using Coefficients = LinearCoefficients<1, Vec>;
using Cells = Line<float>;
using State = LinearState<1, Vec>;
using Carry = LinearCarry<1, Vec>;

constexpr int64_t kVecLanes = Cells::kLanes;
// As in scan.cpp: 4 KiB of each of two rows of cells, and what the repeated forward may occupy in the L2 cache.
constexpr int64_t kBlockLines = 2048 / kLineNeurons, kScratchBytes = 512 << 10;

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

SNNLIB_NOINLINE State* load_states(const ScanArgs& a, const WindowGrid& w, const CellOffsets& offsets,
                                   const WindowBlock& block) {
  thread_local Scratch<State> memory;
  State* states = memory.zeroed(w.lines_in_block() * kVectors);
  const float* in = static_cast<const float*>(a.state_in);
  if (in) {
    for_each_cell_state(w, offsets, block,
                        [&](int64_t v, int64_t at) { states[v].y[0] = load_lanes<float>(in + at, kVecLanes); });
  }
  return states;
}

template <bool Usual>
void forward_block(const ScanPoolForwardArgs& args, const WindowGrid& w, const CellOffsets& offsets,
                   const WindowBlock& block, bool streamed) {
  const ScanForwardArgs& a = args.scan;
  const Coefficients* coefficients = load_coefficients(a, block);
  State* states = load_states(a, w, offsets, block);
  const LinearFlags flags = Usual ? usual_flags(a.flags.surrogate) : a.flags;
  const int64_t stride = a.view.step_stride, per_vector = a.period != 1;
  const int64_t start = block.start(a.view, w);
  const float* current = static_cast<const float*>(a.current) + start + block.cell(w);
  float* value = static_cast<float*>(a.value) + start / kCells + block.window(w);
  const int64_t beyond = 2 * block.columns * w.channels;
  // Spikes of the upper cells of every window.
  thread_local Scratch<Cells> memory;
  Cells* upper = memory.reserve(w.lines_in_block() / kCells * kSteps);
  for_each_step_group(a.view.steps, [&](auto group, int64_t t) {
    constexpr int kRows = decltype(group)::value;
    const float* now = current + t * stride;
    const float* next = t + kRows < a.view.steps ? now + kRows * stride : current + beyond;
    for_each_cell_row(w, block, [&](int64_t high, int64_t number, int64_t line, int64_t window, int64_t first) {
      Cells* kept = upper + number * kRows;
      Cells sum[kRows] = {};
      if (high) {
        for (int row = 0; row < kRows; ++row) sum[row] = kept[row];
      }
      for (int64_t cell = 2 * high; cell < 2 * high + 2; ++cell) {
        const int64_t at = first + offsets.cell[cell];
        Cells rows[kRows];
        load_rows(now + at, next + at, stride, kLineNeurons, rows);
        for (int64_t j = 0; j < kVectors; ++j) {
          const Coefficients& k = coefficients[per_vector * (line * kVectors + j)];
          State& place = states[(number * kCells + cell) * kVectors + j];
          State state = place;
          for (int row = 0; row < kRows; ++row) {
            const auto out = linear_step<1, false>(state, rows[row].vector[j], k, flags, 1.0f);
            sum[row].vector[j] = sum[row].vector[j] + out.spike;
          }
          place = state;
        }
      }
      for (int row = 0; row < kRows; ++row) {
        if (!high) {
          kept[row] = sum[row];
          continue;
        }
        float* to = value + (t + row) * (stride / kCells) + window;
        for (int64_t j = 0; j < kVectors; ++j) sum[row].vector[j] = sum[row].vector[j] * (1.0f / kCells);
        streamed ? sum[row].template store<true>(to, kLineNeurons) : sum[row].template store<false>(to, kLineNeurons);
      }
    });
  });
  float* out = static_cast<float*>(a.state_out);
  for_each_cell_state(w, offsets, block,
                      [&](int64_t v, int64_t at) { store_lanes<float>(out + at, states[v].y[0], kVecLanes); });
  if (streamed) finish_streams();
}

template <bool Usual>
void backward_block(const ScanPoolBackwardArgs& args, const WindowGrid& w, const CellOffsets& offsets,
                    const WindowBlock& block, bool streamed) {
  const ScanBackwardArgs& a = args.scan;
  const Coefficients* coefficients = load_coefficients(a, block);
  State* states = load_states(a, w, offsets, block);
  const LinearFlags flags = Usual ? usual_flags(a.flags.surrogate) : a.flags;
  const int64_t stride = a.view.step_stride, per_vector = a.period != 1, vectors = w.lines_in_block() * kVectors;
  const int64_t start = block.start(a.view, w);
  const float* current = static_cast<const float*>(a.current) + start + block.cell(w);
  const float* grad = static_cast<const float*>(a.grad_value) + start / kCells + block.window(w);
  float* grad_current = static_cast<float*>(a.grad_current) + start + block.cell(w);
  const int64_t beyond = 2 * block.columns * w.channels;
  // h before the reset, of every vector and step.
  thread_local Scratch<Vec> raws;
  Vec* saved = raws.reserve(a.view.steps * vectors);
  const auto place = [&](int64_t t, int64_t number, int64_t cell, int kRows, int row, int64_t j) {
    return saved + t * vectors + ((number * kCells + cell) * kRows + row) * kVectors + j;
  };
  for_each_step_group(a.view.steps, [&](auto group, int64_t t) {
    constexpr int kRows = decltype(group)::value;
    const float* now = current + t * stride;
    const float* next = t + kRows < a.view.steps ? now + kRows * stride : now;
    for_each_cell_row(w, block, [&](int64_t high, int64_t number, int64_t line, int64_t, int64_t first) {
      for (int64_t cell = 2 * high; cell < 2 * high + 2; ++cell) {
        const int64_t at = first + offsets.cell[cell];
        Cells rows[kRows];
        load_rows(now + at, next + at, stride, kLineNeurons, rows);
        for (int64_t j = 0; j < kVectors; ++j) {
          const Coefficients& k = coefficients[per_vector * (line * kVectors + j)];
          State& kept = states[(number * kCells + cell) * kVectors + j];
          State state = kept;
          for (int row = 0; row < kRows; ++row) {
            *place(t, number, cell, kRows, row, j) =
                linear_step<1, false>(state, rows[row].vector[j], k, flags, 1.0f).raw[0];
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
    for_each_cell_state(w, offsets, block,
                        [&](int64_t v, int64_t at) { carry[v].g[0] = load_lanes<float>(from + at, kVecLanes); });
  }
  Coefficients unused;
  for_each_step_group_reversed(a.view.steps, [&](auto group, int64_t t) {
    constexpr int kRows = decltype(group)::value;
    const float* now = grad + t * (stride / kCells);
    const float* next = t >= kRows ? now - kRows * (stride / kCells) : now;
    for_each_cell_row(w, block, [&](int64_t high, int64_t number, int64_t line, int64_t window, int64_t first) {
      Cells shares[kRows];
      load_rows(now + window, next + window, stride / kCells, kLineNeurons, shares);
      for (int row = 0; row < kRows; ++row) {
        for (int64_t j = 0; j < kVectors; ++j) shares[row].vector[j] = shares[row].vector[j] * (1.0f / kCells);
      }
      for (int64_t cell = 2 * high; cell < 2 * high + 2; ++cell) {
        Cells rows[kRows];
        for (int64_t j = 0; j < kVectors; ++j) {
          const Coefficients& k = coefficients[per_vector * (line * kVectors + j)];
          Carry& kept = carry[(number * kCells + cell) * kVectors + j];
          Carry back = kept;
          for (int row = kRows - 1; row >= 0; --row) {
            LinearSeen<1, Vec> seen;
            seen.raw[0] = *place(t, number, cell, kRows, row, j);
            rows[row].vector[j] =
                linear_back<1, false, false>(back, shares[row].vector[j], seen, k, flags, 1.0f, unused);
          }
          kept = back;
        }
        for (int row = 0; row < kRows; ++row) {
          const int64_t at = row * stride + first + offsets.cell[cell];
          // What the next block begins with.
          if (t == 0) prefetch(current + beyond + at);
          float* to = grad_current + t * stride + at;
          streamed ? rows[row].template store<true>(to, kLineNeurons)
                   : rows[row].template store<false>(to, kLineNeurons);
        }
      }
    });
  });
  float* to = static_cast<float*>(a.grad_state_in);
  for_each_cell_state(w, offsets, block,
                      [&](int64_t v, int64_t at) { store_lanes<float>(to + at, carry[v].g[0], kVecLanes); });
  if (streamed) finish_streams();
}

void forward(const ScanPoolForwardArgs& a) {
  const WindowGrid w(a.scan, a.planes, kBlockLines);
  const CellOffsets offsets(w);
  const SequenceView& view = a.scan.view;
  const bool streamed = streamable(a.scan.value, w.samples * view.steps * w.cells() / kCells * int64_t(sizeof(float)),
                                   view.step_stride / kCells * int64_t(sizeof(float)));
  for_each_window_block(w, a.scan.executor.threads(), [&](const WindowBlock& block) {
    is_usual(a.scan.flags) ? forward_block<true>(a, w, offsets, block, streamed)
                           : forward_block<false>(a, w, offsets, block, streamed);
  });
}

void backward(const ScanPoolBackwardArgs& a) {
  const SequenceView& view = a.scan.view;
  const int64_t steps = view.steps > 0 ? view.steps : 1, room = kScratchBytes / (steps * kCacheLine);
  const WindowGrid w(a.scan, a.planes, room < kBlockLines ? room : kBlockLines);
  const CellOffsets offsets(w);
  const bool streamed = streamable_sequence<float>(view, a.scan.grad_current);
  for_each_window_block(w, a.scan.executor.threads(), [&](const WindowBlock& block) {
    is_usual(a.scan.flags) ? backward_block<true>(a, w, offsets, block, streamed)
                           : backward_block<false>(a, w, offsets, block, streamed);
  });
}

}  // namespace

extern const ScanPoolKernels scan_pool_kernels = {forward, backward};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
