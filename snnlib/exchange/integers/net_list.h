/* Lists of the cells of a frame that hold spikes. */
#ifndef SNNLIB_NET_LIST_H
#define SNNLIB_NET_LIST_H

#include "net_layer.h"

/* The next byte from `at` that is not 0, or `end`; eight empty ones are passed over at a time. */
static int32_t snn_next(const uint8_t* bytes, int32_t at, int32_t end) {
  while (end - at >= 8) {
    uint64_t eight;
    memcpy(&eight, bytes + at, 8);
    if (eight) {
#if defined(SNN_LOWEST_BYTE)
      return at + SNN_LOWEST_BYTE(eight);
#else
      break;
#endif
    }
    at += 8;
  }
  while (at < end && !bytes[at]) ++at;
  return at;
}

/* A number below 2^16 divided by d, as (number * SNN_INVERSE(d)) >> 32. */
#define SNN_INVERSE(d) (UINT64_C(0xffffffff) / (uint64_t)(d) + 1)

SNN_INLINE int32_t snn_list_cell(const uint8_t* row, int32_t at, uint64_t inverse, int32_t channels, int32_t y,
                                 const snn_list* list, int32_t found) {
  const int32_t x = (int32_t)((uint64_t)at * inverse >> 32);
  list->column[found] = (uint16_t)x;
  list->place[found] = (uint16_t)(y * channels + at - x * channels);
  list->count[found] = row[at];
  return found + 1;
}

/* Lists the cells of row y of a frame; returns how many there are then. */
SNN_INLINE int32_t snn_list_row(const uint8_t* row, int32_t width, int32_t channels, int32_t y, const snn_list* list,
                                int32_t found) {
  const uint64_t inverse = SNN_INVERSE(channels);
  const int32_t cells = width * channels;
  int32_t at;
  list->row[y] = found;
#if defined(SNN_AVX512)
  for (at = 0; at < cells; at += 64) {
    const __mmask64 there = cells - at < 64 ? ((__mmask64)1 << (cells - at)) - 1 : ~(__mmask64)0;
    const __m512i some = _mm512_maskz_loadu_epi8(there, row + at);
    uint64_t set = _mm512_test_epi8_mask(some, some);
    for (; set; set &= set - 1)
      found = snn_list_cell(row, at + __builtin_ctzll(set), inverse, channels, y, list, found);
  }
#else
  for (at = snn_next(row, 0, cells); at < cells; at = snn_next(row, at + 1, cells)) {
    found = snn_list_cell(row, at, inverse, channels, y, list, found);
  }
#endif
  list->row[y + 1] = found;
  return found;
}

/* Lists the cells of a frame [height][width][channels], as it comes from outside. */
SNN_INLINE void snn_list_frame(const snn_layer* layer, const uint8_t* frame, const snn_list* list) {
  const int32_t width = layer->in_width, channels = layer->in_channels;
  int32_t y, found = 0;
  for (y = 0; y < layer->in_height; ++y) {
    found = snn_list_row(frame + (int64_t)y * width * channels, width, channels, y, list, found);
  }
}

/* Adds up the spikes of row y by windows, and lists them for the next layer where the windows end; cells outside of
 * whole windows are left out. Returns how many cells are listed then. */
SNN_INLINE int32_t snn_hand_on(const snn_layer* layer, int32_t y, int32_t count, const snn_scratch* scratch,
                               const snn_list* next, int32_t found) {
  const int32_t channels = layer->channels, columns = layer->width / layer->pool_x, window = y / layer->pool_y;
  const uint64_t by_channels = SNN_INVERSE(channels), by_pool = SNN_INVERSE(layer->pool_x);
  uint8_t* row = scratch->pooled;
  int32_t k;
  if (window >= layer->height / layer->pool_y) return found;
  if (y % layer->pool_y == 0) {
    memset(row, 0, (size_t)(columns * channels));
    next->row[window] = found;
    next->row[window + 1] = found;
  }
  for (k = 0; k < count; ++k) {
    const uint64_t x = scratch->fired[k] * by_channels >> 32;
    const int32_t column = (int32_t)(x * by_pool >> 32), channel = scratch->fired[k] - (int32_t)x * channels;
    if (column >= columns) break;
    if (row[column * channels + channel]++ == 0) {
      next->column[found] = (uint16_t)column;
      next->place[found++] = (uint16_t)(window * channels + channel);
    }
  }
  if (y % layer->pool_y == layer->pool_y - 1) {
    for (k = next->row[window]; k < found; ++k) {
      next->count[k] = row[next->column[k] * channels + next->place[k] - window * channels];
    }
    next->row[window + 1] = found;
  }
  return found;
}

#endif
