// Batch normalisation on the CPU. Rows go in blocks that stay in the L1 cache; several rows of few channels make one
// long row, so that loops over channels vectorise. Sums of a block are in float32, sums of blocks in double and in the
// order of the blocks, so that no result depends on the threads or the instruction set.
#include "snnlib/batch_norm.h"

#include <type_traits>

#include "snnlib/core/simd.h"
#include "snnlib/core/threads.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

// A row of a block is at least so wide, and a block has about so many values.
constexpr int64_t kWidth = 64, kBlockValues = 4096, kLeastRows = 16;
// Long rows that are added at once.
constexpr int64_t kTogether = 4;

template <int64_t Rows>
using Lines = std::integral_constant<int64_t, Rows>;

struct Blocks {
  int64_t rows, channels, fold, width, per_block, count;

  Blocks(int64_t rows_, int64_t channels_) : rows(rows_), channels(channels_) {
    fold = channels < kWidth ? (kWidth + channels - 1) / channels : 1;
    width = fold * channels;
    const int64_t lines = kBlockValues / width;
    per_block = (lines < kLeastRows ? kLeastRows : lines) * fold;
    count = (rows + per_block - 1) / per_block;
  }
  int64_t size(int64_t block) const {
    const int64_t left = rows - block * per_block;
    return left < per_block ? left : per_block;
  }
  // f(how many long rows, their first value from the start of the block, values of a row), some rows at a time: their
  // sums are read and written once. The last row may be shorter.
  template <class F>
  void for_each_lines(int64_t block, const F& f) const {
    const int64_t values = size(block) * channels;
    int64_t at = 0;
    for (; at + kTogether * width <= values; at += kTogether * width) f(Lines<kTogether>(), at, width);
    for (; at < values; at += width) f(Lines<1>(), at, values - at < width ? values - at : width);
  }
  // Sums of a long row by channel.
  void unfold(const float* line, double* sums) const {
    for (int64_t c = 0; c < channels; ++c) sums[c] = double(line[c]);
    for (int64_t part = 1; part < fold; ++part) {
      for (int64_t c = 0; c < channels; ++c) sums[c] += double(line[part * channels + c]);
    }
  }
  void spread(const double* numbers, float* line) const {
    for (int64_t part = 0; part < fold; ++part, line += channels) {
      for (int64_t c = 0; c < channels; ++c) line[c] = float(numbers[c]);
    }
  }
};

template <int64_t Rows>
SNNLIB_NOINLINE void add(const float* __restrict from, int64_t n, float* __restrict sums) {
  SNNLIB_SIMD
  for (int64_t i = 0; i < n; ++i) {
    float sum = sums[i];
    for (int64_t row = 0; row < Rows; ++row) sum += from[row * n + i];
    sums[i] = sum;
  }
}

template <int64_t Rows>
SNNLIB_NOINLINE void add_squares(const float* __restrict from, int64_t n, const float* __restrict mean,
                                 float* __restrict sums, float* __restrict squares) {
  SNNLIB_SIMD
  for (int64_t i = 0; i < n; ++i) {
    float sum = sums[i], square = squares[i];
    for (int64_t row = 0; row < Rows; ++row) {
      const float d = from[row * n + i] - mean[i];
      sum += d;
      square += d * d;
    }
    sums[i] = sum;
    squares[i] = square;
  }
}

template <int64_t Rows>
SNNLIB_NOINLINE void add_products(const float* __restrict grad, const float* __restrict value, int64_t n,
                                  const float* __restrict mean, float* __restrict sums, float* __restrict products) {
  SNNLIB_SIMD
  for (int64_t i = 0; i < n; ++i) {
    float sum = sums[i], product = products[i];
    for (int64_t row = 0; row < Rows; ++row) {
      const float g = grad[row * n + i];
      sum += g;
      product += g * (value[row * n + i] - mean[i]);
    }
    sums[i] = sum;
    products[i] = product;
  }
}

template <int64_t Rows>
SNNLIB_NOINLINE void subtract(const float* __restrict value, int64_t n, const float* __restrict mean,
                              const float* __restrict constant, const float* __restrict slope, float* __restrict grad) {
  for (int64_t row = 0; row < Rows; ++row, grad += n, value += n) {
    SNNLIB_SIMD
    for (int64_t i = 0; i < n; ++i) grad[i] -= constant[i] + slope[i] * (value[i] - mean[i]);
  }
}

// Mean and sum of squared distances from it of every block, [blocks, 2, channels], then merged pair by pair. In float32
// the mean of a block is a first guess, from which distances are taken: their sum mends it.
// Source: Chan, Golub and LeVeque, "Algorithms for computing the sample variance", 1983.
void moments(const MomentsArgs& a) {
  const Blocks blocks(a.rows, a.channels);
  Scratch<double> kept;
  double* found = kept.reserve(blocks.count * 2 * a.channels);
  parallel_for(blocks.count, a.executor.threads(), [&](int64_t block) {
    thread_local Scratch<float> scratch;
    float* sums = scratch.zeroed(3 * blocks.width);
    float *line_squares = sums + blocks.width, *line_mean = line_squares + blocks.width;
    const float* from = a.values + block * blocks.per_block * a.channels;
    double* mean = found + block * 2 * a.channels;
    double *squares = mean + a.channels, size = double(blocks.size(block));
    blocks.for_each_lines(block, [&](auto rows, int64_t at, int64_t n) { add<rows()>(from + at, n, sums); });
    blocks.unfold(sums, mean);
    for (int64_t c = 0; c < a.channels; ++c) mean[c] /= size;
    blocks.spread(mean, line_mean);
    for (int64_t i = 0; i < blocks.width; ++i) sums[i] = 0.0f;
    blocks.for_each_lines(block, [&](auto rows, int64_t at, int64_t n) {
      // Rows of the next block, while the present ones come from the L1 cache.
      const float* next = from + blocks.per_block * a.channels + at;
      for (int64_t i = 0; i < rows() * n; i += kCacheLine / int64_t(sizeof(float))) prefetch(next + i);
      add_squares<rows()>(from + at, n, line_mean, sums, line_squares);
    });
    thread_local Scratch<double> rest;
    double* distances = rest.reserve(a.channels);
    blocks.unfold(sums, distances);
    blocks.unfold(line_squares, squares);
    for (int64_t c = 0; c < a.channels; ++c) {
      mean[c] = double(line_mean[c]) + distances[c] / size;
      squares[c] -= distances[c] * distances[c] / size;
    }
  });
  for (int64_t c = 0; c < a.channels; ++c) a.mean[c] = a.variance[c] = 0.0;
  int64_t before = 0;
  for (int64_t block = 0; block < blocks.count; ++block) {
    const double* mean = found + block * 2 * a.channels;
    const double* squares = mean + a.channels;
    const int64_t size = blocks.size(block), all = before + size;
    const double share = double(size) / double(all), weight = double(before) * share;
    for (int64_t c = 0; c < a.channels; ++c) {
      const double distance = mean[c] - a.mean[c];
      a.mean[c] += distance * share;
      a.variance[c] += squares[c] + distance * distance * weight;
    }
    before = all;
  }
  for (int64_t c = 0; c < a.channels; ++c) a.variance[c] /= double(a.rows);
}

void backward(const NormalizeBackwardArgs& a) {
  const Blocks blocks(a.rows, a.channels);
  Scratch<double> kept;
  double* found = kept.reserve(blocks.count * 2 * a.channels);
  Scratch<float> lines;
  float* mean = lines.reserve(3 * blocks.width);
  float *constant = mean + blocks.width, *slope = constant + blocks.width;
  blocks.spread(a.mean, mean);
  parallel_for(blocks.count, a.executor.threads(), [&](int64_t block) {
    thread_local Scratch<float> scratch;
    float* sums = scratch.zeroed(2 * blocks.width);
    const int64_t first = block * blocks.per_block * a.channels;
    blocks.for_each_lines(block, [&](auto rows, int64_t at, int64_t n) {
      add_products<rows()>(a.grad + first + at, a.values + first + at, n, mean, sums, sums + blocks.width);
    });
    blocks.unfold(sums, found + block * 2 * a.channels);
    blocks.unfold(sums + blocks.width, found + block * 2 * a.channels + a.channels);
  });
  for (int64_t i = 0; i < 2 * a.channels; ++i) a.sums[i] = 0.0;
  for (int64_t block = 0; block < blocks.count; ++block) {
    for (int64_t i = 0; i < 2 * a.channels; ++i) a.sums[i] += found[block * 2 * a.channels + i];
  }
  double* factors = kept.reserve(2 * a.channels);
  for (int64_t c = 0; c < a.channels; ++c) {
    // Distances were taken from the mean in float32.
    const double beyond = double(mean[c]) - a.mean[c];
    a.sums[a.channels + c] += beyond * a.sums[c];
    const double rate = a.sums[a.channels + c] / (double(a.rows) * (a.variance[c] + a.epsilon));
    factors[c] = a.sums[c] / double(a.rows) + beyond * rate;
    factors[a.channels + c] = rate;
  }
  blocks.spread(factors, constant);
  blocks.spread(factors + a.channels, slope);
  parallel_for(blocks.count, a.executor.threads(), [&](int64_t block) {
    const int64_t first = block * blocks.per_block * a.channels;
    blocks.for_each_lines(block, [&](auto rows, int64_t at, int64_t n) {
      subtract<rows()>(a.values + first + at, n, mean, constant, slope, a.grad + first + at);
    });
  });
}

}  // namespace

extern const BatchNormKernels batch_norm_kernels = {moments, backward};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
