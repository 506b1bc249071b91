// Shared by the decoders: words of a file whatever the machine's byte order, clocks that wrap, and the checked event.
#pragma once

#include <algorithm>
#include <cstring>

#include "event_files.h"
#include "snnlib/core/platform.h"

#if defined(__GNUC__)
#define SNNLIB_INLINE inline __attribute__((always_inline))
#define SNNLIB_LIKELY(condition) __builtin_expect(!!(condition), 1)
#else
#define SNNLIB_INLINE inline
#define SNNLIB_LIKELY(condition) (condition)
#endif

namespace snnlib {

// Place of the lowest set bit of a mask that has one.
SNNLIB_INLINE uint32_t lowest_bit(uint32_t mask) {
#if defined(__GNUC__)
  return uint32_t(__builtin_ctz(mask));
#else
  uint32_t place = 0;
  while (!(mask >> place & 1)) ++place;
  return place;
#endif
}

// Compilers make one load of these.
SNNLIB_INLINE uint32_t little16(const uint8_t* in) { return uint32_t(in[0]) | uint32_t(in[1]) << 8; }
SNNLIB_INLINE uint32_t little32(const uint8_t* in) { return little16(in) | little16(in + 2) << 16; }

constexpr int64_t kEventBytes = 13;
// Words that are tried together; with one that is no ordinary word, all of them are decoded one by one.
constexpr int64_t kRun = 64;

// An event of a word as its decoder sees it: x in bits 0..15 of `place`, y in 16..31, p in 32..47, each below 2^15.
struct Pixel {
  uint32_t t;
  uint64_t place;

  uint32_t x() const { return uint32_t(place & 0xFFFF); }
  uint32_t y() const { return uint32_t(place >> 16 & 0xFFFF); }
  uint32_t p() const { return uint32_t(place >> 32 & 0xFFFF); }
};

SNNLIB_INLINE uint64_t pack(uint64_t x, uint64_t y, uint64_t p) { return x | y << 16 | p << 32; }

// Tests if all three fields of a place are at most those of the limits: their topmost bits stay, a difference below 0
// takes one away.
constexpr uint64_t kGuards = 0x800080008000u;
SNNLIB_INLINE uint64_t within(uint64_t limits, uint64_t place) { return (limits | kGuards) - place; }
SNNLIB_INLINE bool is_within(uint64_t differences) { return (differences & kGuards) == kGuards; }

// Makes the times of a clock of `period` steps count on: a fall by more than half of it is a wrap, and a rise by more
// than half steps back over one, where there was one.
class Unwrapper {
 public:
  Unwrapper(int64_t period, const EventDecoder& d)
      : period_(period), started_(d.wrap_started), last_(d.wrap_last), base_(d.wrap_base) {}

  void store(EventDecoder& d) const {
    d.wrap_started = started_;
    d.wrap_last = last_;
    d.wrap_base = base_;
  }

  SNNLIB_INLINE int64_t operator()(uint32_t time) {
    const int64_t step = int64_t(time) - last_, half = period_ / 2;
    if (!SNNLIB_LIKELY(uint64_t(step + half) <= uint64_t(2 * half))) {
      if (started_ && step < -half) base_ += period_;
      if (started_ && step > half) base_ = std::max<int64_t>(base_ - period_, 0);
    }
    started_ = true;
    last_ = time;
    return base_ + time;
  }

 private:
  int64_t period_;
  bool started_;
  int64_t last_, base_;
};

// Puts events into their places and checks them on the way. A local of a decoder's loop: all of it stays in registers.
class EventWriter {
 public:
  // Members are plain so that a function with a loop can work on a copy in registers and put that back.
  EventWriter(char* places, int64_t capacity, const EventDecoder& d)
      : out_(places),
        end_(places + capacity * kEventBytes),
        width_(uint32_t(d.width)),
        height_(uint32_t(d.height)),
        drop_(d.drop_outside),
        known_(d.origin_known),
        origin_(d.origin),
        begun_(places),
        count_(d.count),
        last_(d.count ? d.last : INT64_MAX),
        fall_(d.largest_fall),
        fall_at_(d.fall_at) {}

  void store(EventDecoder& d) const {
    d.origin_known = known_;
    d.origin = origin_;
    d.count = events();
    d.last = last_;
    d.largest_fall = fall_;
    d.fall_at = fall_at_;
    d.outside += outside_;
    d.stopped = stopped_;
    d.bad_x = bad_x_;
    d.bad_y = bad_y_;
    d.bad_p = bad_p_;
  }

  SNNLIB_INLINE bool has_places(int64_t count) const { return end_ - out_ >= count * kEventBytes; }

  // False where the event is outside the sensor and stops the decoder.
  SNNLIB_INLINE bool put(int64_t t, uint32_t x, uint32_t y, uint32_t p) {
    if (!SNNLIB_LIKELY((x < width_) & (y < height_) & (p < 2))) {
      if (drop_) {
        ++outside_;
        return true;
      }
      stopped_ = true;
      bad_x_ = x;
      bad_y_ = y;
      bad_p_ = p;
      return false;
    }
    if (!SNNLIB_LIKELY(t >= last_)) {
      if (events() == 0) {
        if (!known_) origin_ = t;
        known_ = true;
      } else if (last_ - t > fall_) {
        fall_ = last_ - t;
        fall_at_ = events();
      }
    }
    last_ = t;
    write(out_, t - origin_, x, y, p);
    out_ += kEventBytes;
    return true;
  }

  // Puts the events `word(0)` to `word(n - 1)` at `base` + their times, if all of them are ordinary: inside, and each
  // less than 2^31 after the one before, the first after `last`. Else, and before the first event, puts none.
  template <class Word>
  SNNLIB_INLINE bool put_ordinary(int64_t n, int64_t base, int64_t last, Word word) {
    if (kBigEndian || !has_places(n + 1) || !is_in_order(base + last)) return false;
    const int64_t offset = base - origin_;
    const uint64_t limits = pack(width_ - 1, height_ - 1, 1);
    uint64_t inside = kGuards;
    int64_t steps = 0;
    char* out = out_;
    for (int64_t i = 0; i < n; ++i) {
      const Pixel e = word(i);
      steps |= int64_t(e.t) - last;
      inside &= within(limits, e.place);
      last = e.t;
      write_over(out, offset + int64_t(e.t), e.place);
      out += kEventBytes;
    }
    if (uint64_t(steps) >> 31 || !is_within(inside)) return false;
    out_ = out;
    last_ = base + last;
    return true;
  }

  // Puts the events `word(0)` to `word(n - 1)` at `base` + their times without a check; there must be n + 1 places.
  template <class Word>
  SNNLIB_INLINE void put_checked(int64_t n, int64_t base, Word word) {
    const int64_t offset = base - origin_;
    char* out = out_;
    for (int64_t i = 0; i < n; ++i) {
      const Pixel e = word(i);
      write_over(out, offset + int64_t(e.t), e.place);
      out += kEventBytes;
    }
    if (n) last_ = base + word(n - 1).t;
    out_ = out;
  }

  // True if there was an event, and none later than `time`.
  bool is_in_order(int64_t time) const { return events() > 0 && time >= last_; }
  int32_t right() const { return int32_t(width_) - 1; }
  int32_t bottom() const { return int32_t(height_) - 1; }
  // Time of the last event; far ahead of any time before there is one.
  int64_t last() const { return last_; }

 private:
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  static constexpr bool kBigEndian = true;
#else
  static constexpr bool kBigEndian = false;
#endif

  // Two stores, of which the second reaches three bytes into the next place: that is written after this one.
  static SNNLIB_INLINE void write_over(char* out, int64_t t, uint64_t place) {
    std::memcpy(out, &t, 8);
    std::memcpy(out + 8, &place, 8);
  }

  static SNNLIB_INLINE void write(char* out, int64_t t, uint32_t x, uint32_t y, uint32_t p) {
    const uint16_t column = uint16_t(x), row = uint16_t(y);
    const uint8_t polarity = uint8_t(p);
    std::memcpy(out, &t, 8);
    std::memcpy(out + 8, &column, 2);
    std::memcpy(out + 10, &row, 2);
    std::memcpy(out + 12, &polarity, 1);
  }

  SNNLIB_INLINE int64_t events() const { return count_ + (out_ - begun_) / kEventBytes; }

  char* out_;
  char* end_;
  uint32_t width_, height_;
  bool drop_;
  bool known_;
  int64_t origin_;
  char* begun_;
  int64_t count_;
  int64_t last_, fall_, fall_at_, outside_ = 0;
  bool stopped_ = false;
  uint32_t bad_x_ = 0, bad_y_ = 0, bad_p_ = 0;
};

}  // namespace snnlib
