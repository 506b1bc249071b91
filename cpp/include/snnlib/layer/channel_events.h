// The events of some rows of one frame by channel, as windows of a dense map of which each of them sees a part.
#pragma once

#include "snnlib/core/scratch.h"
#include "snnlib/events/event_conv.h"
#include "snnlib/layer/stored_rows.h"

namespace snnlib {
namespace SNNLIB_ISA {

// Where an event's window starts.
struct Window {
  int32_t at;
  float amount;
};

// Sorted by channel and then by row.
class ChannelEvents {
 public:
  void start(int64_t channels, int64_t width, int64_t rows) {
    channels_ = channels;
    width_ = width;
    room_ = rows * width;
    found_.reserve(channels * width + kGroup);
    in_row_.reserve(channels * width);
    windows_.reserve(channels * room_);
    ends_.reserve((rows + 1) * channels);
    counts_.reserve(rows + 1);
  }

  void clear() {
    rows_ = 0;
    binary_ = true;
    counts_.data()[0] = 0;
    std::memset(ends_.data(), 0, size_t(channels_) * sizeof(int32_t));
  }

  // Appends a row. `shift` is where the window of its first pixel lies, `pixel` the distance of two.
  void add_row(const InputTrain& x, const ConvShape& s, int64_t t, int64_t n, int64_t y, int64_t shift, int64_t pixel) {
    int32_t* end = ends_.data() + (rows_ + 1) * channels_;
    std::memcpy(end, end - channels_, size_t(channels_) * sizeof(int32_t));
    ++rows_;
    counts_.data()[rows_] = counts_.data()[rows_ - 1];
    if (x.width == 1 && !is_channels_last(x, s)) {
      const int64_t start = row_start(x, t, n, y);
      for (int64_t c = 0; c < channels_; ++c) {
        const float* row = read_floats(x.elements, start + c * x.channel, width_, in_row_.data());
        add_channel(row, c, end, shift, pixel);
      }
    } else {
      add_pixels(read_row(x, s, t, n, y, in_row_.data()), end, shift, pixel);
    }
  }

  // Whether all amounts are 1.
  bool binary() const { return binary_; }

  // Whether rows [first, last) have any event.
  bool any(int64_t first, int64_t last) const { return counts_.data()[first] < counts_.data()[last]; }

  // Where the events of a channel from row `row` on begin.
  const Window* begin(int64_t channel, int64_t row) const {
    return windows_.data() + channel * room_ + ends_.data()[row * channels_ + channel];
  }

 private:
  SNNLIB_NOINLINE void add_channel(const float* row, int64_t channel, int32_t* end, int64_t shift, int64_t pixel) {
    const int64_t count = find_events(row, width_, found_.data());
    Window* windows = windows_.data() + channel * room_ + end[channel];
    for (int64_t i = 0; i < count; ++i) {
      const int32_t x = found_.data()[i];
      windows[i] = {int32_t(shift + x * pixel), row[x]};
      binary_ &= row[x] == 1.0f;
    }
    end[channel] += int32_t(count);
    counts_.data()[rows_] += int32_t(count);
  }

  SNNLIB_NOINLINE void add_pixels(const float* row, int32_t* end, int64_t shift, int64_t pixel) {
    const int64_t count = find_events(row, channels_ * width_, found_.data());
    counts_.data()[rows_] += int32_t(count);
    // Events are sorted by pixel, which saves a division.
    int64_t first = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = found_.data()[i];
      for (; at - first >= channels_; first += channels_) shift += pixel;
      const int64_t c = at - first;
      windows_.data()[c * room_ + end[c]++] = {int32_t(shift), row[at]};
      binary_ &= row[at] == 1.0f;
    }
  }

  int64_t channels_ = 0, width_ = 0, room_ = 0, rows_ = 0;
  bool binary_ = true;
  Scratch<float> in_row_;
  Scratch<int32_t> found_, ends_;
  Scratch<int32_t> counts_;  // events of the rows before one
  Scratch<Window> windows_;
};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
