/* A spiking net in integers, event-driven: what the simulation runs and what an exported program contains.
 *
 * C99 and C++11, no dependency, no allocation. A layer reads spike counts, a byte per cell, and keeps the state of its
 * neurons in arrays that the caller owns. One time step of a neuron, all in integers:
 *
 *     a = sum over inputs of count * weight + recurrent weights of the last step's spikes + bias       32 bits
 *     x = a * 2^fraction, a saturated to the state's width less `fraction` bits
 *     i = sat(i - D(i, leak_s) + x)                    with a synapse, else i = x
 *     v = sat(v - D(v, leak_m) + i + drive)
 *     s = [v > above];  v = keep * v + offset where s, and i = 0 where all states are reset
 *
 * With several `levels` the last line runs so often, on the membrane that it leaves, and the spikes count together.
 *
 * For `refractory` steps after a spike v stays as it is and s is 0, while i runs on. With `toward_zero` a state keeps
 * sign(z) * ((|z| * (2^15 - leak)) >> 15) in the place of z - D(z, leak). Both are of states of 32 bits, as is `drive`.
 * with D(z, leak) = (z * leak + 2^14) >> 15, a leak of leak / 2^15 rounded to the nearest, and sat to the width of the
 * state, 16 or 32 bits. A layer without `above` gives v. Right shifts of negative numbers are arithmetic.
 */
#ifndef SNNLIB_NET_LAYER_H
#define SNNLIB_NET_LAYER_H

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

/* Arrays that vectors are taken from begin where a cache line does. */
#if defined(__GNUC__) && defined(__SSE2__)
#define SNN_ALIGNED __attribute__((aligned(64)))
#else
#define SNN_ALIGNED
#endif

/* Whether there are vectors of 64 bytes. */
#if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(SNN_LOWEST_BYTE)
#define SNN_AVX512
#endif

/* The cells of a frame that are not empty, row after row. */
typedef struct {
  /* Of each its column, y * channels + channel (and SNN_SPARE more), and its count. */
  uint16_t* column;
  uint16_t* place;
  uint8_t* count;
  /* Where the rows begin: one more than the frame has rows. */
  int32_t* row;
} snn_list;

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
  /* Steps that an input waits, [in_height][in_width][in_channels]; or each weight, as the weights lie; and each
   * recurrent weight. Null without delays. */
  const uint8_t* delay;
  const uint8_t* weight_delay;
  const uint8_t* recurrent_delay;
  /* One more than the longest delay. */
  int32_t period;
  /* Of a row of neurons [width][channels]; null for no bias. */
  const int32_t* bias;
  /* What comes into the membranes of a row in every step, [width][channels]; null for nothing. */
  const int32_t* drive;
  /* The largest membrane that does not fire, and what a spike sets or adds; of the state's width, of a row of neurons.
   * Null for a layer that gives potentials. */
  const void* above;
  const void* offset;
  int32_t leak_m, leak_s, fraction, refractory, toward_zero, levels;
  /* Whether there is a synapse, a reset of all states, whether a spike keeps the membrane (reset by subtraction),
   * whether states have 32 bits, and whether weights have four bits. */
  int32_t has_synapse, resets_all, keep, is_wide, packed;
  /* [height][width][channels], of int16_t or int32_t; the current is null without a synapse. */
  void* potential;
  void* current;
  /* Refractory steps that are left of each neuron; null without. */
  uint8_t* left;
  /* Spikes of the last step, a count for each neuron, for recurrence: [channels]. */
  uint8_t* last;
  /* What waits: frames of inputs [period][in_height][in_width][in_channels], for delays of inputs and for those of
   * weights where not one cell of neurons sees the whole frame (`snn_sees_all`), else sums [period][channels]; null
   * where nothing does. And the current place in them. */
  uint8_t* waiting;
  int32_t* waiting_sum;
  int32_t* now;
} snn_layer;

/* Of the 16 bits of a part, how many spikes with weights of 8 bits fit: 256 times -128. */
#define SNN_ROOM 256
/* Lanes of a vector may reach beyond the end of a row of parts, and of a list of places. */
#define SNN_SPARE 32

/* Runs of weights up to this length go to all rows that see an input at once, under so many kernel rows at most. */
#define SNN_SHORT_RUN 128
#define SNN_RING_ROWS 16

/* Memory that layers share, as they run one after the other, of the widest row of neurons: sums, those of a few inputs
 * in 16 bits with the margins of `snn_part_row` (and SNN_SPARE more), spikes of a row, spikes of the rows of a window,
 * their places (and SNN_SPARE more), and a row of windows of spikes. Of layers that `snn_scatters` as many rows of sums
 * as the kernel has (and SNN_SPARE numbers more), zeros between steps. */
typedef struct {
  int32_t* sum;
  int16_t* part;
  uint8_t* spikes;
  uint8_t* window;
  uint16_t* fired;
  uint8_t* pooled;
  int16_t* ring;
} snn_scratch;

#endif
