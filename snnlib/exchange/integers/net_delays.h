/* Inputs and spikes that arrive some steps later. */
#ifndef SNNLIB_NET_DELAYS_H
#define SNNLIB_NET_DELAYS_H

#include "net_sums.h"

/* The place in what waits that is reached after so many steps. */
SNN_INLINE int32_t snn_later(const snn_layer* layer, int32_t steps) {
  const int32_t place = *layer->now + steps;
  return place >= layer->period ? place - layer->period : place;
}

/* Whether one cell of neurons sees the whole frame. What its weights delay waits as sums, a number for each neuron;
 * neurons of other layers, which are many, take it from frames of inputs, a byte for each cell. */
SNN_INLINE int32_t snn_sees_all(const snn_layer* layer) {
  return layer->height == 1 && layer->width == 1 && layer->kernel_height == layer->in_height &&
         layer->kernel_width == layer->in_width && layer->padding_y == 0 && layer->padding_x == 0;
}

/* Takes the listed inputs into the frames that wait. Where inputs have delays, each goes to the frame of the step in
 * which it arrives, and those that arrive now are listed instead; where weights have, all go to the newest frame. */
static void snn_take_inputs(const snn_layer* layer, const snn_list* inputs) {
  const int32_t channels = layer->in_channels, row = layer->in_width * channels, cells = layer->in_height * row;
  uint8_t* now = layer->waiting + (int64_t)*layer->now * cells;
  int32_t y, k;
  if (!layer->delay) memset(now, 0, (size_t)cells);
  for (y = 0; y < layer->in_height; ++y) {
    for (k = inputs->row[y]; k < inputs->row[y + 1]; ++k) {
      const int32_t at = y * row + inputs->column[k] * channels + inputs->place[k] - y * channels;
      const int32_t steps = layer->delay ? layer->delay[at] : 0;
      layer->waiting[(int64_t)snn_later(layer, steps) * cells + at] = inputs->count[k];
    }
  }
  if (layer->delay) {
    snn_list_frame(layer, now, inputs);
    memset(now, 0, (size_t)cells);
  }
}

/* Adds those of n weights, of which number `first` belongs to the neuron `at`, that lie within the row and have this
 * delay. */
static void snn_add_weights_of(const snn_row* row, int32_t steps, int64_t first, int32_t count, int32_t n, int32_t at) {
  const snn_layer* layer = row->layer;
  const int32_t begin = at < 0 ? -at : 0, end = at + n > row->n ? row->n - at : n;
  const uint8_t* SNN_RESTRICT delay = layer->weight_delay + first;
  const int8_t* SNN_RESTRICT weight = (const int8_t*)layer->weight + (layer->packed ? 0 : first);
  int32_t* SNN_RESTRICT sum = row->sum;
  int32_t k;
  if (layer->packed) {
    for (k = begin; k < end; ++k) {
      sum[at + k] += delay[k] == steps ? count * snn_nibble(layer->weight, first + k) : 0;
    }
  } else {
    for (k = begin; k < end; ++k) sum[at + k] += delay[k] == steps ? count * weight[k] : 0;
  }
}

/* Adds to row y of the neurons what its weights bring from the frames that wait, each from that of its delay. */
static void snn_add_frames(snn_row* row, int32_t y) {
  const snn_layer* layer = row->layer;
  const int32_t channels = layer->channels, taps = layer->kernel_width, stride = layer->stride_x;
  const int32_t cells = layer->in_width * layer->in_channels;
  int32_t ky, steps, at, tap;
  if (!row->is_split) memset(row->sum, 0, (size_t)row->n * sizeof(int32_t));
  row->is_split = 1;
  for (ky = 0; ky < layer->kernel_height; ++ky) {
    const int32_t in_y = y * layer->stride_y - layer->padding_y + ky * layer->dilation_y;
    if (in_y < 0 || in_y >= layer->in_height) continue;
    for (steps = 0; steps < layer->period; ++steps) {
      const int32_t place = *layer->now - steps, turn = place < 0 ? place + layer->period : place;
      const uint8_t* bytes = layer->waiting + ((int64_t)turn * layer->in_height + in_y) * cells;
      for (at = snn_next(bytes, 0, cells); at < cells; at = snn_next(bytes, at + 1, cells)) {
        const int32_t column = at / layer->in_channels, right = column + layer->padding_x;
        const int64_t first = ((int64_t)(ky - column) * layer->in_channels + at) * taps;
        if (stride == 1 && layer->dilation_x == 1) {
          /* Neighbouring neurons see an input through neighbouring taps: one run of weights. */
          snn_add_weights_of(row, steps, first * channels, bytes[at], taps * channels, (right - taps + 1) * channels);
          continue;
        }
        for (tap = 0; tap < taps; ++tap) {
          const int32_t to = right - tap * layer->dilation_x;
          if (to >= 0 && to % stride == 0) {
            snn_add_weights_of(row, steps, (first + taps - 1 - tap) * channels, bytes[at], channels,
                               to / stride * channels);
          }
        }
      }
    }
  }
}

/* Adds weights from number `first` on, of one input, to the sums of the steps in which they arrive. */
static void snn_add_later(const snn_layer* layer, const uint8_t* weights, const uint8_t* delays, int64_t first,
                          int32_t count) {
  const int32_t n = layer->channels;
  int32_t k;
  for (k = 0; k < n; ++k) {
    const int32_t weight = layer->packed ? snn_nibble(weights, first + k) : ((const int8_t*)weights)[first + k];
    layer->waiting_sum[(int64_t)snn_later(layer, delays[first + k]) * n + k] += count * weight;
  }
}

/* Adds the inputs and the neurons' own spikes whose weights have delays of their own to the sums that wait, and what
 * arrives now to the row. */
static void snn_add_delayed(snn_row* row, const snn_list* inputs) {
  const snn_layer* layer = row->layer;
  const int32_t n = row->n, taps = layer->kernel_width;
  int32_t* arrived = layer->waiting_sum + (int64_t)*layer->now * n;
  int32_t k;
  if (layer->weight_delay && !layer->waiting) {
    for (k = 0; k < inputs->row[layer->in_height]; ++k) {
      const int64_t tap = (int64_t)inputs->place[k] * taps + taps - 1 - inputs->column[k];
      snn_add_later(layer, layer->weight, layer->weight_delay, tap * n, inputs->count[k]);
    }
  }
  if (layer->recurrent_delay) {
    for (k = snn_next(layer->last, 0, n); k < n; k = snn_next(layer->last, k + 1, n)) {
      snn_add_later(layer, layer->recurrent, layer->recurrent_delay, (int64_t)k * n, layer->last[k]);
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
