// Windows without overlap of channels-last float32 frames in blocks that the threads share. A block is some windows of
// one row of windows, with a range of channels, all of them in cache lines.
#pragma once

#include "snnlib/core/threads.h"
#include "snnlib/loop/lines.h"
#include "snnlib/loop/scan.h"

namespace snnlib {
namespace SNNLIB_ISA {

constexpr int64_t kLineNeurons = Line<float>::kNeurons, kVectors = Line<float>::kVectors;
// Lines of cells per task: long enough to hide the scheduling.
constexpr int64_t kTaskLines = 8192 / kLineNeurons;

// How the windows and channels of a call are divided, in lines of 16 channels.
struct WindowGrid {
  int64_t samples, channels, lines;
  int64_t high, wide, area;  // rows, columns and number of the cells of a window
  int64_t columns, rows;     // of windows
  int64_t lines_of_block, columns_of_block, line_blocks, column_blocks;

  // Blocks of at most `most` lines of cells, and at least one window of a line.
  WindowGrid(const ScanArgs& a, const CellPlanes& p, int64_t most)
      : samples(a.view.outer * (a.view.inner / (p.channels * p.height * p.width))),
        channels(p.channels),
        lines(p.channels / kLineNeurons),
        high(p.window_rows),
        wide(p.window_columns),
        area(high * wide),
        columns(p.width / wide),
        rows(p.height / high) {
    lines_of_block = at_most(lines, most / area);
    columns_of_block = at_most(columns, most / area / lines_of_block);
    line_blocks = (lines + lines_of_block - 1) / lines_of_block;
    column_blocks = (columns + columns_of_block - 1) / columns_of_block;
  }
  static int64_t at_most(int64_t wanted, int64_t room) {
    const int64_t most = room < 1 ? 1 : room;
    return wanted < most ? wanted : most;
  }
  int64_t blocks() const { return samples * rows * column_blocks * line_blocks; }
  // Cells of a sample.
  int64_t cells() const { return rows * columns * area * channels; }
  int64_t lines_in_block() const { return area * lines_of_block * columns_of_block; }
  // Elements from the first cell of a window to cell x of row y.
  int64_t offset(int64_t y, int64_t x) const { return (y * columns * wide + x) * channels; }
};

struct WindowBlock {
  int64_t sample, row, column, columns, line, lines;

  WindowBlock(const WindowGrid& w, int64_t number) {
    line = number % w.line_blocks * w.lines_of_block;
    column = number / w.line_blocks % w.column_blocks * w.columns_of_block;
    row = number / (w.line_blocks * w.column_blocks) % w.rows;
    sample = number / (w.line_blocks * w.column_blocks * w.rows);
    columns = w.columns - column < w.columns_of_block ? w.columns - column : w.columns_of_block;
    lines = w.lines - line < w.lines_of_block ? w.lines - line : w.lines_of_block;
  }
  // The first element in a step of its sample: among windows, and among cells.
  int64_t window(const WindowGrid& w) const { return (row * w.columns + column) * w.channels + line * kLineNeurons; }
  int64_t cell(const WindowGrid& w) const {
    return (row * w.columns * w.area + column * w.wide) * w.channels + line * kLineNeurons;
  }
  // Where the sample begins in a sequence of cells: [outer] or side by side in a step.
  int64_t start(const SequenceView& view, const WindowGrid& w) const {
    const int64_t in_step = view.inner / w.cells();
    return view.offset(sample / in_step, 0, sample % in_step * w.cells());
  }
  // f(number of the line of windows in the block, its line of channels, first window, first cell) in the order of
  // windows; numbers of elements count from those of the block.
  template <class F>
  void for_each_line(const WindowGrid& w, const F& f) const {
    for (int64_t x = 0; x < columns; ++x) {
      for (int64_t i = 0; i < lines; ++i) {
        const int64_t channel = i * kLineNeurons;
        f(x * lines + i, i, x * w.channels + channel, x * w.wide * w.channels + channel);
      }
    }
  }
};

// f(number of the vector in the block, number of its first element among the states) for the cells of a block.
template <class F>
void for_each_cell_state(const WindowGrid& w, const WindowBlock& block, const F& f) {
  const int64_t at = block.sample * w.cells() + block.cell(w);
  block.for_each_line(w, [&](int64_t number, int64_t, int64_t, int64_t first) {
    int64_t v = number * w.area * kVectors;
    for (int64_t y = 0; y < w.high; ++y) {
      for (int64_t x = 0; x < w.wide; ++x) {
        const int64_t place = at + first + w.offset(y, x);
        for (int64_t j = 0; j < kVectors; ++j) f(v++, place + j * Line<float>::kLanes);
      }
    }
  });
}

// f(row of cells, ...) line by line, one row of a block's cells after the other: rows are often whole pages apart, and
// more lines at once would fall into the same places of a cache.
template <class F>
void for_each_cell_row(const WindowGrid& w, const WindowBlock& block, const F& f) {
  for (int64_t y = 0; y < w.high; ++y) {
    block.for_each_line(
        w, [&](int64_t number, int64_t line, int64_t window, int64_t first) { f(y, number, line, window, first); });
  }
}

// f(block) for all blocks of a call.
template <class F>
void for_each_window_block(const WindowGrid& w, int threads, const F& f) {
  const int64_t per_task = kTaskLines > w.lines_in_block() ? kTaskLines / w.lines_in_block() : 1, total = w.blocks();
  parallel_for((total + per_task - 1) / per_task, threads, [&](int64_t task) {
    const int64_t end = (task + 1) * per_task < total ? (task + 1) * per_task : total;
    for (int64_t number = task * per_task; number < end; ++number) f(WindowBlock(w, number));
  });
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
