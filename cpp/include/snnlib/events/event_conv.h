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

template <int V>
inline void load_all(Floats (&sum)[V], const float* p) {
  for (int v = 0; v < V; ++v) sum[v] = load(p + v * kLanes);
}

template <int V>
inline void store_all(float* p, const Floats (&sum)[V]) {
  for (int v = 0; v < V; ++v) store(p + v * kLanes, sum[v]);
}

template <bool Binary, int V>
inline void add_weights(Floats (&sum)[V], const float* weight, float amount) {
  for (int v = 0; v < V; ++v) sum[v] += Binary ? load(weight + v * kLanes) : amount * load(weight + v * kLanes);
}

// What the events of a row of inputs add to: rows of outputs, each under a kernel row of its own.
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

// One row of outputs under one kernel row. Pixel x sees the events of pixels [x stride, x stride + kernel).
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

}  // namespace SNNLIB_ISA
}  // namespace snnlib
