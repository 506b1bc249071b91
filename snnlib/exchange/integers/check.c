/* Compares the program with the test vectors, event by event, frame by frame, and where it takes sound by that.
 * With a number of rounds it also measures how many sequences it does in a second. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "net.h"

enum way { EVENTS, FRAMES, SOUND };

static uint8_t counts[NET_CHANNELS * NET_HEIGHT * NET_WIDTH];
/* Behind the samples: their sound. */
static const unsigned char* sound;

static int32_t word(const unsigned char** at) {
  const unsigned char* b = *at;
  *at += 4;
  return (int32_t)((uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24);
}

static unsigned char* contents(const char* path) {
  FILE* file = fopen(path, "rb");
  long size;
  unsigned char* bytes;
  if (!file || fseek(file, 0, SEEK_END) || (size = ftell(file)) < 12) return 0;
  rewind(file);
  bytes = (unsigned char*)malloc((size_t)size);
  if (bytes && fread(bytes, 1, (size_t)size, file) != (size_t)size) bytes = 0;
  fclose(file);
  return bytes;
}

/* The sound of a time step. */
static void hear(const unsigned char** at) {
#if defined(NET_HOP)
  int16_t samples[NET_HOP];
  int k;
  do {
    for (k = 0; k < NET_HOP; ++k) samples[k] = (int16_t)word(at);
  } while (!net_sound(samples));
#else
  (void)at;
#endif
}

/* All samples once; the number of outputs that differ. In frames, events of a step are given together. */
static long run(const unsigned char* at, enum way way, int compare) {
  const unsigned char* heard = sound;
  const int32_t samples = word(&at), steps = word(&at), outputs = word(&at);
  int32_t output[NET_OUTPUTS], sample, step, k, n;
  long wrong = 0;
  if (outputs != NET_OUTPUTS) return -1;
  for (sample = 0; sample < samples; ++sample) {
    net_reset();
    for (step = 0; step < steps; ++step) {
      const int32_t events = word(&at);
      if (way == FRAMES) memset(counts, 0, sizeof counts);
      for (k = 0; k < events; ++k) {
        const int32_t x = word(&at), y = word(&at), channel = word(&at), count = word(&at);
        if (way == FRAMES) {
          counts[(channel * NET_HEIGHT + y) * NET_WIDTH + x] = (uint8_t)count;
        } else if (way == EVENTS) {
          for (n = 0; n < count; ++n) net_event(x, y, channel);
        }
      }
      if (way == FRAMES) net_frame(counts);
      if (way == SOUND) hear(&heard);
      net_step(output);
      for (k = 0; k < outputs; ++k) {
        if (word(&at) != output[k] && compare) ++wrong;
      }
    }
  }
  sound = at;
  return wrong;
}

int main(int argc, char** argv) {
  unsigned char* vectors = contents(argc > 1 ? argv[1] : "vectors.bin");
  const long rounds = argc > 2 ? atol(argv[2]) : 0;
  enum way way = EVENTS;
  long by_events, by_frames, by_sound = 0, round;
  const unsigned char* at = vectors;
  if (!vectors) {
    fprintf(stderr, "cannot read the vectors\n");
    return 2;
  }
  by_events = run(vectors, EVENTS, 1);
  by_frames = run(vectors, FRAMES, 1);
  printf("%ld samples, outputs that differ: %ld by events, %ld by frames\n", (long)word(&at), by_events, by_frames);
#if defined(NET_HOP)
  way = SOUND;
  by_sound = run(vectors, way, 1);
  printf("by sound: %ld\n", by_sound);
#endif
  if (rounds > 0) {
    const clock_t start = clock();
    double seconds;
    at = vectors;
    for (round = 0; round < rounds; ++round) run(vectors, way, 0);
    seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    printf("%.0f samples per second\n", (double)rounds * word(&at) / (seconds > 0 ? seconds : 1e-9));
  }
  free(vectors);
  return by_events || by_frames || by_sound ? 1 : 0;
}
