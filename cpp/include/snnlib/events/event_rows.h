// The events of some rows of one frame, ready for `scatter` or `gather`.
#pragma once

#include "snnlib/core/scratch.h"
#include "snnlib/events/event_conv.h"

namespace snnlib {
namespace SNNLIB_ISA {

// Geometry of a map of rows, seen from its input. By gather it is a convolution. By scatter an event reaches `kernel`
// neighbouring outputs, counted from the leftmost that any event reaches: a convolution of stride 1, or a transposed
// one of any stride with `padding` = kernel - 1 - the convolution's.
struct RowConv {
  bool by_scatter;
  int64_t in_width, in_channels, out_width, out_channels, kernel, stride, padding;

  // Floats of the weights per (kernel row, channel) and (kernel row, kernel column, channel).
  int64_t scatter_length() const { return kernel * out_channels; }
  int64_t gather_length() const { return padded(out_channels); }
  int64_t kernel_row_floats() const {
    return in_channels * (by_scatter ? padded(scatter_length()) : kernel * gather_length());
  }
  // The row that `add_kernel_row` adds to: its size, the distance of its pixels, and where output pixel 0 lies.
  int64_t tile_floats() const {
    if (!by_scatter) return out_width * gather_length() + kGroup;
    const int64_t reached = (in_width - 1) * stride + kernel, read = kernel - 1 - padding + out_width;
    return (reached > read ? reached : read) * out_channels + kGroup;
  }
  int64_t pixel_floats() const { return by_scatter ? out_channels : gather_length(); }
  int64_t first_pixel() const { return by_scatter ? (kernel - 1 - padding) * out_channels : 0; }

  // Where an event of channel c at pixel x acts.
  Place place(int64_t x, int64_t c) const {
    if (by_scatter) return {int32_t(x * stride * out_channels), uint32_t(c * padded(scatter_length()))};
    return {int32_t(x + padding), uint32_t(((x + padding) * in_channels + c) * gather_length())};
  }
  void make_places(Place* places) const {
    for (int64_t x = 0; x < in_width; ++x) {
      for (int64_t c = 0; c < in_channels; ++c) places[x * in_channels + c] = place(x, c);
    }
  }
};

class EventRows {
 public:
  void start(const RowConv& conv, int64_t rows) {
    conv_ = conv;
    const int64_t n = conv.in_width * conv.in_channels;
    pixels_ = conv.in_width + 2 * conv.padding;
    conv.make_places(places_.reserve(n));
    found_.reserve(n + kGroup);
    events_.reserve(rows * n);
    ends_.reserve(rows + 1);
    if (!conv.by_scatter) starts_.reserve(rows * (pixels_ + 1));
  }

  void clear() {
    rows_ = 0;
    binary_ = true;
    ends_.data()[0] = 0;
  }

  // Appends a row, channels-last; returns the number of its events, whose places are in `found()`.
  int64_t add_row(const float* row) {
    const int64_t count = find_events(row, conv_.in_width * conv_.in_channels, found_.data());
    const Place* places = places_.data();
    Event* event = place_next();
    for (int64_t i = 0; i < count; ++i) {
      const int32_t at = found_.data()[i];
      event[i] = {places[at].at, places[at].row, row[at]};
      binary_ &= row[at] == 1.0f;
    }
    finish_row(event + count);
    return count;
  }
  int32_t* found() { return found_.data(); }
  // Whether all events since `clear` are 1.
  bool binary() const { return binary_; }

  // For rows that are not read from memory: write events from `place_next()` on, then finish_row(end).
  Event* place_next() { return events_.data() + ends_.data()[rows_]; }
  const Place& place(int64_t i) const { return places_.data()[i]; }
  void not_binary() { binary_ = false; }
  void finish_row(Event* end) {
    const int64_t first = ends_.data()[rows_];
    ends_.data()[rows_ + 1] = end - events_.data();
    // Nothing looks for the pixels of a row without events.
    if (!conv_.by_scatter && end != events_.data() + first) {
      find_pixels(events_.data() + first, int32_t(end - events_.data() - first), pixels_,
                  starts_.data() + rows_ * (pixels_ + 1));
    }
    ++rows_;
  }

  // Events of row `row`.
  int64_t count(int64_t row) const { return ends_.data()[row + 1] - ends_.data()[row]; }

  // Adds the events of row `row` to rows of outputs; for `by_scatter`.
  void scatter_row(int64_t row, const ScatterRows& rows) const {
    const Event* begin = events_.data() + ends_.data()[row];
    const Event* end = events_.data() + ends_.data()[row + 1];
    binary_ ? scatter<true>(begin, end, rows, conv_.scatter_length())
            : scatter<false>(begin, end, rows, conv_.scatter_length());
  }

  // Adds the events of row `row` under one kernel row to the tile.
  void add_kernel_row(int64_t row, const float* weight, float* tile) const {
    if (conv_.by_scatter) return scatter_row(row, {weight, 0, &tile, 1});
    const Event* begin = events_.data() + ends_.data()[row];
    if (ends_.data()[row] == ends_.data()[row + 1]) return;
    const GatherRow gathered{begin,           starts_.data() + row * (pixels_ + 1),
                             weight,          conv_.in_channels * conv_.gather_length(),
                             conv_.kernel,    conv_.stride,
                             conv_.out_width, conv_.gather_length()};
    binary_ ? gather<true>(gathered, tile, conv_.gather_length())
            : gather<false>(gathered, tile, conv_.gather_length());
  }

 private:
  RowConv conv_ = {};
  int64_t pixels_ = 0, rows_ = 0;
  bool binary_ = true;
  Scratch<Place> places_;
  Scratch<int32_t> found_;
  Scratch<Event> events_;
  Scratch<int64_t> ends_;
  Scratch<int32_t> starts_;
};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
