// AEDAT 3.1: packets of pairs of 32-bit words, address and time.
#include "event_writer.h"

namespace snnlib {
namespace {

constexpr int64_t kHeaderBytes = 28, kWordBytes = 8;
constexpr uint32_t kPolarity = 1;

}  // namespace

int64_t decode_aedat3(const uint8_t* input, int64_t bytes, char* places, int64_t capacity, EventDecoder& d) {
  EventWriter out(places, capacity, d);
  int64_t place = 0, other = 0;
  bool inside = true;
  while (inside && bytes - place >= kHeaderBytes) {
    const uint8_t* head = input + place;
    const uint32_t size = little32(head + 4), overflow = little32(head + 12);
    const int64_t room = little32(head + 16), number = little32(head + 20), valid = little32(head + 24);
    const int64_t next = place + kHeaderBytes + room * kWordBytes;
    // Everything unusual is left to the caller, damaged packets among it.
    if (little16(head) != kPolarity || size != kWordBytes || overflow >> 31 || number > room || valid > number ||
        number > d.variant || next > bytes || !out.has_places(number)) {
      break;
    }
    const uint8_t* words = head + kHeaderBytes;
    int64_t given = 0;
    for (int64_t i = 0; i < number; ++i) given += words[i * kWordBytes] & 1;
    // Some writers set no bit at all, and say in the header that all events are valid.
    const bool all = given == 0 && valid == number;
    const int64_t base = int64_t(overflow) << 31;
    for (int64_t done = 0; inside && done < number;) {
      const int64_t run = std::min(number - done, kRun);
      const auto word = [&](int64_t i) {
        const uint8_t* at = words + (done + i) * kWordBytes;
        const uint32_t data = little32(at);
        return Pixel{little32(at + 4), pack(data >> 17, data >> 2 & 0x7FFF, data >> 1 & 1), uint64_t(~data & !all)};
      };
      if (!out.put_ordinary(run, base, out.last() - base, word)) {
        for (int64_t i = 0; inside && i < run; ++i) {
          const Pixel e = word(i);
          if (e.odd)
            ++other;
          else
            inside = out.put(base + e.t, e.x(), e.y(), e.p());
        }
      }
      done += run;
    }
    place = next;
  }
  out.store(d);
  d.other += other;
  return place;
}

}  // namespace snnlib
