// Offsets of events in the weights of a kernel row at 2^31 and far beyond, without any memory behind them.
#include <cstdio>
#include <initializer_list>

#include "snnlib/events/conv.h"

using namespace snnlib::SNNLIB_ISA;

namespace {

int failures = 0;

// All that a gather adds up at a window that starts at padded pixel `first`: each tap and channel, against 64 bits.
void check_window(const RowConv& conv, int64_t first) {
  GatherRow row = {};
  row.pixel_weights = conv.in_channels * conv.gather_length();
  const int64_t channels[] = {0, 1, conv.in_channels / 2, conv.in_channels - 1};
  for (int64_t kx = 0; kx < conv.kernel; ++kx) {
    const int64_t x = first + kx - conv.padding;
    if (x < 0 || x >= conv.in_width) continue;
    for (const int64_t c : channels) {
      const Place place = conv.place(x, c);
      const int64_t expected = (kx * conv.in_channels + c) * conv.gather_length();
      const int64_t got = weights_from(row.row_at(first), place.row);
      if (place.at == first + kx && got == expected) continue;
      std::printf("gather: pixel %lld, channel %lld: expected %lld, got %lld\n", static_cast<long long>(x),
                  static_cast<long long>(c), static_cast<long long>(expected), static_cast<long long>(got));
      ++failures;
    }
  }
}

void check_gather(const RowConv& conv) {
  const int64_t pixel = conv.in_channels * conv.gather_length(), last = conv.in_width + 2 * conv.padding - conv.kernel;
  for (const int64_t floats : {int64_t(0), int64_t(1) << 31, int64_t(1) << 32, int64_t(3) << 31, int64_t(1) << 40}) {
    for (int64_t first = floats / pixel - 3; first <= floats / pixel + 3; ++first) {
      if (first >= 0 && first <= last) check_window(conv, first);
    }
  }
  check_window(conv, last);
}

void check_scatter(const RowConv& conv) {
  const int64_t length = padded(conv.scatter_length());
  for (const int64_t c :
       {int64_t(0), (int64_t(1) << 31) / length, (int64_t(1) << 31) / length + 1, conv.in_channels - 1}) {
    const int64_t got = conv.place(0, c).row;
    if (got == c * length) continue;
    std::printf("scatter: channel %lld: got %lld\n", static_cast<long long>(c), static_cast<long long>(got));
    ++failures;
  }
}

}  // namespace

int main() {
  // {by_scatter, in_width, in_channels, out_width, out_channels, kernel, stride, padding}
  check_gather({false, 20000, 256, 20000, 512, 1, 1, 0});
  check_gather({false, 40000, 31, 40002, 2048, 3, 1, 2});
  check_gather({false, 2200, 1024, 2200, 1024, 1, 1, 0});
  check_gather({false, int64_t(1) << 30, 4096, int64_t(1) << 29, 8190, 5, 2, 2});
  check_scatter({true, 64, int64_t(1) << 21, 62, 600, 3, 1, 0});
  return failures != 0;
}
