// Counts of nonzero elements, at the speed at which memory is read. Elements are compared as integers: all bits but the
// sign are 0 in a zero, and those of `One` in 1 and -1.
#include "snnlib/events/nonzero.h"

#include <atomic>
#include <cmath>

#include "snnlib/core/threads.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

// Cells whose counts stay in the L1 cache while frames go by.
constexpr int64_t kCells = 2048;

// Adds to the counts of neighbouring cells; returns bits, of which some are set if an element is not -1, 0 or 1.
template <class Word, Word One>
SNNLIB_NOINLINE uint32_t count_frame(const Word* __restrict x, int64_t cells, uint32_t* __restrict counts) {
  constexpr Word kMagnitude = Word(~Word(0)) >> 1;
  uint32_t graded = 0;
  for (int64_t i = 0; i < cells; ++i) {
    const Word magnitude = x[i] & kMagnitude;
    const uint32_t there = magnitude != 0;
    counts[i] += there;
    graded |= there & uint32_t(magnitude != One);
  }
  return graded;
}

template <class Word, Word One>
bool count_words(const NonzeroArgs& a) {
  const Word* x = static_cast<const Word*>(a.elements);
  const int64_t blocks = (a.cells + kCells - 1) / kCells;
  std::atomic<bool> unit{true};
  parallel_for(a.parts * blocks, a.executor.threads(), [&](int64_t task) {
    thread_local Scratch<uint32_t> scratch;
    const int64_t part = task / blocks, first = task % blocks * kCells;
    const int64_t cells = a.cells - first < kCells ? a.cells - first : kCells;
    uint32_t* counts = scratch.zeroed(cells);
    uint32_t graded = 0;
    for (int64_t f = part * a.frames / a.parts; f < (part + 1) * a.frames / a.parts; ++f) {
      graded |= count_frame<Word, One>(x + f * a.frame_stride + first, cells, counts);
    }
    if (graded) unit = false;
    for (int64_t i = 0; i < cells; ++i) a.counts[part * a.cells + first + i] = counts[i];
  });
  return unit;
}

bool count(const NonzeroArgs& a) {
  switch (a.dtype) {
    case DType::kFloat64:
      return count_words<uint64_t, 0x3ff0000000000000>(a);
    case DType::kBFloat16:
      return count_words<uint16_t, 0x3f80>(a);
    case DType::kFloat16:
      return count_words<uint16_t, 0x3c00>(a);
    default:
      return count_words<uint32_t, 0x3f800000>(a);
  }
}

// A row of `n` elements.
template <class T>
int64_t count_row(const T* x, int64_t n, int64_t stride) {
  int64_t found = 0;
  for (int64_t i = 0; i < n; ++i) found += to_state(x[i * stride]) != 0.0f;
  return found;
}

int64_t sample(const SampleArgs& a) {
  const auto& [steps, batch, channels, height, width] = a.size;
  // The innermost loop goes along the axis whose elements are neighbours.
  const bool last = a.stride[2] == 1;
  const int outer = last ? 4 : 2, inner = last ? 2 : 4;
  int64_t found = 0;
  for (int64_t i = 0; i < a.frames; ++i) {
    const int64_t step = (2 * i + 1) * steps / (2 * a.frames);
    const int64_t n = int64_t(std::fmod(double(i) * 0.618, 1.0) * double(batch));
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t j = 0; j < a.size[outer]; ++j) {
        const int64_t at = step * a.stride[0] + n * a.stride[1] + y * a.stride[3] + j * a.stride[outer];
        typed(a.elements, at, [&](const auto* x) { found += count_row(x, a.size[inner], a.stride[inner]); });
      }
    }
  }
  return found;
}

}  // namespace

extern const NonzeroKernels nonzero_kernels = {count, sample};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
