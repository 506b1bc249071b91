// Convolution of sparse frames: sums over events only, row by row, channels-last.
//
//   out[y, x, o] = sum over ky, kx, c of W[o, c, ky, kx] in[y stride + ky - padding, x stride + kx - padding, c]
//
// An event is a nonzero entry of a row of `in`, and a row's events are sorted by (x, c). For one kernel row ky:
//
//   scatter   each event adds its kernel rows, [kx][o], to the output pixels it reaches, which lie next to each other
//   gather    each output pixel adds the weights [o] of its events, which lie next to each other in the list
//
// Both add to one entry in the order (ky, kx, c), so they give the same bits, on any instruction set: lanes never meet,
// and multiply and add are rounded apart. Scatter is bound by stores and gather by loads; gather wants whole vectors of
// output channels.
#pragma once

#include "snnlib/core/simd.h"
#include "snnlib/core/threads.h"

namespace snnlib {
namespace SNNLIB_ISA {

// Where an entry of a row acts: offset in the output row (gather: its pixel) and in the weights of a kernel row.
// Gather counts the latter from the left edge of the image, modulo 2^32: with thousands of pixels and channels it is
// larger, but its distance from the start of a window is not (`weights_from`).
struct Place {
  int32_t at;
  uint32_t row;
};

struct Event {
  int32_t at;
  uint32_t row;
  float amount;
};

// Offset of an event's weights in a kernel row from those of input pixel `first`, both modulo 2^32.
inline uint32_t weights_from(uint32_t first_row, uint32_t row) { return row - first_row; }

// Writes the places of the nonzero entries of a row and returns their number. Silence is passed over four vectors at a
// time; else no branch depends on an entry: whether one is an event cannot be foretold. `at` needs room for n + kGroup.
SNNLIB_NOINLINE inline int64_t find_events(const float* row, int64_t n, int32_t* at) {
  int64_t count = 0, i = 0;
  const auto find = [&] {
    const uint32_t bits = nonzero_lanes(load(row + i));
    store_selected(at + count, lane_numbers(i), bits);
    count += count_bits(bits);
    i += kLanes;
  };
  while (i + 4 * kLanes <= n) {
    if (all_zero(row + i)) {
      i += 4 * kLanes;
      continue;
    }
    for (int v = 0; v < 4; ++v) find();
  }
  while (i + kLanes <= n) find();
  for (; i < n; ++i) {
    at[count] = int32_t(i);
    count += row[i] != 0.0f;
  }
  return count;
}

// starts[x] = first event at pixel x or later, for x in [0, pixels]; `at` of the events is their pixel.
inline void find_pixels(const Event* events, int32_t count, int64_t pixels, int32_t* starts) {
  // First the end of each pixel that has events, then what the others take over from it.
  for (int64_t x = 0; x <= pixels; ++x) starts[x] = 0;
  for (int32_t i = 0; i < count; ++i) starts[events[i].at + 1] = i + 1;
  for (int64_t x = 1; x <= pixels; ++x) starts[x] = starts[x] > starts[x - 1] ? starts[x] : starts[x - 1];
}

// Rows of outputs that the events of a row of inputs add to, each under a kernel row of its own.
struct ScatterRows {
  const float* weight;    // of the first one
  int64_t weight_stride;  // from one kernel row to the next
  float* const* out;
  int64_t count;
};

// Events of one pixel are summed in registers: the next event would have to wait for the stores of the last.
template <int V, bool Binary>
SNNLIB_NOINLINE void scatter_fixed(const Event* event, const Event* end, const ScatterRows& rows) {
  while (event != end) {
    const Event* const first = event;
    const int32_t at = event->at;
    do ++event;
    while (event != end && event->at == at);
    const float* weight = rows.weight;
    for (int64_t r = 0; r < rows.count; ++r, weight += rows.weight_stride) {
      float* out = rows.out[r] + at;
      Floats sum[V];
      load_all(sum, out);
      for (const Event* e = first; e != event; ++e) add_weights<Binary>(sum, weight + e->row, e->amount);
      store_all(out, sum);
    }
  }
}

template <bool Binary>
SNNLIB_NOINLINE void scatter_long(const Event* event, const Event* end, const ScatterRows& rows, int64_t vectors) {
  for (; event != end; ++event) {
    const float* w = rows.weight + event->row;
    for (int64_t r = 0; r < rows.count; ++r, w += rows.weight_stride) {
      float* out = rows.out[r] + event->at;
      for (int64_t v = 0; v < vectors; ++v) {
        const Floats add = Binary ? load(w + v * kLanes) : event->amount * load(w + v * kLanes);
        store(out + v * kLanes, load(out + v * kLanes) + add);
      }
    }
  }
}

// Adds `length` floats per event and row. What lies behind them in the weights is zero up to a whole vector. Rows of
// neighbouring pixels overlap, so a row is never cut: every output adds its events in their order.
template <bool Binary>
inline void scatter(const Event* begin, const Event* end, const ScatterRows& rows, int64_t length) {
  const int64_t vectors = (length + kLanes - 1) / kLanes;
  switch (vectors) {
    case 1:
      return scatter_fixed<1, Binary>(begin, end, rows);
    case 2:
      return scatter_fixed<2, Binary>(begin, end, rows);
    case 3:
      return scatter_fixed<3, Binary>(begin, end, rows);
    case 4:
      return scatter_fixed<4, Binary>(begin, end, rows);
    case 5:
      return scatter_fixed<5, Binary>(begin, end, rows);
    case 6:
      return scatter_fixed<6, Binary>(begin, end, rows);
    case 7:
      return scatter_fixed<7, Binary>(begin, end, rows);
    case 8:
      return scatter_fixed<8, Binary>(begin, end, rows);
    default:
      return scatter_long<Binary>(begin, end, rows, vectors);
  }
}

// A row of outputs under one kernel row. Pixel x sees the events of pixels [x stride, x stride + kernel).
struct GatherRow {
  const Event* events;
  const int32_t* starts;
  const float* weight;
  int64_t pixel_weights;  // floats of `weight` per input pixel: channels x padded output channels
  int64_t kernel, stride, width;
  int64_t out_stride;  // floats per output pixel

  // First event at input pixel x or later.
  const Event* from(int64_t x) const { return events + starts[x]; }
  // `Event::row` of an event of channel 0 at input pixel x.
  uint32_t row_at(int64_t x) const { return uint32_t(x * pixel_weights); }
};

// Pixels from x on.
template <int V, bool Binary>
SNNLIB_NOINLINE void gather_pixels(const GatherRow& r, int64_t x, float* out) {
  for (out += x * r.out_stride; x < r.width; ++x, out += r.out_stride) {
    const int64_t first = x * r.stride;
    const Event *begin = r.from(first), *end = r.from(first + r.kernel);
    if (begin == end) continue;
    const uint32_t row = r.row_at(first);
    Floats sum[V];
    load_all(sum, out);
    for (const Event* e = begin; e != end; ++e) {
      add_weights<Binary>(sum, r.weight + weights_from(row, e->row), e->amount);
    }
    store_all(out, sum);
  }
}

// Two pixels at a time, which share most of their events: one walk adds to both, so that an addition need not wait for
// the last one. Returns the number of pixels done.
template <int V, bool Binary>
SNNLIB_NOINLINE int64_t gather_pairs(const GatherRow& r, float* out) {
  int64_t x = 0;
  for (; x + 1 < r.width; x += 2, out += 2 * r.out_stride) {
    const int64_t first = x * r.stride, second = first + r.stride, seen = first + r.kernel;
    const bool overlap = second < seen;
    const Event *begin = r.from(first), *shared = r.from(overlap ? second : seen), *shared_end = r.from(seen);
    const Event *rest = overlap ? shared_end : r.from(second), *end = r.from(second + r.kernel);
    if (begin == end) continue;
    const uint32_t row = r.row_at(first), next_row = r.row_at(second);
    const float* next_weight = r.weight - r.stride * r.pixel_weights;
    Floats sum[V], next[V];
    load_all(sum, out);
    load_all(next, out + r.out_stride);
    for (const Event* e = begin; e != shared; ++e) {
      add_weights<Binary>(sum, r.weight + weights_from(row, e->row), e->amount);
    }
    for (const Event* e = shared; e != shared_end; ++e) {
      const uint32_t at = weights_from(row, e->row);
      add_weights<Binary>(sum, r.weight + at, e->amount);
      add_weights<Binary>(next, next_weight + at, e->amount);
    }
    store_all(out, sum);
    for (const Event* e = rest; e != end; ++e) {
      add_weights<Binary>(next, r.weight + weights_from(next_row, e->row), e->amount);
    }
    store_all(out + r.out_stride, next);
  }
  return x;
}

template <int V, bool Binary>
inline void gather_fixed(const GatherRow& r, float* out) {
  // Twice eight sums take 32 registers.
  constexpr bool kPairs = V < 8 || kVectorBytes == 64;
  gather_pixels<V, Binary>(r, kPairs ? gather_pairs<V, Binary>(r, out) : 0, out);
}

// `channels` is a multiple of kGroup.
template <bool Binary>
inline void gather(const GatherRow& row, float* out, int64_t channels) {
  const auto run = [&](auto kernel) {
    return [&row, out, kernel](int64_t i) {
      GatherRow part = row;
      part.weight += i;
      kernel(part, out + i);
    };
  };
  in_registers(channels, run(gather_fixed<8, Binary>), run(gather_fixed<4, Binary>), run(gather_fixed<2, Binary>),
               run(gather_fixed<1, Binary>));
}

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

// The events of some rows of one frame, ready for `scatter` or `gather`.
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

  // `binary`: whether rows are read, of which all events may be 1.
  void clear(bool binary = true) {
    rows_ = 0;
    binary_ = binary;
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
  // True if all events since `clear` are 1.
  bool binary() const { return binary_; }

  // For rows that are not read from memory: write events from `place_next()` on, then finish_row(end).
  Event* place_next() { return events_.data() + ends_.data()[rows_]; }
  const Place& place(int64_t i) const { return places_.data()[i]; }
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
