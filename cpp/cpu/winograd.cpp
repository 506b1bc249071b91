// Winograd's algorithm on the CPU. A task takes some tiles: their transformed signals stay in the L2 cache, where 16
// small matrix products meet the transformed weights of some output channels at a time. Products are added by fused
// multiply-add in the order of the channels, so that no result depends on the threads or the instruction set.
#include "snnlib/winograd.h"

#include "snnlib/core/simd.h"
#include "snnlib/core/threads.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

using V = Floats;
// Sizes of a tile.
constexpr int64_t kComponents = 16;
// Sums that stay in registers: of so many tiles, and vectors of output channels, 16 registers or 32.
constexpr int64_t kRows = 6, kVectors = kLanes == 16 ? 4 : 2, kWidth = kVectors * kLanes;
// Tiles of a task, whole groups of kRows.
constexpr int64_t kTiles = 48;
// Between the components of scratch memory, whose distance would be a multiple of 4 KiB otherwise: lines that fall
// together in the L1 cache.
constexpr int64_t kGap = 16;

// The first lanes of a vector, all or less than all.
V load_some(const float* from, int64_t lanes) {
  if (lanes >= kLanes) return load(from);
  V v = {};
  std::memcpy(&v, from, size_t(lanes) * sizeof(float));
  return v;
}

void store_some(float* to, V v, int64_t lanes) {
  if (lanes >= kLanes) return store(to, v);
  std::memcpy(to, &v, size_t(lanes) * sizeof(float));
}

// B' S B of one vector of channels: s[4][4] in place.
void transform_signal(V s[4][4]) {
  for (int i = 0; i < 4; ++i) {
    const V a = s[0][i], b = s[1][i], c = s[2][i], d = s[3][i];
    s[0][i] = a - c, s[1][i] = b + c, s[2][i] = c - b, s[3][i] = b - d;
  }
  for (int i = 0; i < 4; ++i) {
    const V a = s[i][0], b = s[i][1], c = s[i][2], d = s[i][3];
    s[i][0] = a - c, s[i][1] = b + c, s[i][2] = c - b, s[i][3] = b - d;
  }
}

// A row of G: (w0, (w0 + w1 + w2) / 2, (w0 - w1 + w2) / 2, w2).
void transform_taps(V a, V b, V c, V out[4]) {
  const V ends = a + c;
  out[0] = a, out[1] = 0.5f * (ends + b), out[2] = 0.5f * (ends - b), out[3] = c;
}

class Adjoint {
 public:
  explicit Adjoint(const WinogradArgs& a)
      : args_(a), s_(a.shape), down_((s_.out_height + 1) / 2), right_((s_.out_width + 1) / 2) {
    blocks_ = (s_.out_channels + kWidth - 1) / kWidth;
  }

  void run() {
    const int64_t tiles = s_.frames * down_ * right_;
    if (!tiles || !s_.out_channels) return;
    weights_ = memory_.reserve(kComponents * blocks_ * s_.channels * kWidth);
    const int threads = args_.executor.threads();
    parallel_for(s_.channels, threads, [&](int64_t channel) { transform_weights(channel); });
    parallel_for((tiles + kTiles - 1) / kTiles, threads, [&](int64_t task) {
      const int64_t first = task * kTiles, left = tiles - first;
      run_tiles(first, left < kTiles ? left : kTiles);
    });
  }

 private:
  // [block][component][channel][kWidth]
  float* weights(int64_t block, int64_t component) const {
    return weights_ + (block * kComponents + component) * s_.channels * kWidth;
  }

  // The kernel turned round, transformed; beyond the last output channel are zeros.
  void transform_weights(int64_t channel) const {
    const int64_t n = s_.out_channels;
    const float* from = args_.weight + channel * 9 * n;
    for (int64_t c = 0; c < blocks_ * kWidth; c += kLanes) {
      V taps[3][3], half[3][4], column[4];
      for (int tap = 0; tap < 9; ++tap) {
        taps[tap / 3][tap % 3] = c < n ? load_some(from + (8 - tap) * n + c, n - c) : V{};
      }
      for (int y = 0; y < 3; ++y) transform_taps(taps[y][0], taps[y][1], taps[y][2], half[y]);
      for (int x = 0; x < 4; ++x) {
        transform_taps(half[0][x], half[1][x], half[2][x], column);
        for (int y = 0; y < 4; ++y) {
          store(weights(c / kWidth, y * 4 + x) + channel * kWidth + c % kWidth, column[y]);
        }
      }
    }
  }

  void run_tiles(int64_t first, int64_t count) const {
    thread_local Scratch<float> signals, products;
    // Whole vectors of channels and whole groups of tiles.
    const int64_t row = (s_.channels + kLanes - 1) / kLanes * kLanes, rows = (count + kRows - 1) / kRows * kRows;
    const int64_t step = rows * row + kGap, out_step = rows * kWidth + kGap;
    float *v = signals.reserve(kComponents * step), *m = products.reserve(kComponents * out_step);
    for (int64_t tile = 0; tile < rows; ++tile) {
      if (tile < count) {
        read_tile(first + tile, v + tile * row, step);
      } else {
        for (int64_t k = 0; k < kComponents; ++k)
          std::memset(v + k * step + tile * row, 0, size_t(row) * sizeof(float));
      }
    }
    for (int64_t block = 0; block < blocks_; ++block) {
      for (int64_t k = 0; k < kComponents; ++k) {
        for (int64_t tile = 0; tile < rows; tile += kRows) {
          multiply(v + k * step + tile * row, row, weights(block, k), s_.channels, m + k * out_step + tile * kWidth);
        }
      }
      for (int64_t tile = 0; tile < count; ++tile) write_tile(first + tile, block, m + tile * kWidth, out_step);
    }
  }

  struct Place {
    int64_t frame, y, x;
  };
  Place place(int64_t tile) const { return {tile / (down_ * right_), tile / right_ % down_ * 2, tile % right_ * 2}; }

  // Transformed signals of a tile, zeros beside the image.
  SNNLIB_NOINLINE void read_tile(int64_t tile, float* to, int64_t step) const {
    const Place p = place(tile);
    const float* from[4][4];
    for (int64_t i = 0; i < 4; ++i) {
      for (int64_t j = 0; j < 4; ++j) {
        const int64_t y = p.y + i + s_.padding - 2, x = p.x + j + s_.padding - 2;
        const bool inside = y >= 0 && y < s_.height && x >= 0 && x < s_.width;
        from[i][j] = inside ? args_.signal + ((p.frame * s_.height + y) * s_.width + x) * s_.channels : nullptr;
      }
    }
    for (int64_t c = 0; c < s_.channels; c += kLanes) {
      const int64_t left = s_.channels - c;
      V s[4][4];
      for (int i = 0; i < 16; ++i) {
        const float* at = from[i / 4][i % 4];
        s[i / 4][i % 4] = at ? load_some(at + c, left) : V{};
      }
      transform_signal(s);
      for (int k = 0; k < 16; ++k) store(to + k * step + c, s[k / 4][k % 4]);
    }
  }

  // m[kRows][kWidth] = v[kRows][channels] u[channels][kWidth]
  SNNLIB_NOINLINE static void multiply(const float* v, int64_t row, const float* u, int64_t channels, float* m) {
    V sums[kRows][kVectors] = {};
    for (int64_t o = 0; o < channels; ++o, u += kWidth) {
      V weight[kVectors];
      for (int64_t j = 0; j < kVectors; ++j) weight[j] = load(u + j * kLanes);
      for (int64_t i = 0; i < kRows; ++i) {
        for (int64_t j = 0; j < kVectors; ++j) sums[i][j] = fused_multiply_add(v[i * row + o], weight[j], sums[i][j]);
      }
    }
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t j = 0; j < kVectors; ++j) store(m + i * kWidth + j * kLanes, sums[i][j]);
    }
  }

  // A' M A of the channels of a block, to the outputs of the tile that lie in the image.
  SNNLIB_NOINLINE void write_tile(int64_t tile, int64_t block, const float* m, int64_t step) const {
    const Place p = place(tile);
    const int64_t high = p.y + 1 < s_.out_height ? 2 : 1, wide = p.x + 1 < s_.out_width ? 2 : 1;
    const int64_t line = s_.out_width * s_.out_channels;
    float* to = args_.out + (p.frame * s_.out_height + p.y) * line + p.x * s_.out_channels;
    for (int64_t c = block * kWidth, i = 0; i < kWidth && c < s_.out_channels; c += kLanes, i += kLanes) {
      const int64_t left = s_.out_channels - c;
      V half[2][4];
      for (int x = 0; x < 4; ++x) {
        const V a = load(m + x * step + i), b = load(m + (4 + x) * step + i);
        const V d = load(m + (8 + x) * step + i), e = load(m + (12 + x) * step + i);
        half[0][x] = a + b + d, half[1][x] = b - d - e;
      }
      for (int64_t y = 0; y < high; ++y) {
        const V *h = half[y], out[2] = {h[0] + h[1] + h[2], h[1] - h[2] - h[3]};
        for (int64_t x = 0; x < wide; ++x) {
          store_some(to + y * line + x * s_.out_channels + c, out[x], left);
        }
      }
    }
  }

  const WinogradArgs& args_;
  const WinogradShape& s_;
  int64_t down_, right_, blocks_;
  Scratch<float> memory_;
  float* weights_ = nullptr;
};

void adjoint(const WinogradArgs& a) { Adjoint(a).run(); }

}  // namespace

extern const WinogradKernels winograd_kernels = {adjoint};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
