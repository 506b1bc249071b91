/* A spiking net in integers, event-driven: what the simulation runs and what an exported program contains.
 *
 * C99 and C++, no dependency, no allocation. A layer reads a frame of spike counts, a byte per cell [y][x][channel],
 * and keeps the state of its neurons in arrays that the caller owns. One time step of a neuron, all in integers:
 *
 *     a = sum over inputs of count * weight + recurrent weights of the last step's spikes + bias       32 bits
 *     x = a * 2^fraction, a saturated to the state's width less `fraction` bits
 *     i = sat(i - D(i, leak_s) + x)                    with a synapse, else i = x
 *     v = sat(v - D(v, leak_m) + i)
 *     s = [v > above];  v = keep * v + offset where s, and i = 0 where all states are reset
 *
 * with D(z, leak) = (z * leak + 2^14) >> 15, a leak of leak / 2^15 rounded to the nearest, and sat to the width of the
 * state, 16 or 32 bits. A layer without `above` gives v. Right shifts of negative numbers are arithmetic.
 */
#ifndef SNNLIB_INTEGER_NET_H
#define SNNLIB_INTEGER_NET_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if (-1 >> 1) != -1
#error "right shifts of negative numbers have to be arithmetic"
#endif

#if defined(__cplusplus)
#define SNN_RESTRICT
#else
#define SNN_RESTRICT restrict
#endif

#if defined(__GNUC__)
#define SNN_INLINE static inline __attribute__((always_inline))
#else
#define SNN_INLINE static
#endif

/* The place of the lowest byte that is not 0, for processors whose words begin with the lowest byte. */
#if defined(__GNUC__) && defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define SNN_LOWEST_BYTE(word) (__builtin_ctzll(word) >> 3)
#endif

typedef struct {
  /* Input frame, and neurons. */
  int32_t in_height, in_width, in_channels;
  int32_t height, width, channels;
  int32_t kernel_height, kernel_width, stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x;
  /* Windows whose spikes are added up for the next layer. */
  int32_t pool_y, pool_x;
  /* [kernel_height][in_channels][kernel_width, last tap first][channels], a byte each, or four bits where packed, the
   * first of two in the lower ones. */
  const uint8_t* weight;
  /* From each neuron to all, [channels][channels], for layers of one cell; null without recurrence. */
  const uint8_t* recurrent;
  /* Of a row of neurons [width][channels]; null for no bias. */
  const int32_t* bias;
  /* The largest membrane that does not fire, and what a spike sets or adds; of the state's width, of a row of neurons.
   * Null for a layer that gives potentials. */
  const void* above;
  const void* offset;
  int32_t leak_m, leak_s, fraction;
  /* Whether there is a synapse, a reset of all states, whether a spike keeps the membrane (reset by subtraction),
   * whether states have 32 bits, and whether weights have four bits. */
  int32_t has_synapse, resets_all, keep, is_wide, packed;
  /* [height][width][channels], of int16_t or int32_t; the current is null without a synapse. */
  void* potential;
  void* current;
  /* Spikes of the last step, for recurrence: [channels]. */
  uint8_t* last;
  /* Frame of the next layer [height / pool_y][width / pool_x][channels]; null for the last layer. */
  uint8_t* output;
  int64_t output_size;
} snn_layer;

/* The cells of a frame that are not empty, row after row: their columns and channels, and where each row begins. */
typedef struct {
  uint16_t* column;
  uint16_t* channel;
  /* One more than the frame has rows. */
  int32_t* row;
} snn_list;

/* Memory that layers share, as they run one after the other: sums of a row of neurons, those of a few inputs in 16
 * bits, and the places of the neurons in it that fire. */
typedef struct {
  int32_t* sum;
  int16_t* part;
  uint16_t* fired;
} snn_scratch;

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

/* Spikes whose weights fit into 16 bits together: 258 times 127. */
#define SNN_ROOM 258

static void snn_begin_row(const snn_layer* layer, const snn_scratch* scratch, snn_row* row) {
  row->layer = layer;
  row->n = layer->width * layer->channels;
  row->sum = scratch->sum;
  row->part = scratch->part;
  row->room = SNN_ROOM;
  row->is_split = layer->bias != 0;
  memset(row->part, 0, (size_t)row->n * sizeof(int16_t));
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

/* part[k] += count * weights[first + k] for n weights. */
SNN_INLINE void snn_add(const uint8_t* SNN_RESTRICT weights, int32_t packed, int64_t first, int32_t count, int32_t n,
                        int16_t* SNN_RESTRICT part) {
  int32_t k = 0;
  if (packed) {
    for (; k < n; ++k) {
      const int32_t both = weights[(first + k) >> 1];
      const int32_t four = (first + k) & 1 ? both >> 4 : both & 15;
      part[k] = (int16_t)(part[k] + count * (four - ((four & 8) << 1)));
    }
  } else {
    const int8_t* SNN_RESTRICT weight = (const int8_t*)weights + first;
#if defined(__AVX512BW__) && defined(__AVX512VL__)
    const __m512i times = _mm512_set1_epi16((int16_t)count);
    for (; k < n; k += 32) {
      const __mmask32 lanes = n - k >= 32 ? 0xffffffffu : (1u << (n - k)) - 1u;
      __m512i wide = _mm512_cvtepi8_epi16(_mm256_maskz_loadu_epi8(lanes, weight + k));
      if (count != 1) wide = _mm512_mullo_epi16(wide, times);
      _mm512_mask_storeu_epi16(part + k, lanes, _mm512_add_epi16(_mm512_maskz_loadu_epi16(lanes, part + k), wide));
    }
#else
    if (count == 1) {
      for (; k < n; ++k) part[k] = (int16_t)(part[k] + weight[k]);
    } else {
      for (; k < n; ++k) part[k] = (int16_t)(part[k] + (int16_t)(count * weight[k]));
    }
#endif
  }
}

/* Makes room for that many more spikes in 16 bits. */
SNN_INLINE void snn_take_room(snn_row* row, int32_t count) {
  if (row->room < count) {
    snn_move_parts(row->n, !row->is_split, row->part, row->sum);
    memset(row->part, 0, (size_t)row->n * sizeof(int16_t));
    row->is_split = 1;
    row->room = SNN_ROOM;
  }
  row->room -= count;
}

/* Adds what the inputs of a row of the frame bring through a row of the kernel, whose weights begin at `weight`. */
static void snn_add_row(snn_row* row, const snn_list* inputs, int32_t from, const uint8_t* frame, int64_t weight) {
  const snn_layer* layer = row->layer;
  const int32_t channels = layer->channels, taps = layer->kernel_width, width = layer->width;
  const int32_t in_channels = layer->in_channels, padding = layer->padding_x, packed = layer->packed;
  const int32_t dilation = layer->dilation_x, stride = layer->stride_x, end_of_row = inputs->row[from + 1];
  const uint8_t* cells = frame + (int64_t)from * layer->in_width * in_channels;
  const uint8_t* weights = layer->weight;
  int16_t* part = row->part;
  int32_t k, tap;
  for (k = inputs->row[from]; k < end_of_row; ++k) {
    const int32_t x = inputs->column[k], channel = inputs->channel[k], count = cells[x * in_channels + channel];
    const int64_t own = weight + (int64_t)channel * taps * channels;
    snn_take_room(row, count);
    if (stride == 1 && dilation == 1) {
      /* Neighbouring neurons see it through neighbouring taps: one run of weights. */
      const int32_t first = x + padding - (taps - 1);
      const int32_t begin = first < 0 ? -first : 0;
      const int32_t end = first + taps > width ? width - first : taps;
      if (end > begin) {
        snn_add(weights, packed, own + begin * channels, count, (end - begin) * channels,
                part + (first + begin) * channels);
      }
      continue;
    }
    for (tap = 0; tap < taps; ++tap) {
      const int32_t at = x + padding - tap * dilation;
      if (at >= 0 && at % stride == 0 && at / stride < width) {
        snn_add(weights, packed, own + (int64_t)(taps - 1 - tap) * channels, count, channels,
                part + at / stride * channels);
      }
    }
  }
}

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

/* Lists the cells of a frame, as it comes from outside. */
static void snn_list_frame(const snn_layer* layer, const uint8_t* frame, const snn_list* inputs) {
  const int32_t cells = layer->in_width * layer->in_channels;
  int32_t y, found = 0;
  for (y = 0; y < layer->in_height; ++y) {
    const uint8_t* row = frame + (int64_t)y * cells;
    /* Columns are counted, as a division costs more than all else here. */
    int32_t at = 0, x = 0, first = 0;
    inputs->row[y] = found;
    for (at = snn_next(row, at, cells); at < cells; at = snn_next(row, at + 1, cells)) {
      for (; at - first >= layer->in_channels; ++x) first += layer->in_channels;
      inputs->column[found] = (uint16_t)x;
      inputs->channel[found++] = (uint16_t)(at - first);
    }
  }
  inputs->row[y] = found;
}

static int32_t snn_clamp(int32_t value, int32_t low, int32_t high) {
  value = value > high ? high : value;
  return value < low ? low : value;
}

/* Sums of a row as inputs of states with 16 bits, in the place of the parts. */
static void snn_inputs16(const snn_row* row, int32_t fraction) {
  const int32_t high = INT16_MAX >> fraction, low = -high - 1, n = row->n;
  const int32_t* SNN_RESTRICT sum = row->sum;
  int16_t* SNN_RESTRICT part = row->part;
  int32_t k;
  if (row->is_split) {
    for (k = 0; k < n; ++k) part[k] = (int16_t)(snn_clamp(sum[k] + part[k], low, high) * (1 << fraction));
  } else if (fraction) {
    for (k = 0; k < n; ++k) part[k] = (int16_t)(snn_clamp(part[k], low, high) * (1 << fraction));
  }
}

/* The neurons of a row with states of 16 bits: how many fire, and which. */
static int32_t snn_fire16(const snn_layer* layer, int32_t n, const int16_t* SNN_RESTRICT x, int16_t* SNN_RESTRICT v,
                          int16_t* SNN_RESTRICT current, uint16_t* SNN_RESTRICT fired) {
  const int32_t leak_m = layer->leak_m, leak_s = layer->leak_s, keep = layer->keep, synapse = layer->has_synapse;
  const int32_t kept_current = layer->resets_all ? 0 : -1;
  const int16_t* SNN_RESTRICT above = (const int16_t*)layer->above;
  const int16_t* SNN_RESTRICT offset = (const int16_t*)layer->offset;
  int32_t found = 0, k = 0;
#if defined(__AVX2__)
  /* The same numbers, sixteen at a time: the instructions saturate and round as the equations do. */
  if (leak_m <= INT16_MAX && leak_s <= INT16_MAX) {
    const __m256i by_m = _mm256_set1_epi16((int16_t)leak_m), by_s = _mm256_set1_epi16((int16_t)leak_s);
    const __m256i kept_v = _mm256_set1_epi16((int16_t)-keep), kept_i = _mm256_set1_epi16((int16_t)kept_current);
    for (; k + 16 <= n; k += 16) {
      const __m256i u = _mm256_loadu_si256((const __m256i*)(v + k));
      __m256i i = _mm256_loadu_si256((const __m256i*)(x + k)), h, s, set;
      if (synapse) {
        const __m256i was = _mm256_loadu_si256((const __m256i*)(current + k));
        i = _mm256_adds_epi16(_mm256_sub_epi16(was, _mm256_mulhrs_epi16(was, by_s)), i);
      }
      h = _mm256_adds_epi16(_mm256_sub_epi16(u, _mm256_mulhrs_epi16(u, by_m)), i);
      s = _mm256_cmpgt_epi16(h, _mm256_loadu_si256((const __m256i*)(above + k)));
      set = _mm256_add_epi16(_mm256_and_si256(h, kept_v), _mm256_loadu_si256((const __m256i*)(offset + k)));
      _mm256_storeu_si256((__m256i*)(v + k), _mm256_blendv_epi8(h, set, s));
      if (synapse) {
        const __m256i kept =
            _mm256_or_si256(_mm256_andnot_si256(s, i), _mm256_and_si256(_mm256_and_si256(s, i), kept_i));
        _mm256_storeu_si256((__m256i*)(current + k), kept);
      }
      {
        /* Two bits a neuron. */
        uint32_t bits = (uint32_t)_mm256_movemask_epi8(s);
#if defined(SNN_LOWEST_BYTE)
        for (; bits; bits &= bits - 1, bits &= bits - 1) fired[found++] = (uint16_t)(k + (__builtin_ctz(bits) >> 1));
#else
        int32_t place = k;
        for (; bits; bits >>= 2, ++place) {
          if (bits & 1) fired[found++] = (uint16_t)place;
        }
#endif
      }
    }
  }
#endif
  for (; k < n; ++k) {
    const int32_t u = v[k];
    int32_t i = x[k], h, s;
    if (synapse) {
      const int32_t was = current[k];
      i = snn_clamp(was - ((was * leak_s + 16384) >> 15) + i, INT16_MIN, INT16_MAX);
    }
    h = snn_clamp(u - ((u * leak_m + 16384) >> 15) + i, INT16_MIN, INT16_MAX);
    s = h > above[k];
    v[k] = (int16_t)(s ? keep * h + offset[k] : h);
    if (synapse) current[k] = (int16_t)(s ? i & kept_current : i);
    if (s) fired[found++] = (uint16_t)k;
  }
  return found;
}

static int64_t snn_decayed(int64_t z, int32_t leak) { return z - ((z * leak + 16384) >> 15); }

static int32_t snn_clamp_wide(int64_t value) {
  return value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : (int32_t)value;
}

/* The same with states of 32 bits; without `above`, membranes alone. */
static int32_t snn_fire32(const snn_layer* layer, int32_t n, const int32_t* sum, int32_t* v, int32_t* current,
                          uint16_t* fired) {
  const int32_t* above = (const int32_t*)layer->above;
  const int32_t* offset = (const int32_t*)layer->offset;
  const int32_t high = INT32_MAX >> layer->fraction, low = -high - 1;
  int32_t found = 0, k;
  for (k = 0; k < n; ++k) {
    int32_t i = snn_clamp(sum[k], low, high) * (1 << layer->fraction), s = 0, h;
    if (layer->has_synapse) i = snn_clamp_wide(snn_decayed(current[k], layer->leak_s) + i);
    h = snn_clamp_wide(snn_decayed(v[k], layer->leak_m) + i);
    if (above) {
      s = h > above[k];
      if (s) h = layer->keep * h + offset[k];
    }
    v[k] = h;
    if (layer->has_synapse) current[k] = s && layer->resets_all ? 0 : i;
    if (s) fired[found++] = (uint16_t)k;
  }
  return found;
}

/* Adds the spikes of a row to the windows of the next layer's frame, and lists cells that were empty; cells outside of
 * whole windows are left out. */
static void snn_pool_row(const snn_layer* layer, int32_t y, const uint16_t* fired, int32_t count, const snn_list* next,
                         int32_t* listed) {
  const int32_t channels = layer->channels, columns = layer->width / layer->pool_x;
  uint8_t* row;
  int32_t first = 0, column = 0, inside = 0, k;
  if (y / layer->pool_y >= layer->height / layer->pool_y) return;
  row = layer->output + (int64_t)(y / layer->pool_y) * columns * channels;
  for (k = 0; k < count; ++k) {
    for (; fired[k] - first >= channels; first += channels) {
      if (++inside == layer->pool_x) {
        inside = 0;
        ++column;
      }
    }
    if (column >= columns) return;
    if (row[column * channels + fired[k] - first]++ == 0) {
      next->column[*listed] = (uint16_t)column;
      next->channel[(*listed)++] = (uint16_t)(fired[k] - first);
    }
  }
}

/* One time step of a layer.
 *
 * frame: [in_height][in_width][in_channels], and the list of its cells. next: where the list of the next layer's goes.
 * result: null, or where the last layer's spikes or potentials go, [height][width][channels].
 */
static void snn_step(const snn_layer* layer, const uint8_t* frame, const snn_list* inputs, const snn_list* next,
                     const snn_scratch* scratch, int32_t* result) {
  const int32_t n = layer->width * layer->channels;
  const int64_t kernel_row = (int64_t)layer->in_channels * layer->kernel_width * layer->channels;
  int32_t y, tap, k, listed = 0;
  if (layer->output) memset(layer->output, 0, (size_t)layer->output_size);
  for (y = 0; y < layer->height; ++y) {
    const int64_t first = (int64_t)y * n;
    int32_t count;
    snn_row row;
    snn_begin_row(layer, scratch, &row);
    for (tap = 0; tap < layer->kernel_height; ++tap) {
      const int32_t from = y * layer->stride_y + tap * layer->dilation_y - layer->padding_y;
      if (from >= 0 && from < layer->in_height) snn_add_row(&row, inputs, from, frame, tap * kernel_row);
    }
    if (layer->recurrent) {
      for (k = 0; k < n; ++k) {
        if (layer->last[k]) {
          snn_take_room(&row, 1);
          snn_add(layer->recurrent, layer->packed, (int64_t)k * n, 1, n, row.part);
        }
      }
    }
    if (layer->is_wide) {
      snn_move_parts(n, !row.is_split, row.part, row.sum);
      count = snn_fire32(layer, n, row.sum, (int32_t*)layer->potential + first,
                         layer->has_synapse ? (int32_t*)layer->current + first : (int32_t*)0, scratch->fired);
    } else {
      snn_inputs16(&row, layer->fraction);
      count = snn_fire16(layer, n, row.part, (int16_t*)layer->potential + first,
                         layer->has_synapse ? (int16_t*)layer->current + first : (int16_t*)0, scratch->fired);
    }
    if (layer->recurrent) {
      memset(layer->last, 0, (size_t)n);
      for (k = 0; k < count; ++k) layer->last[scratch->fired[k]] = 1;
    }
    if (layer->output) {
      if (y % layer->pool_y == 0) next->row[y / layer->pool_y] = listed;
      snn_pool_row(layer, y, scratch->fired, count, next, &listed);
      next->row[y / layer->pool_y + 1] = listed;
    }
    if (result) {
      int32_t* to = result + first;
      for (k = 0; k < n; ++k) to[k] = layer->above ? 0 : ((const int32_t*)layer->potential)[first + k];
      if (layer->above) {
        for (k = 0; k < count; ++k) to[scratch->fired[k]] = 1;
      }
    }
  }
}

/* The state before the first step: membranes where a reset puts them. */
static void snn_clear(const snn_layer* layer) {
  const int32_t n = layer->width * layer->channels, starts = layer->above && !layer->keep;
  int32_t y, k;
  for (y = 0; y < layer->height; ++y) {
    for (k = 0; k < n; ++k) {
      const int64_t at = (int64_t)y * n + k;
      if (layer->is_wide) {
        ((int32_t*)layer->potential)[at] = starts ? ((const int32_t*)layer->offset)[k] : 0;
      } else {
        ((int16_t*)layer->potential)[at] = (int16_t)(starts ? ((const int16_t*)layer->offset)[k] : 0);
      }
    }
  }
  if (layer->current) memset(layer->current, 0, (size_t)(layer->height * (int64_t)n * (layer->is_wide ? 4 : 2)));
  if (layer->last) memset(layer->last, 0, (size_t)n);
}

#endif
