// Prophesee EVT 2.0 and 2.1: 32-bit and 64-bit words, the time's upper part in words of its own.
#include "event_writer.h"

namespace snnlib {
namespace {

constexpr uint32_t kTimeHigh = 8, kHighMask = (1u << 28) - 1;

// TIME_HIGH and words without events, of either version.
struct Clock {
  Clock(EventDecoder& d) : unwrap(int64_t(1) << 28, d), timed(d.timed), high(d.high) {}

  void store(EventDecoder& d) const {
    unwrap.store(d);
    d.timed = timed;
    d.high = high;
  }

  SNNLIB_INLINE void set(uint32_t word) {
    high = unwrap(word & kHighMask) << 6;
    timed = true;
  }

  Unwrapper unwrap;
  bool timed;
  int64_t high;
};

SNNLIB_INLINE int count_bits(uint32_t bits) {
  int count = 0;
  for (; bits; bits &= bits - 1) ++count;
  return count;
}

}  // namespace

int64_t decode_evt2(const uint8_t* input, int64_t bytes, char* places, int64_t capacity, EventDecoder& d) {
  EventWriter out(places, capacity, d);
  Clock clock(d);
  const int64_t count = std::min(bytes / 4, capacity);
  int64_t done = 0, other = 0, untimed = 0;
  bool inside = true;
  while (inside && done < count) {
    const uint8_t* words = input + done * 4;
    const auto pixel = [&](int64_t i) {
      const uint32_t word = little32(words + i * 4);
      return Pixel{word >> 22 & 63, pack(word >> 11 & 0x7FF, word & 0x7FF, word >> 28)};
    };
    // Events of one TIME_HIGH.
    const int64_t most = std::min(count - done, kRun);
    int64_t run = 0;
    while (run < most && little32(words + run * 4) >> 28 < 2) ++run;
    if (run == 0) {
      const uint32_t word = little32(words);
      if (word >> 28 == kTimeHigh) {
        clock.set(word);
      } else {
        other += clock.timed;
      }
      ++done;
    } else if (!clock.timed) {
      untimed += run;
      done += run;
    } else {
      if (!out.put_ordinary(run, clock.high, out.last() - clock.high, pixel)) {
        for (int64_t i = 0; inside && i < run; ++i) {
          const Pixel e = pixel(i);
          inside = out.put(clock.high | e.t, e.x(), e.y(), e.p());
        }
      }
      done += run;
    }
  }
  out.store(d);
  clock.store(d);
  d.other += other;
  d.untimed += untimed;
  return done * 4;
}

int64_t decode_evt21(const uint8_t* input, int64_t bytes, char* places, int64_t capacity, EventDecoder& d) {
  EventWriter out(places, capacity, d);
  Clock clock(d);
  const int64_t upper = d.variant ? 0 : 4;
  int64_t place = 0, other = 0, untimed = 0;
  bool inside = true;
  for (; inside && place + 8 <= bytes && out.has_places(32); place += 8) {
    const uint32_t word = little32(input + place + upper), kind = word >> 28;
    if (kind < 2) {
      uint32_t mask = little32(input + place + 4 - upper);
      if (!clock.timed) {
        untimed += count_bits(mask);
        continue;
      }
      const int64_t t = clock.high | (word >> 22 & 63);
      for (; inside && mask; mask &= mask - 1) {
        inside = out.put(t, (word >> 11 & 0x7FF) + lowest_bit(mask), word & 0x7FF, kind);
      }
    } else if (kind == kTimeHigh) {
      clock.set(word);
    } else {
      ++other;
    }
  }
  out.store(d);
  clock.store(d);
  d.other += other;
  d.untimed += untimed;
  return place;
}

}  // namespace snnlib
