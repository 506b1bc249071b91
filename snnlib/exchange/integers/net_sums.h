/* Sums over a layer's inputs, a row of neurons at a time. */
#ifndef SNNLIB_NET_SUMS_H
#define SNNLIB_NET_SUMS_H

#include "net_list.h"

/* Sums of a row while inputs are added. */
typedef struct {
  const snn_layer* layer;
  int32_t n;
  int32_t* sum;
  int16_t* part;
  /* How many spikes the 16 bits of `part` have left room for, of the largest weight; whether `sum` holds anything. */
  int32_t room;
  int32_t is_split;
} snn_row;

/* Places of a row of sums before its neurons, and of the whole row: as many as inputs reach beyond the neurons, so that
 * no run of weights is cut at a border. */
SNN_INLINE int32_t snn_margin(const snn_layer* layer) {
  const int32_t margin = layer->kernel_width - 1 - layer->padding_x;
  return margin > 0 ? margin * layer->channels : 0;
}
SNN_INLINE int32_t snn_reach(const snn_layer* layer) {
  const int32_t reached = layer->in_width + layer->padding_x;
  return snn_margin(layer) + (reached > layer->width ? reached : layer->width) * layer->channels;
}

/* Whether a row of parts has such places: not where most of them would be. */
SNN_INLINE int32_t snn_has_margins(const snn_layer* layer) {
  return layer->stride_x == 1 && layer->dilation_x == 1 && layer->kernel_width <= layer->width && !layer->weight_delay;
}
SNN_INLINE int32_t snn_part_row(const snn_layer* layer) {
  return snn_has_margins(layer) ? snn_reach(layer) : layer->width * layer->channels;
}

static void snn_begin_row(const snn_layer* layer, const snn_scratch* scratch, snn_row* row) {
  row->layer = layer;
  row->n = layer->width * layer->channels;
  row->sum = scratch->sum;
  row->part = scratch->part + (snn_has_margins(layer) ? snn_margin(layer) : 0);
  row->room = SNN_ROOM;
  row->is_split = layer->bias != 0;
  if (layer->bias) memcpy(row->sum, layer->bias, (size_t)row->n * sizeof(int32_t));
}

static void snn_move_parts(int32_t n, int32_t is_first, int16_t* SNN_RESTRICT part, int32_t* SNN_RESTRICT sum) {
  int32_t k;
  if (is_first) {
    for (k = 0; k < n; ++k) sum[k] = part[k];
  } else {
    for (k = 0; k < n; ++k) sum[k] += part[k];
  }
}

#if defined(SNN_AVX512)
/* The first n of 32 weights, and zeros. */
SNN_INLINE __m256i snn_weights(const int8_t* weight, int32_t n) {
  if (n >= 32) return _mm256_loadu_si256((const __m256i*)weight);
  return _mm256_maskz_loadu_epi8((1u << n) - 1u, weight);
}
#endif

/* part[k] += count * weight[k] for n weights. */
SNN_INLINE void snn_add_bytes(const int8_t* SNN_RESTRICT weight, int32_t count, int32_t n, int16_t* SNN_RESTRICT part) {
  int32_t k = 0;
#if defined(SNN_AVX512)
  const __m512i times = _mm512_set1_epi16((int16_t)count);
  /* The last vector is stored as a whole, as a load that follows a cut store has to wait for it. A product costs less
   * than a branch for counts of 1, which is often missed. */
  for (; k < n; k += 32) {
    const __m512i more = _mm512_mullo_epi16(_mm512_cvtepi8_epi16(snn_weights(weight + k, n - k)), times);
    _mm512_storeu_si512(part + k, _mm512_add_epi16(_mm512_loadu_si512(part + k), more));
  }
#else
  if (count == 1) {
    for (; k < n; ++k) part[k] = (int16_t)(part[k] + weight[k]);
  } else {
    for (; k < n; ++k) part[k] = (int16_t)(part[k] + (int16_t)(count * weight[k]));
  }
#endif
}

/* Weight number k of those of four bits. */
SNN_INLINE int32_t snn_nibble(const uint8_t* weights, int64_t k) {
  const int32_t both = weights[k >> 1], four = k & 1 ? both >> 4 : both & 15;
  return four - ((four & 8) << 1);
}

/* The same with n weights of four bits, from number `first` on. */
static void snn_add_nibbles(const uint8_t* SNN_RESTRICT weights, int64_t first, int32_t count, int32_t n,
                            int16_t* SNN_RESTRICT part) {
  int32_t k;
  for (k = 0; k < n; ++k) part[k] = (int16_t)(part[k] + count * snn_nibble(weights, first + k));
}

SNN_INLINE void snn_add(const uint8_t* weights, int32_t packed, int64_t first, int32_t count, int32_t n,
                        int16_t* part) {
  if (packed) {
    snn_add_nibbles(weights, first, count, n, part);
  } else {
    snn_add_bytes((const int8_t*)weights + first, count, n, part);
  }
}

/* Leaves the sums in 16 bits empty. */
static void snn_clear_parts(const snn_row* row) { memset(row->part, 0, (size_t)row->n * sizeof(int16_t)); }

/* Moves the sums out of 16 bits. */
static void snn_make_room(snn_row* row) {
  snn_move_parts(row->n, !row->is_split, row->part, row->sum);
  snn_clear_parts(row);
  row->is_split = 1;
  row->room = SNN_ROOM;
}

/* Adds the part of a run of weights, of which number `first` belongs to the neuron `at`, that lies within the row. */
static void snn_add_border(const snn_row* row, int64_t first, int32_t count, int32_t n, int32_t at) {
  const int32_t begin = at < 0 ? -at : 0, end = at + n > row->n ? row->n - at : n;
  if (begin < end) {
    snn_add(row->layer->weight, row->layer->packed, first + begin, count, end - begin, row->part + at + begin);
  }
}

/* Adds what inputs `from` to `to` bring, where neighbouring neurons see an input through neighbouring taps: one run of
 * weights. The kernel's first row lies on row `top` of the frame. */
SNN_INLINE void snn_add_runs(snn_row* row, const snn_list* inputs, int32_t from, int32_t to, int32_t top) {
  const snn_layer* layer = row->layer;
  const int32_t channels = layer->channels, step = layer->kernel_width * channels,
                last = layer->width * channels - step;
  const int32_t left = layer->padding_x - (layer->kernel_width - 1), above = top * layer->in_channels;
  const uint16_t *column = inputs->column, *place = inputs->place;
  const uint8_t* counts = inputs->count;
  int32_t room = row->room, k;
  for (k = from; k < to; ++k) {
    const int32_t count = counts[k], at = (column[k] + left) * channels;
    const int64_t first = (int64_t)(place[k] - above) * step;
    if (room < count) {
      snn_make_room(row);
      room = SNN_ROOM;
    }
    room -= count;
    if (layer->width == 1 && layer->padding_x == 0) {
      /* One cell of neurons sees each column through one tap. */
      snn_add(layer->weight, layer->packed, first - at, count, channels, row->part);
    } else if (snn_has_margins(layer) || (at >= 0 && at <= last)) {
      snn_add(layer->weight, layer->packed, first, count, step, row->part + at);
    } else {
      snn_add_border(row, first, count, step, at);
    }
  }
  row->room = room;
}

/* The same with strides and dilations along x. */
static void snn_add_taps(snn_row* row, const snn_list* inputs, int32_t from, int32_t to, int32_t top) {
  const snn_layer* layer = row->layer;
  const int32_t channels = layer->channels, taps = layer->kernel_width, stride = layer->stride_x;
  int32_t k, tap;
  for (k = from; k < to; ++k) {
    const int32_t count = inputs->count[k];
    const int64_t first = (int64_t)(inputs->place[k] - top * layer->in_channels) * taps;
    if (row->room < count) snn_make_room(row);
    row->room -= count;
    for (tap = 0; tap < taps; ++tap) {
      const int32_t at = inputs->column[k] + layer->padding_x - tap * layer->dilation_x;
      if (at >= 0 && at % stride == 0 && at / stride < layer->width) {
        snn_add(layer->weight, layer->packed, (first + taps - 1 - tap) * channels, count, channels,
                row->part + at / stride * channels);
      }
    }
  }
}

/* Adds the inputs in rows `begin` to `end` of the frame. */
SNN_INLINE void snn_add_rows(snn_row* row, const snn_list* inputs, int32_t begin, int32_t end, int32_t top) {
  const snn_layer* layer = row->layer;
  begin = begin < 0 ? 0 : begin;
  end = end > layer->in_height ? layer->in_height : end;
  if (begin >= end) return;
  if (layer->stride_x == 1 && layer->dilation_x == 1) {
    snn_add_runs(row, inputs, inputs->row[begin], inputs->row[end], top);
  } else {
    snn_add_taps(row, inputs, inputs->row[begin], inputs->row[end], top);
  }
}

/* Adds the inputs of row y of the neurons. */
SNN_INLINE void snn_add_inputs(snn_row* row, const snn_list* inputs, int32_t y) {
  const snn_layer* layer = row->layer;
  const int32_t top = y * layer->stride_y - layer->padding_y;
  int32_t tap;
  if (layer->dilation_y == 1) {
    snn_add_rows(row, inputs, top, top + layer->kernel_height, top);
    return;
  }
  for (tap = 0; tap < layer->kernel_height; ++tap) {
    const int32_t from = top + tap * layer->dilation_y;
    /* As if the kernel had no gaps above this row. */
    if (from >= 0) snn_add_rows(row, inputs, from, from + 1, from - tap);
  }
}

/* Adds what the neurons' own spikes of the last step bring. */
static void snn_add_recurrent(snn_row* row) {
  const snn_layer* layer = row->layer;
  int32_t k;
  for (k = snn_next(layer->last, 0, row->n); k < row->n; k = snn_next(layer->last, k + 1, row->n)) {
    if (row->room < layer->last[k]) snn_make_room(row);
    row->room -= layer->last[k];
    snn_add(layer->recurrent, layer->packed, (int64_t)k * row->n, layer->last[k], row->n, row->part);
  }
}

#endif
