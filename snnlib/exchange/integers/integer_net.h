/* One time step of a layer. */
#ifndef SNNLIB_INTEGER_NET_H
#define SNNLIB_INTEGER_NET_H

#include "net_delays.h"
#include "net_neurons.h"
#include "net_scatter.h"

/* One time step of a layer, from the list of its inputs.
 *
 * next: the list of the next layer's; null for the last layer.
 * result: null, or where the last layer's spikes or potentials go, [height][width][channels].
 */
SNN_INLINE void snn_step(const snn_layer* layer, const snn_list* inputs, const snn_list* next,
                         const snn_scratch* scratch, int32_t* result) {
  const int32_t n = layer->width * layer->channels, scatters = snn_scatters(layer);
  int32_t y, k, next_input = 0, found = 0, largest = 0;
  if (layer->waiting) snn_take_inputs(layer, inputs);
  if (scatters) largest = snn_largest(layer, inputs);
  for (y = 0; y < layer->height; ++y) {
    const int64_t first = (int64_t)y * n;
    snn_row row;
    snn_begin_row(layer, scratch, &row);
    if (scatters) {
      next_input = snn_scatter_until(&row, inputs, y, next_input, largest, scratch);
    } else {
      snn_clear_parts(&row);
      if (!layer->weight_delay) snn_add_inputs(&row, inputs, y);
    }
    if (layer->recurrent && !layer->recurrent_delay) snn_add_recurrent(&row);
    if (layer->weight_delay && layer->waiting) snn_add_frames(&row, y);
    if (layer->waiting_sum) snn_add_delayed(&row, inputs);
    if (layer->is_wide) {
      snn_move_parts(n, !row.is_split, row.part, row.sum);
      snn_fire32(layer, n, row.sum, (int32_t*)layer->potential + first,
                 layer->has_synapse ? (int32_t*)layer->current + first : (int32_t*)0,
                 layer->left ? layer->left + first : (uint8_t*)0, scratch->spikes);
    } else {
      if (row.is_split) snn_saturate(&row);
      snn_fire16(layer, n, row.part, (int16_t*)layer->potential + first,
                 layer->has_synapse ? (int16_t*)layer->current + first : (int16_t*)0, scratch->spikes);
    }
    if (scatters) snn_scatter_done(layer, y, scratch);
    if (layer->recurrent) memcpy(layer->last, scratch->spikes, (size_t)n);
    if (next) found = snn_hand_on(layer, y, scratch, next, found);
    if (result) {
      int32_t* to = result + first;
      for (k = 0; k < n; ++k) to[k] = layer->above ? scratch->spikes[k] : ((const int32_t*)layer->potential)[first + k];
    }
  }
  if (layer->now) *layer->now = snn_later(layer, 1);
}

/* The state before the first step: membranes where a reset puts them. */
static void snn_clear(const snn_layer* layer) {
  const size_t row = (size_t)(layer->width * layer->channels) * (layer->is_wide ? sizeof(int32_t) : sizeof(int16_t));
  int32_t y;
  for (y = 0; y < layer->height; ++y) {
    uint8_t* to = (uint8_t*)layer->potential + (size_t)y * row;
    if (layer->above && !layer->keep) {
      memcpy(to, layer->offset, row);
    } else {
      memset(to, 0, row);
    }
  }
  if (layer->current) memset(layer->current, 0, (size_t)layer->height * row);
  if (layer->left) memset(layer->left, 0, (size_t)layer->height * (size_t)(layer->width * layer->channels));
  if (layer->now) snn_clear_delays(layer);
  if (layer->last) memset(layer->last, 0, (size_t)(layer->width * layer->channels));
}

#endif
