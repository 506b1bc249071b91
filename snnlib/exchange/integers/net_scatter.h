/* Sums over a layer's inputs where few neurons lie next to each other: an input goes to all rows that see it at once.
 */
#ifndef SNNLIB_NET_SCATTER_H
#define SNNLIB_NET_SCATTER_H

#include "net_sums.h"

/* Whether a layer's sums are taken this way: runs of weights are short and have no delays, and `ring` holds the rows
 * that one input reaches. */
SNN_INLINE int32_t snn_scatters(const snn_layer* layer) {
  return layer->height > 1 && layer->kernel_height > 1 && layer->kernel_height <= SNN_RING_ROWS &&
         layer->kernel_width * layer->channels <= SNN_SHORT_RUN && layer->stride_y == 1 && layer->stride_x == 1 &&
         layer->dilation_y == 1 && layer->dilation_x == 1 && !layer->weight_delay;
}

SNN_INLINE int16_t* snn_ring_of(const snn_layer* layer, const snn_scratch* scratch, int32_t y) {
  return scratch->ring + (int64_t)(y % layer->kernel_height) * snn_reach(layer);
}

/* Adds the inputs of a row of the frame under kernel rows `from` to `to` to their rows of sums. */
SNN_INLINE void snn_scatter_under(const snn_layer* layer, const snn_list* inputs, int32_t in_y, int32_t from,
                                  int32_t to, int16_t* const* rows) {
  const int32_t step = layer->kernel_width * layer->channels, end = inputs->row[in_y + 1];
  const int32_t lead = (layer->padding_x - (layer->kernel_width - 1)) * layer->channels + snn_margin(layer);
  int32_t k, ky;
  for (k = inputs->row[in_y]; k < end; ++k) {
    const int32_t at = inputs->column[k] * layer->channels + lead, count = inputs->count[k];
    const int32_t channel = inputs->place[k] - in_y * layer->in_channels;
    for (ky = from; ky < to; ++ky) {
      const int64_t first = (int64_t)(ky * layer->in_channels + channel) * step;
      snn_add(layer->weight, layer->packed, first, count, step, rows[ky] + at);
    }
  }
}

SNN_INLINE void snn_scatter_row(const snn_layer* layer, const snn_list* inputs, int32_t in_y,
                                const snn_scratch* scratch) {
  const int32_t kernel = layer->kernel_height, below = in_y + layer->padding_y, beyond = below - layer->height + 1;
  const int32_t from = beyond > 0 ? beyond : 0, to = below < kernel ? below + 1 : kernel;
  int16_t* rows[SNN_RING_ROWS];
  int32_t ky, slot = below % kernel;
  if (inputs->row[in_y] == inputs->row[in_y + 1]) return;
  for (ky = 0; ky < kernel; ++ky) {
    rows[ky] = scratch->ring + (int64_t)slot * snn_reach(layer);
    slot = slot ? slot - 1 : kernel - 1;
  }
  if (from == 0 && to == kernel) {
    /* With constants, which a compiler unrolls. */
    snn_scatter_under(layer, inputs, in_y, 0, kernel, rows);
  } else {
    snn_scatter_under(layer, inputs, in_y, from, to, rows);
  }
}

/* The largest count of a list. */
SNN_INLINE int32_t snn_largest(const snn_layer* layer, const snn_list* inputs) {
  uint8_t largest = 0;
  int32_t k;
  for (k = 0; k < inputs->row[layer->in_height]; ++k) {
    largest = inputs->count[k] > largest ? inputs->count[k] : largest;
  }
  return largest;
}

/* Makes the sums of row y complete, of which input row `next` is the first that is not there yet; returns the next one.
 * Called for y = 0, 1, ...; `largest` is the inputs' largest count. */
SNN_INLINE int32_t snn_scatter_until(snn_row* row, const snn_list* inputs, int32_t y, int32_t next, int32_t largest,
                                     const snn_scratch* scratch) {
  const snn_layer* layer = row->layer;
  const int32_t top = y - layer->padding_y, seen = top + layer->kernel_height;
  const int32_t end = seen < layer->in_height ? seen : layer->in_height, begin = top > 0 ? top : 0;
  for (; next < end; ++next) snn_scatter_row(layer, inputs, next, scratch);
  row->part = snn_ring_of(layer, scratch, y) + snn_margin(layer);
  if (begin < end && (inputs->row[end] - inputs->row[begin]) * largest > SNN_ROOM) {
    /* That may be more than 16 bits hold: once more, moving sums out of them on the way. */
    snn_clear_parts(row);
    snn_add_inputs(row, inputs, y);
  }
  return next;
}

/* Leaves the sums of row y empty. */
SNN_INLINE void snn_scatter_done(const snn_layer* layer, int32_t y, const snn_scratch* scratch) {
  memset(snn_ring_of(layer, scratch, y), 0, (size_t)snn_reach(layer) * sizeof(int16_t));
}

#endif
