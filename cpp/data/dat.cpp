// Prophesee DAT: pairs of 32-bit words, time and address.
#include "event_writer.h"

namespace snnlib {

int64_t decode_dat(const uint8_t* input, int64_t bytes, char* places, int64_t capacity, EventDecoder& d) {
  EventWriter out(places, capacity, d);
  Unwrapper unwrap(int64_t(1) << 32, d);
  const int64_t count = std::min(bytes / 8, capacity);
  int64_t done = 0;
  bool inside = true;
  while (inside && done < count) {
    const int64_t run = std::min(count - done, kRun);
    const uint8_t* words = input + done * 8;
    const auto word = [&](int64_t i) {
      const uint32_t data = little32(words + i * 8 + 4);
      return Pixel{little32(words + i * 8), pack(data & 0x3FFF, data >> 14 & 0x3FFF, data >> 28), 0};
    };
    if (unwrap.started() && out.put_ordinary(run, unwrap.base(), unwrap.last(), word)) {
      unwrap.set_last(little32(words + (run - 1) * 8));
      done += run;
      continue;
    }
    for (int64_t i = 0; inside && i < run; ++i) {
      const Pixel e = word(i);
      inside = out.put(unwrap(e.t), e.x(), e.y(), e.p());
      done += inside;
    }
  }
  out.store(d);
  unwrap.store(d);
  return done * 8;
}

}  // namespace snnlib
