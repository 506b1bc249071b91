// Decoders of event files: bytes of a file in, events out. A call decodes one chunk; what is carried from chunk to
// chunk lies with the caller. snnlib/data/formats says what the bytes mean and holds the reference in NumPy.
#pragma once

#include <cstdint>

namespace snnlib {

// Options, memory between calls and report of a decoder; snnlib/data/formats/compiled.py lists the same fields.
struct EventDecoder {
  // Events must lie in [0, width) x [0, height). Others stop the decoder, or with drop_outside are counted in
  // `outside`.
  int64_t width, height, drop_outside, outside;
  // EVT 2.1: 1 where the upper half of a word comes first.
  int64_t variant;
  // Subtracted from all times; where it is not known yet, the time of the first event.
  int64_t origin_known, origin;
  // Events so far, time of the last one, and by how much time falls back at most (at which event).
  int64_t count, last, largest_fall, fall_at;
  // An event outside the sensor, where one stopped the decoder.
  int64_t stopped, bad_x, bad_y, bad_p;
  // Words without events, and those (or events) that came before the first time.
  int64_t other, untimed;
  // State of the clock that wraps.
  int64_t wrap_started, wrap_last, wrap_base;
  // State of EVT: whether there was a TIME_HIGH, its value, the low part; row, column and polarity of the next vector.
  int64_t timed, high, low, row, column, polarity;
};

// Decodes whole words of [input, input + bytes) into places for `capacity` events (13 bytes each: int64 t, int16 x,
// int16 y, int8 p). Returns the bytes that were decoded: fewer where places run out or an event stopped it.
using DecodeEvents = int64_t (*)(const uint8_t* input, int64_t bytes, char* places, int64_t capacity, EventDecoder&);

int64_t decode_evt2(const uint8_t*, int64_t, char*, int64_t, EventDecoder&);
int64_t decode_evt21(const uint8_t*, int64_t, char*, int64_t, EventDecoder&);
int64_t decode_evt3(const uint8_t*, int64_t, char*, int64_t, EventDecoder&);

}  // namespace snnlib
