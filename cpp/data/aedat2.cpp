// AEDAT 2.0: pairs of big-endian 32-bit words, address and time.
#include "event_writer.h"

namespace snnlib {
namespace {

template <bool kDavis>
int64_t decode(const uint8_t* input, int64_t bytes, char* places, int64_t capacity, EventDecoder& d) {
  EventWriter out(places, capacity, d);
  Unwrapper unwrap(int64_t(1) << 32, d);
  const int64_t count = std::min(bytes / 8, capacity);
  const int32_t right = kDavis ? int32_t(d.width) - 1 : 127, bottom = kDavis ? int32_t(d.height) - 1 : 127;
  int64_t done = 0, other = 0;
  bool inside = true;
  while (inside && done < count) {
    const int64_t run = std::min(count - done, kRun);
    const uint8_t* words = input + done * 8;
    const auto word = [&](int64_t i) {
      const uint32_t a = big32(words + i * 8), t = big32(words + i * 8 + 4);
      return kDavis ? Pixel{t, right - int32_t(a >> 12 & 0x3FF), bottom - int32_t(a >> 22 & 0x1FF),
                            int32_t(a >> 11 & 1), a & 0x80000400u}
                    : Pixel{t, right - int32_t(a >> 1 & 0x7F), bottom - int32_t(a >> 8 & 0x7F), int32_t(~a & 1),
                            a & 0x8000u};
    };
    if (unwrap.started() && out.put_ordinary(run, unwrap.base(), unwrap.last(), word)) {
      unwrap.set_last(big32(words + (run - 1) * 8 + 4));
      done += run;
      continue;
    }
    for (int64_t i = 0; inside && i < run; ++i) {
      const Pixel e = word(i);
      const int64_t t = unwrap(e.t);
      if (e.odd) ++other;
      // Coordinates below 0 become large numbers, which are outside any sensor.
      else
        inside = out.put(t, e.x, e.y, e.p);
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
