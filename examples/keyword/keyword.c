/* Says which word a recording holds: WAV in, word out, all in integers. With --steps, the word so far at each step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net.h"

#define QUOTED(words) #words
#define TEXT(number) QUOTED(number)

static const char* const names[NET_OUTPUTS] = {NET_NAMES};

static unsigned long number(const unsigned char* bytes, int count) {
  return count ? bytes[0] | number(bytes + 1, count - 1) << 8 : 0;
}

static int refuse(const char* path, const char* what) {
  fprintf(stderr, "%s: %s\n", path, what);
  return 2;
}

/* Bytes of sound that follow in the file, of one channel, 16 bits and the net's rate; -1 and the reason for others. */
static long open_sound(FILE* file, const char** reason) {
  unsigned char head[16];
  int known = 0;
  *reason = "expected a WAV file, got another";
  if (fread(head, 1, 12, file) != 12 || memcmp(head, "RIFF", 4) || memcmp(head + 8, "WAVE", 4)) return -1;
  *reason = "expected a chunk fmt and a chunk data, got the end of the file";
  while (fread(head, 1, 8, file) == 8) {
    long size = (long)number(head + 4, 4), read = 0;
    if (!memcmp(head, "data", 4) && known) return size;
    if (!memcmp(head, "fmt ", 4)) {
      if (size < 16 || fread(head, 1, 16, file) != 16) return -1;
      read = 16;
      known = number(head, 2) == 1 && number(head + 2, 2) == 1 && number(head + 14, 2) == 16;
      if (!known || number(head + 4, 4) != NET_SAMPLE_RATE) {
        *reason = "expected PCM of one channel, 16 bits and " TEXT(NET_SAMPLE_RATE) " Hz, got another format";
        return -1;
      }
    }
    if (fseek(file, size + (size & 1) - read, SEEK_CUR)) return -1;
  }
  return -1;
}

/* The next samples of the sound, of which `left` bytes remain; silence behind its end. */
static void next_samples(FILE* file, long* left, int16_t samples[NET_HOP]) {
  int k;
  for (k = 0; k < NET_HOP; ++k) {
    unsigned char bytes[2];
    const int there = *left >= 2 && fread(bytes, 1, 2, file) == 2;
    const long value = there ? (long)number(bytes, 2) : 0;
    samples[k] = (int16_t)(value < 32768 ? value : value - 65536);
    *left = there ? *left - 2 : 0;
  }
}

int main(int argc, char** argv) {
  const int all_steps = argc == 3 && !strcmp(argv[1], "--steps");
  const char *path = argv[argc - 1], *reason;
  int64_t sums[NET_OUTPUTS] = {0};
  int32_t output[NET_OUTPUTS];
  int16_t samples[NET_HOP];
  FILE* file;
  long left;
  int step, k, best = 0;
  if (argc != 2 + all_steps) return refuse(argv[0], "expected [--steps] FILE.wav");
  file = fopen(path, "rb");
  if (!file) return refuse(path, "expected a file that can be read, got none");
  left = open_sound(file, &reason);
  if (left < 0) return refuse(path, reason);
  net_reset();
  for (step = 0; step < NET_STEPS; ++step) {
    do next_samples(file, &left, samples);
    while (!net_sound(samples));
    net_step(output);
    for (k = 0; k < NET_OUTPUTS; ++k) sums[k] += output[k];
    for (best = 0, k = 1; k < NET_OUTPUTS; ++k) {
      if (sums[k] > sums[best]) best = k;
    }
    if (all_steps) printf("%d %s\n", step, names[best]);
  }
  if (!all_steps) printf("%s\n", names[best]);
  fclose(file);
  return 0;
}
