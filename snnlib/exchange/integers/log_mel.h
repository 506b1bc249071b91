/* Sound to frames of a byte per channel, in integers: what `snnlib.data.LogMel` computes, to the last bit.
 *
 * Each step takes `hop` new samples; a frame is of the last `window` of them, under a window, as the squared spectrum
 * of a real transform of `size` points, summed over triangles of bins, in octaves. A product with a factor is rounded
 * where its bits are dropped.
 */
#ifndef SNNLIB_LOG_MEL_H
#define SNNLIB_LOG_MEL_H

#include "net_layer.h"

typedef struct {
  int32_t channels, hop, window, size;
  /* Bits below the point of samples in the transform and of factors; bits of a bin's power and of an energy that are
   * dropped, so that the sums of a window at full scale fit in 64 bits without a sign. */
  int32_t fraction, factor_bits, power_bits, energy_bits;
  /* The first bin of the lowest triangle; what a bin's weights in its two channels add up to. */
  int32_t first_bin, whole_weight;
  /* The mean's time constant is 2^smoothing steps, `strength` 256ths of its octaves are taken off. */
  int32_t smoothing, silence, strength;
  /* Octaves are in 256ths; these and the bits that are dropped lead to a level. */
  int32_t log_bits, offset, shift;
  /* The window's first half; cosine and sine of 2 pi k / size, k below size / 2. */
  const int16_t *hann, *cosine, *sine;
  /* Of a bin, in the upper one of its two channels; and where bins between channels c - 1 and c begin, [channels + 2].
   */
  const uint8_t* weight;
  const uint16_t* start;
  /* Logarithms of 1 + (k + 1/2) / 2^log_bits, and the output of each of 256 levels. */
  const uint8_t *logarithm, *level;
  /* State: samples before the next ones [window - hop], means [channels]. Scratch: a spectrum, [size / 2] each. */
  int16_t* before;
  int64_t* mean;
  int32_t *real, *imaginary;
} snn_log_mel;

/* (real + i imaginary) (cosine - i sine) of entry k. */
SNN_INLINE void snn_turn(const snn_log_mel* mel, int32_t real, int32_t imaginary, int32_t k, int32_t* to_real,
                         int32_t* to_imaginary) {
  const int64_t c = mel->cosine[k], s = mel->sine[k], half = (int64_t)1 << (mel->factor_bits - 1);
  *to_real = (int32_t)((real * c + imaginary * s + half) >> mel->factor_bits);
  *to_imaginary = (int32_t)((imaginary * c - real * s + half) >> mel->factor_bits);
}

/* Sample n of the window under the window, 0 beyond it. */
SNN_INLINE int32_t snn_windowed(const snn_log_mel* mel, const int16_t* samples, int32_t n) {
  const int32_t kept = mel->window - mel->hop, drop = mel->factor_bits - mel->fraction;
  int32_t factor;
  if (n >= mel->window) return 0;
  factor = mel->hann[2 * n < mel->window ? n : mel->window - 1 - n];
  return ((n < kept ? mel->before[n] : samples[n - kept]) * factor + (1 << (drop - 1))) >> drop;
}

/* The transform of even samples as real and odd ones as imaginary parts. */
SNN_INLINE void snn_transform(const snn_log_mel* mel, const int16_t* samples) {
  const int32_t half = mel->size / 2;
  int32_t *real = mel->real, *imaginary = mel->imaginary;
  int32_t n, bit, span, first, k;
  for (n = 0; n < half; ++n) {
    int32_t reversed = 0;
    for (bit = 1; bit < half; bit *= 2) reversed = reversed * 2 + ((n & bit) != 0);
    real[n] = snn_windowed(mel, samples, 2 * reversed);
    imaginary[n] = snn_windowed(mel, samples, 2 * reversed + 1);
  }
  for (span = 1; span < half; span *= 2) {
    for (first = 0; first < half; first += 2 * span) {
      for (k = 0; k < span; ++k) {
        const int32_t upper = first + k, lower = upper + span;
        int32_t a, b;
        snn_turn(mel, real[lower], imaginary[lower], k * (half / span), &a, &b);
        real[lower] = real[upper] - a;
        imaginary[lower] = imaginary[upper] - b;
        real[upper] += a;
        imaginary[upper] += b;
      }
    }
  }
}

/* Four times the squared spectrum of the sound in bin k. */
SNN_INLINE uint64_t snn_power(const snn_log_mel* mel, int32_t k) {
  const int32_t *real = mel->real + k, *imaginary = mel->imaginary + k, there = mel->size / 2 - 2 * k;
  int32_t a, b;
  snn_turn(mel, *imaginary + imaginary[there], real[there] - *real, k, &a, &b);
  a += *real + real[there];
  b += *imaginary - imaginary[there];
  return (uint64_t)((int64_t)a * a + (int64_t)b * b);
}

/* The logarithm to base 2 in 256ths of a number from 2^log_bits on. For a lesser one, which no energy is, it ends
 * within the table. */
static int32_t snn_log(const snn_log_mel* mel, int64_t number) {
  const int32_t first = 1 << mel->log_bits;
  int32_t more = 0;
  for (; number >= 2 * first; number >>= 1) ++more;
  return (more + mel->log_bits) * 256 + mel->logarithm[(int32_t)number & (first - 1)];
}

/* One step: the frame [channels] of `hop` new samples and those before. */
SNN_INLINE void snn_log_mel_step(const snn_log_mel* mel, const int16_t* samples, uint8_t* frame) {
  const int32_t kept = mel->window - mel->hop;
  uint64_t below = 0;
  int32_t c, k = 0, n;
  snn_transform(mel, samples);
  for (c = 0; c <= mel->channels; ++c) {
    uint64_t rising = 0, both = 0;
    for (; k < mel->start[c + 1]; ++k) {
      const uint64_t power = snn_power(mel, mel->first_bin + k) >> mel->power_bits;
      rising += power * mel->weight[k];
      both += power;
    }
    if (c > 0) {
      const int64_t energy = (int64_t)((below + (uint32_t)mel->whole_weight * both - rising) >> mel->energy_bits);
      int64_t* mean = &mel->mean[c - 1];
      int32_t octaves = snn_log(mel, energy + mel->silence);
      *mean += energy - (*mean >> mel->smoothing);
      octaves -= (mel->strength * snn_log(mel, (*mean >> mel->smoothing) + mel->silence)) >> 8;
      octaves = (octaves + mel->offset) >> mel->shift;
      frame[c - 1] = mel->level[octaves < 0 ? 0 : octaves > 255 ? 255 : octaves];
    }
    below = rising;
  }
  for (n = 0; n < kept; ++n) {
    const int32_t from = n + mel->hop;
    mel->before[n] = from < kept ? mel->before[from] : samples[from - kept];
  }
}

/* The state before a sound: silence. */
static void snn_log_mel_clear(const snn_log_mel* mel) {
  int32_t n;
  for (n = 0; n < mel->window - mel->hop; ++n) mel->before[n] = 0;
  for (n = 0; n < mel->channels; ++n) mel->mean[n] = (int64_t)mel->silence << mel->smoothing;
}

#endif
