// LZ4 frames, as AEDAT 4 packs its packets: magic, descriptor, blocks of literals and copies, checksums.
//
// Source: Y. Collet, "LZ4 Frame Format" 1.6.2, "LZ4 Block Format", "xxHash fast digest algorithm" (XXH32).
#include "event_writer.h"

namespace snnlib {
namespace {

constexpr uint32_t kMagic = 0x184D2204u, kStored = 1u << 31;
constexpr int64_t kShortestMatch = 4, kExtended = 15, kWild = 16, kLongestFast = kExtended - 1 + kShortestMatch;
constexpr uint32_t kPrime1 = 2654435761u, kPrime2 = 2246822519u, kPrime3 = 3266489917u, kPrime4 = 668265263u,
                   kPrime5 = 374761393u;

SNNLIB_INLINE uint32_t rotated(uint32_t value, int by) { return value << by | value >> (32 - by); }

uint32_t checksum(const uint8_t* in, int64_t bytes) {
  const uint8_t* const end = in + bytes;
  uint32_t sum = kPrime5;
  if (bytes >= 16) {
    uint32_t lanes[4] = {kPrime1 + kPrime2, kPrime2, 0, 0u - kPrime1};
    for (; end - in >= 16; in += 16) {
      for (int k = 0; k < 4; ++k) lanes[k] = rotated(lanes[k] + little32(in + 4 * k) * kPrime2, 13) * kPrime1;
    }
    sum = rotated(lanes[0], 1) + rotated(lanes[1], 7) + rotated(lanes[2], 12) + rotated(lanes[3], 18);
  }
  sum += uint32_t(bytes);
  for (; end - in >= 4; in += 4) sum = rotated(sum + little32(in) * kPrime3, 17) * kPrime4;
  for (; in < end; ++in) sum = rotated(sum + *in * kPrime5, 11) * kPrime1;
  sum = (sum ^ sum >> 15) * kPrime2;
  sum = (sum ^ sum >> 13) * kPrime3;
  return sum ^ sum >> 16;
}

// Adds the bytes that continue a length; false where they reach the end.
bool read_length(const uint8_t*& in, const uint8_t* end, int64_t& length) {
  uint32_t more;
  do {
    if (in == end) return false;
    more = *in++;
    length += more;
  } while (more == 255);
  return true;
}

// Unpacks a block behind what was unpacked from `begin` on. Returns the end of the output, or null for damage, and for
// a lack of room where `full` is then set.
uint8_t* unpack_block(const uint8_t* in, const uint8_t* in_end, const uint8_t* begin, uint8_t* out, uint8_t* out_end,
                      bool& full) {
  while (in < in_end) {
    const uint32_t token = *in++;
    int64_t literals = token >> 4, length = (token & 15) + kShortestMatch;
    if (literals < kExtended && in_end - in >= kWild + 2 && out_end - out >= kWild + kLongestFast + kWild) {
      // A token of the usual kind: whole words are copied, as what lies behind is written next.
      std::memcpy(out, in, kWild);
      in += literals;
      out += literals;
      const int64_t offset = little16(in);
      in += 2;
      if (offset == 0 || offset > out - begin) return nullptr;
      if (offset >= 8 && length <= kLongestFast) {
        const uint8_t* from = out - offset;
        std::memcpy(out, from, 8);
        std::memcpy(out + 8, from + 8, 8);
        std::memcpy(out + 16, from + 16, 2);
        out += length;
        continue;
      }
      if (length == kExtended + kShortestMatch && !read_length(in, in_end, length)) return nullptr;
      full = out_end - out < length;
      if (full) return nullptr;
      for (const uint8_t* const end = out + length; out < end; ++out) *out = *(out - offset);
      continue;
    }
    if (literals == kExtended && !read_length(in, in_end, literals)) return nullptr;
    if (in_end - in < literals) return nullptr;
    full = out_end - out < literals;
    if (full) return nullptr;
    std::memcpy(out, in, size_t(literals));
    in += literals;
    out += literals;
    // The last literals have no match behind them.
    if (in == in_end) return out;
    if (in_end - in < 2) return nullptr;
    const int64_t offset = little16(in);
    in += 2;
    if (offset == 0 || offset > out - begin) return nullptr;
    if (length == kExtended + kShortestMatch && !read_length(in, in_end, length)) return nullptr;
    full = out_end - out < length;
    if (full) return nullptr;
    for (const uint8_t* const end = out + length; out < end; ++out) *out = *(out - offset);
  }
  return nullptr;
}

}  // namespace

int64_t unpack_lz4(const uint8_t* input, int64_t bytes, uint8_t* output, int64_t capacity) {
  const uint8_t *in = input + 6, *const end = input + bytes;
  if (bytes < 7 || little32(input) != kMagic) return -1;
  const uint32_t flags = input[4], block_kind = input[5] >> 4 & 7;
  // Version 1, no reserved bits, blocks of 64 KiB to 4 MiB.
  if (flags >> 6 != 1 || flags & 2 || input[5] & 0x8F || block_kind < 4) return -1;
  const bool independent = flags & 32, blocks_checked = flags & 16, content_checked = flags & 4;
  const int64_t described = 2 + (flags & 8 ? 8 : 0) + (flags & 1 ? 4 : 0);
  if (bytes < 4 + described + 1 || (checksum(input + 4, described) >> 8 & 0xFF) != input[4 + described]) return -1;
  in = input + 4 + described + 1;
  const int64_t largest = int64_t(1) << (8 + 2 * block_kind);
  uint8_t* out = output;
  for (;;) {
    if (end - in < 4) return -1;
    const uint32_t head = little32(in), size = head & ~kStored;
    in += 4;
    if (head == 0) break;
    if (size > largest || end - in < int64_t(size) + (blocks_checked ? 4 : 0)) return -1;
    uint8_t* const most = out + std::min(output + capacity - out, largest);
    bool full = false;
    uint8_t* after = nullptr;
    if (head & kStored) {
      full = most - out < int64_t(size);
      if (!full) {
        std::memcpy(out, in, size);
        after = out + size;
      }
    } else {
      after = unpack_block(in, in + size, independent ? out : output, out, most, full);
    }
    if (!after) return full && most == output + capacity ? kLacksRoom : -1;
    in += size;
    if (blocks_checked) {
      if (checksum(in - size, size) != little32(in)) return -1;
      in += 4;
    }
    out = after;
  }
  if (flags & 8 && (little32(input + 6) != uint32_t(out - output) || little32(input + 10) != 0)) return -1;
  if (content_checked && (end - in < 4 || checksum(output, out - output) != little32(in))) return -1;
  return out - output;
}

}  // namespace snnlib
