// Convolutions tap by tap on the CPU. A task of the forward pass lists the events that a block of outputs sees and adds
// their rows of weights, some channels and one tap at a time; the weight gradient sums outer products tap by tap.
#include "snnlib/events/taps.h"

#include "snnlib/core/threads.h"
#include "snnlib/events/matrix.h"
#include "snnlib/events/outer_products.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

// Bytes of currents in a block: beside the weights of a tap they fit into the L2 cache.
constexpr int64_t kBlockBytes = 256 << 10;

// Output pixels [first, last) of a row of `out`, of which input pixel `x stride + shift` lies in the image.
struct Span {
  int64_t first, last;
};

Span inside(int64_t shift, int64_t stride, int64_t in, int64_t out) {
  const int64_t first = shift < 0 ? (-shift + stride - 1) / stride : 0;
  const int64_t last = shift < in ? (in - shift - 1) / stride + 1 : 0;
  return {first, last < out ? last : out};
}

// Rows [first, last) of outputs, counted through all frames.
class CurrentBlock {
 public:
  void run(const TapCurrentsArgs& a, int64_t first, int64_t last) {
    const TapShape& s = a.shape;
    first_ = first, last_ = last, frame_ = first / s.height;
    list_events(a);
    const int64_t row = a.pieces() * a.piece, pixels = (last - first) * s.width;
    float* current = a.current + first * s.width * s.channels;
    // Sums are taken in their place, if rows have no zeros behind them.
    const bool in_place = row == s.channels;
    float* sum = in_place ? current : sum_.reserve(pixels * row);
    std::memset(sum, 0, size_t(pixels * row) * sizeof(float));
    const float* weight = a.weight;
    for (int64_t o = 0; o < row; o += a.piece) {
      for (int64_t tap = 0; tap < s.taps(); ++tap, weight += s.in_channels * a.piece) add_tap(a, tap, weight, sum + o);
    }
    for (int64_t p = 0; p < pixels && !in_place; ++p) {
      std::memcpy(current + p * s.channels, sum + p * row, size_t(s.channels) * sizeof(float));
    }
  }

 private:
  // Number of an input pixel among those of the frames of the block.
  int64_t pixel(const TapShape& s, int64_t frame, int64_t y, int64_t x) const {
    return ((frame - frame_) * s.in_height + y) * s.in_width + x;
  }

  // Events of all pixels that the block may see: ends_[pixel] is the end of its events, ends_[pixel - 1] their start.
  void list_events(const TapCurrentsArgs& a) {
    const TapShape& s = a.shape;
    const int64_t end_frame = (last_ - 1) / s.height + 1, reach = (s.kernel_h - 1) * s.dilation_h + 1;
    const int64_t top = frame_row(s, first_ % s.height * s.stride_h - s.padding_h);
    const int64_t bottom = frame_row(s, (last_ - 1) % s.height * s.stride_h - s.padding_h + reach);
    const int64_t begin = pixel(s, frame_, top, 0), end = pixel(s, end_frame - 1, bottom, 0);
    const float* input = a.input + frame_ * s.in_height * s.in_width * s.in_channels;
    int64_t* ends = ends_.reserve(end + 2) + 1;
    int64_t count = 0;
    ends[begin - 1] = 0;
    for (int64_t p = begin; p < end; ++p) {
      const int64_t room = count + s.in_channels + kMoreEvents;
      int32_t* channel = channels_.grow(room, count) + count;
      float* amount = amounts_.grow(room, count) + count;
      count += append_row(input + p * s.in_channels, s.in_channels, channel, amount);
      ends[p] = count;
    }
  }

  static int64_t frame_row(const TapShape& s, int64_t y) { return y < 0 ? 0 : y < s.in_height ? y : s.in_height; }

  // Adds the events under one tap to a piece of every pixel's sums.
  void add_tap(const TapCurrentsArgs& a, int64_t tap, const float* weight, float* sum) const {
    const TapShape& s = a.shape;
    const int64_t row = a.pieces() * a.piece;
    const int64_t down = s.down(tap), right = s.right(tap);
    const Span span = inside(right, s.stride_w, s.in_width, s.width);
    const int64_t* ends = ends_.data() + 1;
    for (int64_t line = first_; line < last_; ++line) {
      const int64_t in_y = line % s.height * s.stride_h + down;
      if (in_y < 0 || in_y >= s.in_height) continue;
      float* sums = sum + (line - first_) * s.width * row;
      for (int64_t x = span.first; x < span.last; ++x) {
        const int64_t from = pixel(s, line / s.height, in_y, x * s.stride_w + right), at = ends[from - 1];
        const Fired<float> fired{channels_.data() + at, amounts_.data() + at, ends[from] - at};
        add_rows(fired, weight, a.piece, sums + x * row);
      }
    }
  }

  int64_t first_ = 0, last_ = 0, frame_ = 0;
  Scratch<float> sum_, amounts_;
  Scratch<int32_t> channels_;
  Scratch<int64_t> ends_;
};

void currents(const TapCurrentsArgs& a) {
  const TapShape& s = a.shape;
  const int64_t rows = s.frames * s.height, floats = s.width * a.pieces() * a.piece;
  if (!rows || !floats) return;
  const int64_t fit = kBlockBytes / int64_t(sizeof(float)) / floats, block = fit < 1 ? 1 : fit;
  parallel_for((rows + block - 1) / block, a.executor.threads(), [&](int64_t task) {
    thread_local CurrentBlock currents;
    const int64_t end = (task + 1) * block;
    of_thread(currents).run(a, task * block, end < rows ? end : rows);
  });
}

// Every pair of an input pixel and an output pixel under one tap.
template <class F>
void for_pairs(const TapShape& s, int64_t tap, const F& f) {
  const int64_t down = s.down(tap), right = s.right(tap);
  const Span lines = inside(down, s.stride_h, s.in_height, s.height);
  const Span span = inside(right, s.stride_w, s.in_width, s.width);
  for (int64_t frame = 0; frame < s.frames; ++frame) {
    for (int64_t y = lines.first; y < lines.last; ++y) {
      const int64_t in_row = (frame * s.in_height + y * s.stride_h + down) * s.in_width + right;
      const int64_t row = (frame * s.height + y) * s.width;
      for (int64_t x = span.first; x < span.last; ++x) f(in_row + x * s.stride_w, row + x);
    }
  }
}

void weights(const TapWeightsArgs& a) {
  const TapShape& s = a.shape;
  OuterProducts<float> products(s.in_channels, s.channels, a.executor.threads());
  for (int64_t tap = 0; tap < s.taps(); ++tap) {
    products.clear();
    for_pairs(s, tap, [&](int64_t in, int64_t out) {
      products.add(a.input + in * s.in_channels, a.signal + out * s.channels);
    });
    products.store(a.grad_weight + tap * s.in_channels * s.channels, s.channels);
  }
}

}  // namespace

extern const TapKernels tap_kernels = {currents, weights};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
