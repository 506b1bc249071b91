// Neurons of one state and the average of their spikes over windows of 2 x 2 cells on the CPU. A block is some windows
// of one row of windows, with a range of channels; its cells walk through all time steps with their states in the L1
// cache. Spikes are never stored, and gradients of windows are read where a cell wants its quarter.
#include "snnlib/scan_pool.h"

#include "snnlib/isa.h"
#include "snnlib/parallel.h"
#include "snnlib/scratch.h"
#include "snnlib/sequence_lines.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

using Vec = StateVector<float>;
using Coefficients = LinearCoefficients<1, Vec>;
using Cells = Line<float>;
using State = LinearState<1, Vec>;
using Carry = LinearCarry<1, Vec>;

constexpr int64_t kCells = 4, kLineNeurons = Cells::kNeurons, kVectors = Cells::kVectors, kVecLanes = Cells::kLanes;
// As in scan.cpp: 4 KiB of each of two rows of cells, and what the repeated forward may occupy in the L2 cache.
constexpr int64_t kBlockLines = 2048 / kLineNeurons, kScratchBytes = 512 << 10;
// Lines of cells per task: long enough to hide the scheduling.
constexpr int64_t kTaskLines = 8192 / kLineNeurons;

// How the windows and channels of a call are divided, in lines of 16 channels.
struct Windows {
  int64_t samples, channels, lines, columns, rows;  // rows and columns of windows
  int64_t lines_of_block, columns_of_block, line_blocks, column_blocks;

  // Blocks of at most `most` lines of cells, and at least one window of a line.
  Windows(const ScanArgs& a, const CellPlanes& p, int64_t most)
      : samples(a.view.outer * (a.view.inner / (p.channels * p.height * p.width))),
        channels(p.channels),
        lines(p.channels / kLineNeurons),
        columns(p.width / 2),
        rows(p.height / 2) {
    lines_of_block = at_most(lines, most / kCells);
    columns_of_block = at_most(columns, most / kCells / lines_of_block);
    line_blocks = (lines + lines_of_block - 1) / lines_of_block;
    column_blocks = (columns + columns_of_block - 1) / columns_of_block;
  }
  static int64_t at_most(int64_t wanted, int64_t room) {
    const int64_t most = room < 1 ? 1 : room;
    return wanted < most ? wanted : most;
  }
  int64_t blocks() const { return samples * rows * column_blocks * line_blocks; }
  // Cells of a sample.
  int64_t cells() const { return kCells * rows * columns * channels; }
  int64_t lines_in_block() const { return kCells * lines_of_block * columns_of_block; }
};

struct Block {
  int64_t sample, row, column, columns, line, lines;

  Block(const Windows& w, int64_t number) {
    line = number % w.line_blocks * w.lines_of_block;
    column = number / w.line_blocks % w.column_blocks * w.columns_of_block;
    row = number / (w.line_blocks * w.column_blocks) % w.rows;
    sample = number / (w.line_blocks * w.column_blocks * w.rows);
    columns = w.columns - column < w.columns_of_block ? w.columns - column : w.columns_of_block;
    lines = w.lines - line < w.lines_of_block ? w.lines - line : w.lines_of_block;
  }
  // The first element in a step of its sample: among windows, and among cells.
  int64_t window(const Windows& w) const { return (row * w.columns + column) * w.channels + line * kLineNeurons; }
  int64_t cell(const Windows& w) const {
    return (row * w.columns * kCells + column * 2) * w.channels + line * kLineNeurons;
  }
  // Where the sample begins in a sequence of cells: [outer] or side by side in a step.
  int64_t start(const SequenceView& view, const Windows& w) const {
    const int64_t in_step = view.inner / w.cells();
    return view.offset(sample / in_step, 0, sample % in_step * w.cells());
  }
  // f(number of the line of windows in the block, its line of channels, first window, first cell) in the order of
  // windows; numbers of elements count from those of the block.
  template <class F>
  void for_each_line(const Windows& w, const F& f) const {
    for (int64_t x = 0; x < columns; ++x) {
      for (int64_t i = 0; i < lines; ++i) {
        const int64_t channel = i * kLineNeurons;
        f(x * lines + i, i, x * w.channels + channel, 2 * x * w.channels + channel);
      }
    }
  }
};

// Where the four cells of a window lie, in elements from the first.
struct Offsets {
  int64_t cell[kCells];
  explicit Offsets(const Windows& w)
      : cell{0, w.channels, 2 * w.columns * w.channels, (2 * w.columns + 1) * w.channels} {}
};

// The coefficients of the channels of a block, one for all where they do not differ.
SNNLIB_NOINLINE const Coefficients* load_coefficients(const ScanArgs& a, const Block& block) {
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

// f(number of the vector in the block, number of its first element among the states) for the cells of a block.
template <class F>
void for_each_state(const Windows& w, const Offsets& offsets, const Block& block, const F& f) {
  const int64_t at = block.sample * w.cells() + block.cell(w);
  block.for_each_line(w, [&](int64_t number, int64_t, int64_t, int64_t first) {
    for (int64_t cell = 0; cell < kCells; ++cell) {
      for (int64_t j = 0; j < kVectors; ++j) {
        f((number * kCells + cell) * kVectors + j, at + first + offsets.cell[cell] + j * kVecLanes);
      }
    }
  });
}

SNNLIB_NOINLINE State* load_states(const ScanArgs& a, const Windows& w, const Offsets& offsets, const Block& block) {
  thread_local Scratch<State> memory;
  State* states = memory.zeroed(w.lines_in_block() * kVectors);
  const float* in = static_cast<const float*>(a.state_in);
  if (in) {
    for_each_state(w, offsets, block,
                   [&](int64_t v, int64_t at) { states[v].y[0] = load_lanes<float>(in + at, kVecLanes); });
  }
  return states;
}

// f(row of cells, ...) line by line, one row of a block's cells after the other: rows are often whole pages apart, and
// more lines at once would fall into the same places of a cache.
template <class F>
void for_each_row(const Windows& w, const Block& block, const F& f) {
  for (int64_t high = 0; high < 2; ++high) {
    block.for_each_line(
        w, [&](int64_t number, int64_t line, int64_t window, int64_t first) { f(high, number, line, window, first); });
  }
}

template <bool Usual>
void forward_block(const ScanPoolForwardArgs& args, const Windows& w, const Offsets& offsets, const Block& block,
                   bool streamed) {
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
    for_each_row(w, block, [&](int64_t high, int64_t number, int64_t line, int64_t window, int64_t first) {
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
  for_each_state(w, offsets, block,
                 [&](int64_t v, int64_t at) { store_lanes<float>(out + at, states[v].y[0], kVecLanes); });
  if (streamed) finish_streams();
}

template <bool Usual>
void backward_block(const ScanPoolBackwardArgs& args, const Windows& w, const Offsets& offsets, const Block& block,
                    bool streamed) {
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
    for_each_row(w, block, [&](int64_t high, int64_t number, int64_t line, int64_t, int64_t first) {
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
    for_each_state(w, offsets, block,
                   [&](int64_t v, int64_t at) { carry[v].g[0] = load_lanes<float>(from + at, kVecLanes); });
  }
  Coefficients unused;
  for_each_step_group_reversed(a.view.steps, [&](auto group, int64_t t) {
    constexpr int kRows = decltype(group)::value;
    const float* now = grad + t * (stride / kCells);
    const float* next = t >= kRows ? now - kRows * (stride / kCells) : now;
    for_each_row(w, block, [&](int64_t high, int64_t number, int64_t line, int64_t window, int64_t first) {
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
  for_each_state(w, offsets, block,
                 [&](int64_t v, int64_t at) { store_lanes<float>(to + at, carry[v].g[0], kVecLanes); });
  if (streamed) finish_streams();
}

template <class F>
void for_each_block(const Windows& w, int threads, const F& f) {
  const int64_t per_task = kTaskLines > w.lines_in_block() ? kTaskLines / w.lines_in_block() : 1, total = w.blocks();
  parallel_for((total + per_task - 1) / per_task, threads, [&](int64_t task) {
    const int64_t end = (task + 1) * per_task < total ? (task + 1) * per_task : total;
    for (int64_t number = task * per_task; number < end; ++number) f(Block(w, number));
  });
}

void forward(const ScanPoolForwardArgs& a) {
  const Windows w(a.scan, a.planes, kBlockLines);
  const Offsets offsets(w);
  const SequenceView& view = a.scan.view;
  const bool streamed = streamable(a.scan.value, w.samples * view.steps * w.cells() / kCells * int64_t(sizeof(float)),
                                   view.step_stride / kCells * int64_t(sizeof(float)));
  for_each_block(w, a.scan.executor.threads(), [&](const Block& block) {
    is_usual(a.scan.flags) ? forward_block<true>(a, w, offsets, block, streamed)
                           : forward_block<false>(a, w, offsets, block, streamed);
  });
}

void backward(const ScanPoolBackwardArgs& a) {
  const SequenceView& view = a.scan.view;
  const int64_t steps = view.steps > 0 ? view.steps : 1, room = kScratchBytes / (steps * kCacheLine);
  const Windows w(a.scan, a.planes, room < kBlockLines ? room : kBlockLines);
  const Offsets offsets(w);
  const bool streamed = streamable_sequence<float>(view, a.scan.grad_current);
  for_each_block(w, a.scan.executor.threads(), [&](const Block& block) {
    is_usual(a.scan.flags) ? backward_block<true>(a, w, offsets, block, streamed)
                           : backward_block<false>(a, w, offsets, block, streamed);
  });
}

}  // namespace

extern const ScanPoolKernels scan_pool_kernels = {forward, backward};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
