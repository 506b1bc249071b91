/* Inputs and spikes that arrive some steps later. */
#ifndef SNNLIB_NET_DELAYS_H
#define SNNLIB_NET_DELAYS_H

#include "net_sums.h"

/* The place in what waits that is reached after so many steps. */
SNN_INLINE int32_t snn_later(const snn_layer* layer, int32_t steps) {
  const int32_t place = *layer->now + steps;
  return place >= layer->period ? place - layer->period : place;
}

/* Takes the listed inputs into the frames that wait, and lists those that arrive now instead. */
static void snn_delay_inputs(const snn_layer* layer, const snn_list* inputs) {
  const int32_t channels = layer->in_channels, row = layer->in_width * channels, cells = layer->in_height * row;
  uint8_t* now = layer->waiting + (int64_t)*layer->now * cells;
  int32_t y, k;
  for (y = 0; y < layer->in_height; ++y) {
    for (k = inputs->row[y]; k < inputs->row[y + 1]; ++k) {
      const int32_t at = y * row + inputs->column[k] * channels + inputs->place[k] - y * channels;
      layer->waiting[(int64_t)snn_later(layer, layer->delay[at]) * cells + at] = inputs->count[k];
    }
  }
  snn_list_frame(layer, now, inputs);
  memset(now, 0, (size_t)cells);
}

/* Adds weights from number `first` on, of one input, to the sums of the steps in which they arrive. */
static void snn_add_later(const snn_layer* layer, const uint8_t* weights, const uint8_t* delays, int64_t first,
                          int32_t count) {
  const int32_t n = layer->channels;
  int32_t k;
  for (k = 0; k < n; ++k) {
    int32_t weight = ((const int8_t*)weights)[layer->packed ? 0 : first + k];
    if (layer->packed) {
      const int32_t both = weights[(first + k) >> 1], four = (first + k) & 1 ? both >> 4 : both & 15;
      weight = four - ((four & 8) << 1);
    }
    layer->waiting_sum[(int64_t)snn_later(layer, delays[first + k]) * n + k] += count * weight;
  }
}

/* Adds the inputs and the neurons' own spikes whose weights have delays of their own, and what arrives now. */
static void snn_add_delayed(snn_row* row, const snn_list* inputs) {
  const snn_layer* layer = row->layer;
  const int32_t n = row->n, taps = layer->kernel_width;
  int32_t* arrived = layer->waiting_sum + (int64_t)*layer->now * n;
  int32_t k;
  if (layer->weight_delay) {
    for (k = 0; k < inputs->row[layer->in_height]; ++k) {
      const int64_t tap = (int64_t)inputs->place[k] * taps + taps - 1 - inputs->column[k];
      snn_add_later(layer, layer->weight, layer->weight_delay, tap * n, inputs->count[k]);
    }
  }
  if (layer->recurrent_delay) {
    for (k = snn_next(layer->last, 0, n); k < n; k = snn_next(layer->last, k + 1, n)) {
      snn_add_later(layer, layer->recurrent, layer->recurrent_delay, (int64_t)k * n, 1);
    }
  }
  for (k = 0; k < n; ++k) row->sum[k] = arrived[k] + (row->is_split ? row->sum[k] : 0);
  row->is_split = 1;
  memset(arrived, 0, (size_t)n * sizeof(int32_t));
}

/* Forgets what waits. */
static void snn_clear_delays(const snn_layer* layer) {
  const int32_t cells = layer->in_height * layer->in_width * layer->in_channels;
  if (layer->waiting) memset(layer->waiting, 0, (size_t)layer->period * (size_t)cells);
  if (layer->waiting_sum) {
    memset(layer->waiting_sum, 0, (size_t)layer->period * (size_t)layer->channels * sizeof(int32_t));
  }
  *layer->now = 0;
}

#endif
