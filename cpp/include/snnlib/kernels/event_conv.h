// Convolution of sparse frames: sums over events only, row by row, channels-last.
//
//   out[y, x, o] = sum over ky, kx, c of W[o, c, ky, kx] in[y stride + ky - padding, x stride + kx - padding, c]
//
// An event is a nonzero entry of a row of `in`, and a row's events are sorted by (x, c). For one kernel row ky:
//
//   scatter   each event adds its kernel row, [kx][o], to the output pixels it reaches, which lie next to each other
//   gather    each output pixel adds the weights [o] of its events, which lie next to each other in the list
//   collect   each output spike adds the patch [kx][c] of two input traces to its channel's weight gradient
//
// All of them add to one entry in the order (ky, kx, c), so scatter and gather give the same bits, on any instruction
// set: lanes never meet, and multiply and add are rounded apart. Scatter is bound by stores and gather by loads; gather
// wants whole vectors of output channels.
#pragma once

#include "snnlib/simd.h"

namespace snnlib {
namespace SNNLIB_ISA {

// Where an entry of a row acts: offset in the output row (gather: its pixel) and in the weights of a kernel row.
struct Place {
  int32_t at, row;
};

struct Event {
  int32_t at, row;
  float amount;
};

// Appends the nonzero entries of a row to `out` and returns the end. Reads `row` up to padded(n); the rest is zero.
inline Event* find_events(const float* row, int64_t n, const Place* places, Event* out, bool* binary) {
  uint32_t other = 0;
  for (int64_t i = 0; i < n; i += kLanes) {
    const Floats v = load(row + i);
    uint64_t bits = nonzero_lanes(v);
    if (!bits) continue;
    other |= nonzero_lanes(v * (v - 1.0f));
    for (; bits; bits &= bits - 1) {
      const int64_t j = i + lowest_bit(bits);
      *out++ = {places[j].at, places[j].row, row[j]};
    }
  }
  *binary = *binary && !other;
  return out;
}

// starts[x] = first event at pixel x or later, for x in [0, pixels]; `at` of the events is their pixel.
inline void find_pixels(const Event* events, int32_t count, int64_t pixels, int32_t* starts) {
  int64_t x = 0;
  for (int32_t i = 0; i < count; ++i) {
    for (; x <= events[i].at; ++x) starts[x] = i;
  }
  for (; x <= pixels; ++x) starts[x] = count;
}

template <int V, bool Binary>
SNNLIB_NOINLINE void scatter_fixed(const Event* event, const Event* end, const float* weight, float* out) {
  for (; event != end; ++event) {
    const float* w = weight + event->row;
    float* p = out + event->at;
    const Floats amount = Floats{} + event->amount;
    for (int v = 0; v < V; ++v) {
      const Floats add = Binary ? load(w + v * kLanes) : amount * load(w + v * kLanes);
      store(p + v * kLanes, load(p + v * kLanes) + add);
    }
  }
}

template <bool Binary>
SNNLIB_NOINLINE void scatter_any(const Event* event, const Event* end, const float* weight, float* out,
                                 int64_t vectors) {
  for (; event != end; ++event) {
    const float* w = weight + event->row;
    float* p = out + event->at;
    const Floats amount = Floats{} + event->amount;
    for (int64_t v = 0; v < vectors; ++v) {
      const Floats add = Binary ? load(w + v * kLanes) : amount * load(w + v * kLanes);
      store(p + v * kLanes, load(p + v * kLanes) + add);
    }
  }
}

// Adds one kernel row of `length` floats per event. What lies behind it in `weight` is zero up to a whole vector.
template <bool Binary>
inline void scatter(const Event* begin, const Event* end, const float* weight, float* out, int64_t length) {
  const int64_t vectors = (length + kLanes - 1) / kLanes;
  switch (vectors) {
    case 1:
      return scatter_fixed<1, Binary>(begin, end, weight, out);
    case 2:
      return scatter_fixed<2, Binary>(begin, end, weight, out);
    case 3:
      return scatter_fixed<3, Binary>(begin, end, weight, out);
    case 4:
      return scatter_fixed<4, Binary>(begin, end, weight, out);
    case 8:
      return scatter_fixed<8, Binary>(begin, end, weight, out);
    default:
      return scatter_any<Binary>(begin, end, weight, out, vectors);
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
};

template <int V, bool Binary>
SNNLIB_NOINLINE void gather_fixed(const GatherRow& r, float* out) {
  for (int64_t x = 0; x < r.width; ++x, out += r.out_stride) {
    const int64_t first = x * r.stride;
    const Event* event = r.events + r.starts[first];
    const Event* end = r.events + r.starts[first + r.kernel];
    if (event == end) continue;
    const int64_t shift = first * r.pixel_weights;
    Floats sum[V];
    for (int v = 0; v < V; ++v) sum[v] = load(out + v * kLanes);
    for (; event != end; ++event) {
      const float* w = r.weight + (event->row - shift);
      const Floats amount = Floats{} + event->amount;
      for (int v = 0; v < V; ++v) sum[v] += Binary ? load(w + v * kLanes) : amount * load(w + v * kLanes);
    }
    for (int v = 0; v < V; ++v) store(out + v * kLanes, sum[v]);
  }
}

// `channels` is a multiple of kGroup; as many of them at a time as sums fit in registers.
template <bool Binary>
inline void gather(GatherRow r, float* out, int64_t channels) {
  int64_t done = 0;
  const auto turn = [&](auto kernel, int64_t vectors) {
    for (; channels - done >= vectors * kLanes; done += vectors * kLanes) {
      kernel(r, out + done);
      r.weight += vectors * kLanes;
    }
  };
  turn(gather_fixed<8, Binary>, 8);
  turn(gather_fixed<4, Binary>, 4);
  turn(gather_fixed<2, Binary>, 2);
  turn(gather_fixed<1, Binary>, 1);
}

// An output spike with what it takes from the two input traces.
struct Pick {
  int32_t at, row;
  float u, s;
};

template <int V>
SNNLIB_NOINLINE void collect_fixed(const Pick* pick, const Pick* end, const float* trace_u, const float* trace_s,
                                   float* grad, int64_t vectors) {
  const int64_t count = V ? V : vectors;
  for (; pick != end; ++pick) {
    const float* pu = trace_u + pick->at;
    const float* ps = trace_s + pick->at;
    float* g = grad + pick->row;
    const Floats u = Floats{} + pick->u, s = Floats{} + pick->s;
    for (int64_t v = 0; v < count; ++v) {
      store(g + v * kLanes, load(g + v * kLanes) + (u * load(pu + v * kLanes) + s * load(ps + v * kLanes)));
    }
  }
}

// grad[row ...] += u trace_u[at ...] + s trace_s[at ...] over `length` floats and what fills the last vector.
inline void collect(const Pick* begin, const Pick* end, const float* trace_u, const float* trace_s, float* grad,
                    int64_t length) {
  const int64_t vectors = (length + kLanes - 1) / kLanes;
  switch (vectors) {
    case 1:
      return collect_fixed<1>(begin, end, trace_u, trace_s, grad, vectors);
    case 2:
      return collect_fixed<2>(begin, end, trace_u, trace_s, grad, vectors);
    case 4:
      return collect_fixed<4>(begin, end, trace_u, trace_s, grad, vectors);
    case 8:
      return collect_fixed<8>(begin, end, trace_u, trace_s, grad, vectors);
    default:
      return collect_fixed<0>(begin, end, trace_u, trace_s, grad, vectors);
  }
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
