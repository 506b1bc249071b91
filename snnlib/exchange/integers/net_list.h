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

#if defined(SNN_AVX512) && defined(__AVX512VBMI2__)
/* 0, 1, ..., 31. */
SNN_INLINE __m512i snn_counted(void) {
  static const int8_t numbers[32] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                     16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i*)numbers));
}
#endif

/* A number below 2^16 divided by d, as (number * SNN_INVERSE(d)) >> 32. */
#define SNN_INVERSE(d) (UINT64_C(0xffffffff) / (uint64_t)(d) + 1)

/* Lists the places of the bytes that are not 0; returns how many there are. */
SNN_INLINE int32_t snn_places(const uint8_t* bytes, int32_t n, uint16_t* places) {
  int32_t found = 0, at;
#if defined(SNN_AVX512)
  for (at = 0; at < n; at += 64) {
    const __mmask64 there = n - at < 64 ? ((__mmask64)1 << (n - at)) - 1 : ~(__mmask64)0;
    const __m512i some = _mm512_maskz_loadu_epi8(there, bytes + at);
    uint64_t set = _mm512_test_epi8_mask(some, some);
#if defined(__AVX512VBMI2__)
    /* Without a branch that depends on how many there are, which no processor foresees. */
    int32_t half;
    for (half = 0; half < 64 && half < n - at; half += 32, set >>= 32) {
      const __m512i all = _mm512_add_epi16(_mm512_set1_epi16((int16_t)(at + half)), snn_counted());
      _mm512_storeu_si512(places + found, _mm512_maskz_compress_epi16((__mmask32)set, all));
      found += __builtin_popcount((uint32_t)set);
    }
#else
    for (; set; set &= set - 1) places[found++] = (uint16_t)(at + __builtin_ctzll(set));
#endif
  }
#else
  at = 0;
#if defined(__AVX2__) && defined(SNN_LOWEST_BYTE)
  for (; at + 32 <= n; at += 32) {
    const __m256i empty = _mm256_cmpeq_epi8(_mm256_loadu_si256((const __m256i*)(bytes + at)), _mm256_setzero_si256());
    uint32_t set = ~(uint32_t)_mm256_movemask_epi8(empty);
    for (; set; set &= set - 1) places[found++] = (uint16_t)(at + __builtin_ctz(set));
  }
#endif
  for (at = snn_next(bytes, at, n); at < n; at = snn_next(bytes, at + 1, n)) places[found++] = (uint16_t)at;
#endif
  return found;
}

/* Lists the cells of row y of a frame; returns how many there are then. */
SNN_INLINE int32_t snn_list_row(const uint8_t* row, int32_t width, int32_t channels, int32_t y, const snn_list* list,
                                int32_t found) {
  const uint64_t inverse = SNN_INVERSE(channels);
  const int32_t end = found + snn_places(row, width * channels, list->place + found);
  list->row[y] = found;
  for (; found < end; ++found) {
    const int32_t at = list->place[found], x = (int32_t)((uint64_t)at * inverse >> 32);
    list->column[found] = (uint16_t)x;
    list->place[found] = (uint16_t)(y * channels + at - x * channels);
    list->count[found] = row[at];
  }
  list->row[y + 1] = end;
  return end;
}

/* Lists the cells of a frame [height][width][channels], as it comes from outside. */
SNN_INLINE void snn_list_frame(const snn_layer* layer, const uint8_t* frame, const snn_list* list) {
  const int32_t width = layer->in_width, channels = layer->in_channels;
  int32_t y, found = 0;
  for (y = 0; y < layer->in_height; ++y) {
    found = snn_list_row(frame + (int64_t)y * width * channels, width, channels, y, list, found);
  }
}

/* to[k] = from[k], or the sum of both. */
SNN_INLINE void snn_add_row(const uint8_t* SNN_RESTRICT from, int32_t is_first, int32_t n, uint8_t* SNN_RESTRICT to) {
  int32_t k;
  if (is_first) {
    memcpy(to, from, (size_t)n);
  } else {
    for (k = 0; k < n; ++k) to[k] = (uint8_t)(to[k] + from[k]);
  }
}

/* Adds up the spikes of row y by windows, and lists them for the next layer where the windows end; cells outside of
 * whole windows are left out. Returns how many cells are listed then. */
SNN_INLINE int32_t snn_hand_on(const snn_layer* layer, int32_t y, const snn_scratch* scratch, const snn_list* next,
                               int32_t found) {
  const int32_t channels = layer->channels, columns = layer->width / layer->pool_x, window = y / layer->pool_y;
  const int32_t n = columns * layer->pool_x * channels;
  const uint64_t by_channels = SNN_INVERSE(channels), by_pool = SNN_INVERSE(layer->pool_x);
  const uint8_t* rows = layer->pool_y == 1 ? scratch->spikes : scratch->window;
  int32_t count, k;
  if (window >= layer->height / layer->pool_y) return found;
  if (layer->pool_y > 1) snn_add_row(scratch->spikes, y % layer->pool_y == 0, n, scratch->window);
  if (y % layer->pool_y != layer->pool_y - 1) return found;
  if (layer->pool_x == 1) return snn_list_row(rows, columns, channels, window, next, found);
  memset(scratch->pooled, 0, (size_t)(columns * channels));
  count = snn_places(rows, n, scratch->fired);
  for (k = 0; k < count; ++k) {
    const int32_t at = scratch->fired[k], x = (int32_t)((uint64_t)at * by_channels >> 32);
    const int32_t column = (int32_t)((uint64_t)x * by_pool >> 32);
    scratch->pooled[at - (x - column) * channels] += rows[at];
  }
  return snn_list_row(scratch->pooled, columns, channels, window, next, found);
}

#endif
