// Prophesee EVT 3.0: 16-bit words that change a state.
#include "event_writer.h"

#if defined(__GNUC__) && defined(__x86_64__)
#include <tmmintrin.h>
#define SNNLIB_SHUFFLES
#define SNNLIB_SSSE3 __attribute__((target("ssse3")))
#endif

namespace snnlib {
namespace {

enum : uint32_t {
  kAddressY = 0,
  kAddressX = 2,
  kVectorBase = 3,
  kVector12 = 4,
  kVector8 = 5,
  kTimeLow = 6,
  kTimeHigh = 8
};
// The most events of a word.
constexpr int64_t kMostEvents = 12;
// Words that are decoded one by one where they are no single events.
constexpr int64_t kPlain = 32;
// A base that vectors without end have moved is outside any sensor, and stays there.
constexpr int64_t kFarOutside = int64_t(1) << 31;

struct State {
  State(const EventDecoder& d)
      : unwrap(1 << 12, d),
        timed(d.timed),
        high(d.high),
        low(d.low),
        column(d.column),
        row(uint32_t(d.row)),
        polarity(uint32_t(d.polarity)) {}

  void store(EventDecoder& d) const {
    unwrap.store(d);
    d.timed = timed;
    d.high = high;
    d.low = low;
    d.row = row;
    d.column = column;
    d.polarity = polarity;
    d.other += other;
    d.untimed += untimed;
  }

  // False where an event is outside the sensor.
  SNNLIB_INLINE bool step(uint32_t word, EventWriter& out) {
    const uint32_t kind = word >> 12, value = word & 0xFFF;
    if (!timed && kind != kTimeHigh) {
      ++untimed;
      return true;
    }
    switch (kind) {
      case kAddressX:
        return out.put(time() | low, value & 0x7FF, row, value >> 11);
      case kAddressY:
        row = value & 0x7FF;
        return true;
      case kTimeLow:
        low = value;
        return true;
      case kTimeHigh: {
        const int64_t now = unwrap(value);
        // It is repeated without a change, and then leaves the low part as it is.
        if (now != high) low = 0;
        high = now;
        timed = true;
        return true;
      }
      case kVectorBase:
        column = value & 0x7FF;
        polarity = value >> 11;
        return true;
      case kVector12:
      case kVector8: {
        bool inside = true;
        for (uint32_t mask = kind == kVector12 ? value : value & 0xFF; inside && mask; mask &= mask - 1) {
          inside = out.put(time() | low, uint32_t(column) + lowest_bit(mask), row, polarity);
        }
        column = std::min(column + (kind == kVector12 ? 12 : 8), kFarOutside);
        return inside;
      }
      default:
        ++other;
        return true;
    }
  }

  int64_t time() const { return high << 12; }

  Unwrapper unwrap;
  bool timed;
  int64_t high, low, column;
  uint32_t row, polarity;
  int64_t other = 0, untimed = 0;
};

#if defined(SNNLIB_SHUFFLES)

constexpr int64_t kLanes = 8, kBlock = 256;

// Shuffles of eight words for each set of them: the words of the set side by side, and for every word the nearest of
// the set that is not behind it, or 0.
struct ShuffleTable {
  alignas(16) uint8_t chosen[256][16];
  alignas(16) uint8_t nearest[256][16];
  uint8_t counts[256];
};
constexpr ShuffleTable make_shuffle_table() {
  ShuffleTable table = {};
  for (int set = 0; set < 256; ++set) {
    int count = 0, last = -1;
    for (int byte = 0; byte < 16; ++byte) table.chosen[set][byte] = 0x80;
    for (int lane = 0; lane < 8; ++lane) {
      if (set >> lane & 1) {
        last = lane;
        table.chosen[set][2 * count] = uint8_t(2 * lane);
        table.chosen[set][2 * count + 1] = uint8_t(2 * lane + 1);
        ++count;
      }
      table.nearest[set][2 * lane] = last < 0 ? 0x80 : uint8_t(2 * last);
      table.nearest[set][2 * lane + 1] = last < 0 ? 0x80 : uint8_t(2 * last + 1);
    }
    table.counts[set] = uint8_t(count);
  }
  return table;
}
constexpr ShuffleTable kShuffles = make_shuffle_table();

// Single events: their words, with row and low part of the time as they stand at each.
struct Singles {
  uint16_t words[kBlock + kLanes], rows[kBlock + kLanes], lows[kBlock + kLanes];
  int64_t count, end;
  uint32_t row, low;
  // True if all events are in order and inside.
  bool ordinary;
};

// Every lane takes the value of the nearest lane of the set, or `before`, which becomes the last.
SNNLIB_SSSE3 inline __m128i fill(__m128i values, uint32_t set, __m128i& before) {
  const __m128i shuffle = _mm_load_si128(reinterpret_cast<const __m128i*>(kShuffles.nearest[set]));
  const __m128i none = _mm_srai_epi16(shuffle, 15);
  values = _mm_or_si128(_mm_shuffle_epi8(values, shuffle), _mm_and_si128(none, before));
  before = _mm_shuffle_epi8(values, _mm_set1_epi16(0x0F0E));
  return values;
}

// Takes words as far as they are ADDR_X, ADDR_Y and TIME_LOW, a multiple of eight.
SNNLIB_SSSE3 SNNLIB_NOINLINE void find_singles(const uint8_t* words, int64_t count, const State& state,
                                               const EventWriter& out, Singles& found) {
  const __m128i right = _mm_set1_epi16(int16_t(out.right())), bottom = _mm_set1_epi16(int16_t(out.bottom()));
  const __m128i position = _mm_set1_epi16(0x7FF), value = _mm_set1_epi16(0xFFF);
  __m128i row = _mm_set1_epi16(int16_t(state.row)), low = _mm_set1_epi16(int16_t(state.low));
  __m128i odd = _mm_setzero_si128();
  int64_t place = 0, events = 0;
  for (; place + kLanes <= count; place += kLanes) {
    const __m128i eight = _mm_loadu_si128(reinterpret_cast<const __m128i*>(words + place * 2));
    const __m128i kind = _mm_srli_epi16(eight, 12);
    const __m128i is_x = _mm_cmpeq_epi16(kind, _mm_set1_epi16(kAddressX));
    const __m128i is_y = _mm_cmpeq_epi16(kind, _mm_set1_epi16(kAddressY));
    const __m128i is_low = _mm_cmpeq_epi16(kind, _mm_set1_epi16(kTimeLow));
    const uint32_t sets = uint32_t(_mm_movemask_epi8(_mm_packs_epi16(is_y, is_low)));
    const uint32_t set = uint32_t(_mm_movemask_epi8(_mm_packs_epi16(is_x, _mm_setzero_si128())));
    if (((sets | sets >> 8 | set) & 0xFF) != 0xFF) break;
    const __m128i low_before = low;
    const __m128i rows = fill(_mm_and_si128(eight, position), sets & 0xFF, row);
    const __m128i lows = fill(_mm_and_si128(eight, value), sets >> 8, low);
    const __m128i earlier = _mm_alignr_epi8(lows, low_before, 14);
    const __m128i outside =
        _mm_or_si128(_mm_cmpgt_epi16(_mm_and_si128(eight, position), right), _mm_cmpgt_epi16(rows, bottom));
    odd = _mm_or_si128(odd, _mm_or_si128(_mm_cmpgt_epi16(earlier, lows), _mm_and_si128(outside, is_x)));
    const __m128i chosen = _mm_load_si128(reinterpret_cast<const __m128i*>(kShuffles.chosen[set]));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(found.words + events), _mm_shuffle_epi8(eight, chosen));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(found.rows + events), _mm_shuffle_epi8(rows, chosen));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(found.lows + events), _mm_shuffle_epi8(lows, chosen));
    events += kShuffles.counts[set];
  }
  found.count = events;
  found.end = place;
  found.row = uint32_t(_mm_extract_epi16(row, 0));
  found.low = uint32_t(_mm_extract_epi16(low, 0));
  found.ordinary = _mm_movemask_epi8(odd) == 0;
}

// The words at the beginning that are single events in order and inside: how many were decoded. Where they are not in
// order or inside, `plain` is how many not to try again.
SNNLIB_NOINLINE int64_t put_singles(const uint8_t* words, int64_t count, State& state, EventWriter& out,
                                    int64_t& plain) {
  static const bool shuffles = __builtin_cpu_supports("ssse3");
  if (!shuffles || !state.timed || !out.is_in_order(state.time() | state.low)) return 0;
  Singles found;
  find_singles(words, std::min(count, kBlock), state, out, found);
  if (!found.ordinary) plain = std::max(plain, found.end);
  if (!found.end || !found.ordinary || !out.has_places(found.count + 1)) return 0;
  const auto pixel = [&](int64_t i) {
    const uint32_t word = found.words[i];
    return Pixel{found.lows[i], pack(word & 0x7FF, found.rows[i], word >> 11 & 1)};
  };
  out.put_checked(found.count, state.time(), pixel);
  state.row = found.row;
  state.low = found.low;
  return found.end;
}

#else

SNNLIB_INLINE int64_t put_singles(const uint8_t*, int64_t, State&, EventWriter&, int64_t&) { return 0; }

#endif

// Decodes words one by one; the number that it did, fewer than `count` where places run out.
SNNLIB_NOINLINE int64_t put_any(const uint8_t* words, int64_t count, State& kept, EventWriter& writer, bool& inside) {
  State state = kept;
  EventWriter out = writer;
  int64_t i = 0;
  while (inside && i < count && out.has_places(kMostEvents)) inside = state.step(little16(words + 2 * i++), out);
  kept = state;
  writer = out;
  return i;
}

}  // namespace

int64_t decode_evt3(const uint8_t* input, int64_t bytes, char* places, int64_t capacity, EventDecoder& d) {
  EventWriter out(places, capacity, d);
  State state(d);
  const int64_t count = bytes / 2;
  int64_t done = 0;
  bool inside = true;
  while (inside && done < count) {
    const uint8_t* words = input + done * 2;
    int64_t most = kPlain;
    if (const int64_t singles = put_singles(words, count - done, state, out, most)) {
      done += singles;
      continue;
    }
    most = std::min(count - done, most);
    const int64_t next = put_any(words, most, state, out, inside);
    done += next;
    if (next < most) break;
  }
  out.store(d);
  state.store(d);
  return done * 2;
}

}  // namespace snnlib
