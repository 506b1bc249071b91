// Sums over superpixels on the CPU. A task is a group of planes of one image: each segment is read once per group, and
// the additions of its planes do not wait for each other. A plane's sums are added in the order of its pixels whatever
// the group, in double: that is as fast, and no error grows with the number of pixels.
#include "snnlib/superpixel.h"

#include <atomic>
#include <type_traits>

#include "snnlib/isa.h"
#include "snnlib/parallel.h"
#include "snnlib/scratch.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

// With 16, planes a power of two apart no longer fit side by side into an L1 cache of 8 ways.
constexpr int kMostPlanes = 8;

template <int kPlanes>
using Planes = std::integral_constant<int, kPlanes>;

// out[i, k] = sum over { p : segments[p] = k } of image[i, p] for kPlanes neighbouring planes; false if a segment is
// out of range.
template <int kPlanes, class T>
bool sum_planes(const T* image, const int64_t* segments, int64_t pixels, int64_t count, Scratch<double>& scratch,
                T* out) {
  double* __restrict sums = scratch.zeroed(count * kPlanes);
  for (int64_t p = 0; p < pixels; ++p) {
    const int64_t k = segments[p];
    if (k < 0 || k >= count) return false;
    double values[kPlanes];
    for (int i = 0; i < kPlanes; ++i) values[i] = image[i * pixels + p];
    SNNLIB_SIMD
    for (int i = 0; i < kPlanes; ++i) sums[k * kPlanes + i] += values[i];
  }
  for (int i = 0; i < kPlanes; ++i) {
    for (int64_t k = 0; k < count; ++k) out[i * count + k] = T(sums[k * kPlanes + i]);
  }
  return true;
}

template <class T>
bool sum_images(const SuperpixelArgs& a) {
  const int64_t groups = (a.channels + kMostPlanes - 1) / kMostPlanes;
  std::atomic<bool> valid{true};
  parallel_for(a.images * groups, a.executor.threads(), [&](int64_t task) {
    thread_local Scratch<double> scratch;
    const int64_t n = task / groups, first = task % groups * kMostPlanes;
    const int64_t* segments = a.segments + n % a.maps * a.pixels;
    const T* image = static_cast<const T*>(a.image) + (n * a.channels + first) * a.pixels;
    T* out = static_cast<T*>(a.sums) + (n * a.channels + first) * a.count;
    // What no group of 8 takes goes in groups of 4, 2 and 1.
    int64_t left = a.channels - first < kMostPlanes ? a.channels - first : kMostPlanes;
    const auto sum_groups_of = [&](auto planes) {
      constexpr int kPlanes = decltype(planes)::value;
      for (; left >= kPlanes; left -= kPlanes) {
        if (!sum_planes<kPlanes>(image, segments, a.pixels, a.count, scratch, out)) valid = false;
        image += kPlanes * a.pixels;
        out += kPlanes * a.count;
      }
    };
    sum_groups_of(Planes<kMostPlanes>());
    sum_groups_of(Planes<4>());
    sum_groups_of(Planes<2>());
    sum_groups_of(Planes<1>());
  });
  return valid;
}

bool sum(const SuperpixelArgs& a) { return a.dtype == DType::kFloat64 ? sum_images<double>(a) : sum_images<float>(a); }

}  // namespace

extern const SuperpixelKernels superpixel_kernels = {sum};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
