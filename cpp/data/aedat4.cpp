// AEDAT 4: packets of a stream, each a size-prefixed flatbuffer EVTS, plain or in an LZ4 frame. An event has 16 bytes:
// int64 time, int16 x and y, polarity, three bytes of padding.
#include <vector>

#include "event_writer.h"

namespace snnlib {
namespace {

constexpr int64_t kWordBytes = 16, kHeadBytes = 8, kUsualPacket = 1 << 18, kLargestPacket = 1 << 28;
// Times of this size and negative ones are left to the caller, who says that the file is damaged.
constexpr int kTimeBits = 62;
// "EVTS"
constexpr uint32_t kEvents = 0x53545645u;

SNNLIB_INLINE uint64_t little64(const uint8_t* in) { return little32(in) | uint64_t(little32(in + 4)) << 32; }

struct Words {
  const uint8_t* begin;
  // Below 0 where the packet is damaged.
  int64_t count;
};

// The vector in the first field of a size-prefixed flatbuffer, whose root offset lies at byte 4.
Words find_events(const uint8_t* data, int64_t bytes) {
  const Words damaged = {nullptr, -1};
  const auto holds = [&](int64_t place, int64_t size) { return place >= 0 && place <= bytes - size; };
  if (bytes < 12 || little32(data + 8) != kEvents) return damaged;
  const int64_t table = 4 + int64_t(little32(data + 4));
  if (!holds(table, 4)) return damaged;
  const int64_t layout = table - int32_t(little32(data + table));
  if (!holds(layout, 2)) return damaged;
  if (little16(data + layout) < 6) return {data, 0};
  if (!holds(layout + 4, 2)) return damaged;
  const int64_t offset = little16(data + layout + 4);
  if (offset == 0) return {data, 0};
  if (!holds(table + offset, 4)) return damaged;
  const int64_t vector = table + offset + little32(data + table + offset);
  if (!holds(vector, 4)) return damaged;
  const int64_t count = little32(data + vector);
  return count <= (bytes - vector - 4) / kWordBytes ? Words{data + vector + 4, count} : damaged;
}

// False where an event is outside the sensor, or has a time that no recording has.
bool put_events(const Words& words, EventWriter& out) {
  for (int64_t done = 0; done < words.count;) {
    const int64_t run = std::min(words.count - done, kRun);
    const uint8_t* first = words.begin + done * kWordBytes;
    const uint64_t base = uint64_t(out.last());
    const auto word = [&](int64_t i) {
      const uint8_t* at = first + i * kWordBytes;
      // Column, row and polarity lie as in a place.
      const uint64_t t = little64(at), place = little64(at + 8) & 0xFFFFFFFFFFu;
      // Beyond 2^31 after the last event, negative coordinates.
      return Pixel{uint32_t(t - base), place, (t - base) >> 31 | t >> kTimeBits | (place & kGuards)};
    };
    if (!out.put_ordinary(run, out.last(), 0, word)) {
      for (int64_t i = 0; i < run; ++i) {
        const uint8_t* at = first + i * kWordBytes;
        const uint64_t t = little64(at);
        if (t >> kTimeBits) return false;
        // Negative coordinates become large ones, which are outside of any sensor.
        const uint32_t x = uint32_t(int32_t(int16_t(little16(at + 8)))),
                       y = uint32_t(int32_t(int16_t(little16(at + 10))));
        if (!out.put(int64_t(t), x, y, at[12])) return false;
      }
    }
    done += run;
  }
  return true;
}

}  // namespace

int64_t decode_aedat4(const uint8_t* input, int64_t bytes, char* places, int64_t capacity, EventDecoder& d) {
  EventWriter out(places, capacity, d);
  const uint32_t stream = uint32_t(d.variant >> 1);
  std::vector<uint8_t> unpacked;
  int64_t done = 0;
  while (bytes - done >= kHeadBytes) {
    const uint8_t* data = input + done + kHeadBytes;
    const int64_t size = int32_t(little32(data - 4));
    if (little32(data - 8) != stream || size < 0 || size > bytes - done - kHeadBytes) break;
    int64_t count = size;
    if (d.variant & 1) {
      if (unpacked.empty()) unpacked.resize(kUsualPacket);
      while ((count = unpack_lz4(data, size, unpacked.data(), int64_t(unpacked.size()))) == kLacksRoom &&
             int64_t(unpacked.size()) < kLargestPacket) {
        unpacked.resize(2 * unpacked.size());
      }
      if (count < 0) break;
      data = unpacked.data();
    }
    const Words words = find_events(data, count);
    if (words.count < 0 || !out.has_places(words.count + 1)) break;
    const EventWriter before = out;
    if (!put_events(words, out)) {
      // Either it says which event is outside, or the packet is left.
      if (!out.stopped()) out = before;
      break;
    }
    done += kHeadBytes + size;
  }
  out.store(d);
  return done;
}

}  // namespace snnlib
