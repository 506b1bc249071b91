// AEDAT 2.0: pairs of big-endian 32-bit words, address and time.
#include "event_writer.h"

namespace snnlib {
namespace {

template <bool kDavis>
int64_t decode(const uint8_t* input, int64_t bytes, char* places, int64_t capacity, EventDecoder& d) {
  EventWriter out(places, capacity, d);
  Unwrapper unwrap(int64_t(1) << 32, d);
  const int64_t count = std::min(bytes / 8, capacity);
  // Columns and rows count from the right and from below.
  const uint64_t corner = kDavis ? pack(d.width - 1, d.height - 1, 0) : pack(127, 127, 1);
  int64_t done = 0, other = 0;
  bool inside = true;
  while (inside && done < count) {
    const int64_t run = std::min(count - done, kRun);
    const uint8_t* words = input + done * 8;
    const auto word = [&](int64_t i) {
      const uint32_t a = big32(words + i * 8), t = big32(words + i * 8 + 4);
      // What is outside the camera goes below 0 here, and makes the word odd.
      const uint64_t place =
          kDavis ? pack(a >> 12 & 0x3FF, a >> 22 & 0x1FF, 0) : pack(a >> 1 & 0x7F, a >> 8 & 0x7F, a & 1);
      const uint64_t polarity = kDavis ? uint64_t(a >> 11 & 1) << 32 : 0;
      return Pixel{t, (corner - place) | polarity,
                   (a & (kDavis ? 0x80000400u : 0x8000u)) | (~within(corner, place) & kGuards)};
    };
    if (unwrap.started() && out.put_ordinary(run, unwrap.base(), unwrap.last(), word)) {
      unwrap.set_last(big32(words + (run - 1) * 8 + 4));
      done += run;
      continue;
    }
    for (int64_t i = 0; inside && i < run; ++i) {
      const uint32_t a = big32(words + i * 8);
      const int64_t t = unwrap(big32(words + i * 8 + 4));
      // Coordinates below 0 become large numbers, which are outside any sensor.
      if (a & (kDavis ? 0x80000400u : 0x8000u)) {
        ++other;
      } else if (kDavis) {
        inside = out.put(t, uint32_t(d.width - 1) - (a >> 12 & 0x3FF), uint32_t(d.height - 1) - (a >> 22 & 0x1FF),
                         a >> 11 & 1);
      } else {
        inside = out.put(t, 127 - (a >> 1 & 0x7F), 127 - (a >> 8 & 0x7F), ~a & 1);
      }
      done += inside;
    }
  }
  out.store(d);
  unwrap.store(d);
  d.other += other;
  return done * 8;
}

}  // namespace

int64_t decode_aedat2(const uint8_t* input, int64_t bytes, char* places, int64_t capacity, EventDecoder& d) {
  return (d.variant ? decode<true> : decode<false>)(input, bytes, places, capacity, d);
}

}  // namespace snnlib
