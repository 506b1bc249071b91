/* Neurons of a row: states of one time step from sums. */
#ifndef SNNLIB_NET_NEURONS_H
#define SNNLIB_NET_NEURONS_H

#include "net_sums.h"

static int32_t snn_clamp(int32_t value, int32_t low, int32_t high) {
  value = value > high ? high : value;
  return value < low ? low : value;
}

/* The sums of a row in the 16 bits of its parts. */
static void snn_saturate(const snn_row* row) {
  const int32_t* SNN_RESTRICT sum = row->sum;
  int16_t* SNN_RESTRICT part = row->part;
  int32_t k;
  for (k = 0; k < row->n; ++k) part[k] = (int16_t)snn_clamp(sum[k] + part[k], INT16_MIN, INT16_MAX);
}

#if defined(SNN_AVX512)

#define SNN_LANES 32

/* The neurons of whole vectors: the instructions saturate and round as the equations do, without branches. */
SNN_INLINE void snn_fire_vectors(const snn_layer* layer, int32_t n, const int16_t* x, int16_t* v, int16_t* current,
                                 uint8_t* spikes, const int32_t synapse, const int32_t shifts) {
  const __m512i by_m = _mm512_set1_epi16((int16_t)layer->leak_m), by_s = _mm512_set1_epi16((int16_t)layer->leak_s);
  const __m512i high = _mm512_set1_epi16((int16_t)(INT16_MAX >> layer->fraction));
  const __m512i low = _mm512_set1_epi16((int16_t)(INT16_MIN >> layer->fraction));
  const __m512i unit = _mm512_set1_epi16((int16_t)(1 << layer->fraction));
  const __mmask32 kept_v = layer->keep ? 0xffffffffu : 0, kept_i = layer->resets_all ? 0 : 0xffffffffu;
  const int16_t* above = (const int16_t*)layer->above;
  const int16_t* offset = (const int16_t*)layer->offset;
  int32_t k, level;
  for (k = 0; k + SNN_LANES <= n; k += SNN_LANES) {
    const __m512i u = _mm512_loadu_si512(v + k);
    const __m512i most = _mm512_loadu_si512(above + k), change = _mm512_loadu_si512(offset + k);
    __m512i i = _mm512_loadu_si512(x + k), h;
    __m256i count = _mm256_setzero_si256();
    __mmask32 fired = 0;
    if (shifts) i = _mm512_mullo_epi16(_mm512_min_epi16(_mm512_max_epi16(i, low), high), unit);
    if (synapse) {
      const __m512i was = _mm512_loadu_si512(current + k);
      i = _mm512_adds_epi16(_mm512_sub_epi16(was, _mm512_mulhrs_epi16(was, by_s)), i);
    }
    h = _mm512_adds_epi16(_mm512_sub_epi16(u, _mm512_mulhrs_epi16(u, by_m)), i);
    for (level = 0; level < layer->levels; ++level) {
      const __mmask32 s = _mm512_cmpgt_epi16_mask(h, most);
      h = _mm512_mask_add_epi16(h, s, _mm512_maskz_mov_epi16(kept_v, h), change);
      count = _mm256_mask_add_epi8(count, s, count, _mm256_set1_epi8(1));
      fired |= s;
    }
    _mm512_storeu_si512(v + k, h);
    if (synapse) _mm512_storeu_si512(current + k, _mm512_maskz_mov_epi16(~fired | kept_i, i));
    _mm256_storeu_si256((__m256i*)(spikes + k), count);
  }
}

#elif defined(__AVX2__)

#define SNN_LANES 16

SNN_INLINE void snn_fire_vectors(const snn_layer* layer, int32_t n, const int16_t* x, int16_t* v, int16_t* current,
                                 uint8_t* spikes, const int32_t synapse, const int32_t shifts) {
  const __m256i by_m = _mm256_set1_epi16((int16_t)layer->leak_m), by_s = _mm256_set1_epi16((int16_t)layer->leak_s);
  const __m256i high = _mm256_set1_epi16((int16_t)(INT16_MAX >> layer->fraction));
  const __m256i low = _mm256_set1_epi16((int16_t)(INT16_MIN >> layer->fraction));
  const __m256i unit = _mm256_set1_epi16((int16_t)(1 << layer->fraction));
  const __m256i kept_v = _mm256_set1_epi16(layer->keep ? -1 : 0),
                kept_i = _mm256_set1_epi16(layer->resets_all ? 0 : -1);
  const int16_t* above = (const int16_t*)layer->above;
  const int16_t* offset = (const int16_t*)layer->offset;
  int32_t k, level;
  for (k = 0; k + SNN_LANES <= n; k += SNN_LANES) {
    const __m256i u = _mm256_loadu_si256((const __m256i*)(v + k));
    const __m256i most = _mm256_loadu_si256((const __m256i*)(above + k));
    const __m256i change = _mm256_loadu_si256((const __m256i*)(offset + k));
    __m256i i = _mm256_loadu_si256((const __m256i*)(x + k)), count = _mm256_setzero_si256(), h, fired;
    if (shifts) i = _mm256_mullo_epi16(_mm256_min_epi16(_mm256_max_epi16(i, low), high), unit);
    if (synapse) {
      const __m256i was = _mm256_loadu_si256((const __m256i*)(current + k));
      i = _mm256_adds_epi16(_mm256_sub_epi16(was, _mm256_mulhrs_epi16(was, by_s)), i);
    }
    h = _mm256_adds_epi16(_mm256_sub_epi16(u, _mm256_mulhrs_epi16(u, by_m)), i);
    for (level = 0; level < layer->levels; ++level) {
      const __m256i s = _mm256_cmpgt_epi16(h, most);
      h = _mm256_blendv_epi8(h, _mm256_add_epi16(_mm256_and_si256(h, kept_v), change), s);
      count = _mm256_sub_epi16(count, s);
    }
    _mm256_storeu_si256((__m256i*)(v + k), h);
    fired = _mm256_cmpgt_epi16(count, _mm256_setzero_si256());
    i = _mm256_or_si256(_mm256_andnot_si256(fired, i), _mm256_and_si256(i, kept_i));
    if (synapse) _mm256_storeu_si256((__m256i*)(current + k), i);
    _mm_storeu_si128((__m128i*)(spikes + k),
                     _mm_packus_epi16(_mm256_castsi256_si128(count), _mm256_extracti128_si256(count, 1)));
  }
}

#endif

/* The neurons of a row with states of 16 bits; a byte for each, the number of its spikes. */
SNN_INLINE void snn_fire16(const snn_layer* layer, int32_t n, const int16_t* SNN_RESTRICT x, int16_t* SNN_RESTRICT v,
                           int16_t* SNN_RESTRICT current, uint8_t* SNN_RESTRICT spikes) {
  const int32_t leak_m = layer->leak_m, leak_s = layer->leak_s, keep = layer->keep, synapse = layer->has_synapse;
  const int32_t kept_current = layer->resets_all ? 0 : -1, unit = 1 << layer->fraction;
  const int32_t high = INT16_MAX >> layer->fraction, low = -high - 1;
  const int16_t* SNN_RESTRICT above = (const int16_t*)layer->above;
  const int16_t* SNN_RESTRICT offset = (const int16_t*)layer->offset;
  int32_t k = 0;
#if defined(SNN_LANES)
  if (leak_m <= INT16_MAX && leak_s <= INT16_MAX) {
    if (synapse) {
      if (layer->fraction) {
        snn_fire_vectors(layer, n, x, v, current, spikes, 1, 1);
      } else {
        snn_fire_vectors(layer, n, x, v, current, spikes, 1, 0);
      }
    } else {
      snn_fire_vectors(layer, n, x, v, current, spikes, 0, 1);
    }
    k = n / SNN_LANES * SNN_LANES;
  }
#endif
  for (; k < n; ++k) {
    const int32_t u = v[k];
    int32_t i = snn_clamp(x[k], low, high) * unit, h, s = 0;
    if (synapse) {
      const int32_t was = current[k];
      i = snn_clamp(was - ((was * leak_s + 16384) >> 15) + i, INT16_MIN, INT16_MAX);
    }
    h = snn_clamp(u - ((u * leak_m + 16384) >> 15) + i, INT16_MIN, INT16_MAX);
    for (; s < layer->levels && h > above[k]; ++s) h = keep * h + offset[k];
    v[k] = (int16_t)h;
    if (synapse) current[k] = (int16_t)(s ? i & kept_current : i);
    spikes[k] = (uint8_t)s;
  }
}

static int64_t snn_decayed(int64_t z, int32_t leak, int32_t toward_zero) {
  const int64_t kept = ((z < 0 ? -z : z) * (32768 - leak)) >> 15;
  if (toward_zero) return z < 0 ? -kept : kept;
  return z - ((z * leak + 16384) >> 15);
}

static int32_t snn_clamp_wide(int64_t value) {
  return value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : (int32_t)value;
}

/* The same with states of 32 bits; without `above`, membranes alone. `left` is null without a refractory time. */
static void snn_fire32(const snn_layer* layer, int32_t n, const int32_t* sum, int32_t* v, int32_t* current,
                       uint8_t* left, uint8_t* spikes) {
  const int32_t* above = (const int32_t*)layer->above;
  const int32_t* offset = (const int32_t*)layer->offset;
  const int32_t high = INT32_MAX >> layer->fraction, low = -high - 1, toward_zero = layer->toward_zero;
  int32_t k;
  for (k = 0; k < n; ++k) {
    int32_t i = snn_clamp(sum[k], low, high) * (1 << layer->fraction), s = 0, h;
    if (layer->has_synapse) i = snn_clamp_wide(snn_decayed(current[k], layer->leak_s, toward_zero) + i);
    h = snn_clamp_wide(snn_decayed(v[k], layer->leak_m, toward_zero) + i + (layer->drive ? layer->drive[k] : 0));
    if (left && left[k]) {
      h = v[k];
      --left[k];
    } else if (above) {
      for (; s < layer->levels && h > above[k]; ++s) h = layer->keep * h + offset[k];
      if (s && left) left[k] = (uint8_t)layer->refractory;
    }
    v[k] = h;
    if (layer->has_synapse) current[k] = s && layer->resets_all ? 0 : i;
    spikes[k] = (uint8_t)s;
  }
}

#endif
