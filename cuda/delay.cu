// Channels that arrive later on CUDA. A thread has an element of the result, or 16 bytes of a channel's cells, and
// gathers the two that it comes from: no atomics, and the order of the CPU's sums. Of the gradient of a delay a warp
// has a sample and channel.
#include "divider.h"
#include "element.h"
#include "launch.h"
#include "snnlib/delay/delay.h"

namespace snnlib {
namespace cuda {
namespace {

// Where an element stands: steps and channels repeat with these sizes and strides in either layout.
template <class W>
struct DelayPlaces {
  Divider<W> step, steps, channel, channels;

  explicit DelayPlaces(const DelayShiftArgs& a)
      : step(a.step_stride), steps(a.steps), channel(a.channel_stride), channels(a.channels) {}
};

// V neighbouring elements have one step, and one channel where the channels do not lie next to each other.
template <class S, class W, int V, bool Earlier>
__global__ void delay_shift_kernel(DelayShiftArgs a, DelayPlaces<W> places, int64_t packs) {
  const int64_t index = thread_index();
  if (index >= packs) return;
  const W here = W(index) * V, step = places.step.size;
  const W t = places.steps.remainder(places.step.quotient(here));
  const W c = places.channels.remainder(places.channel.quotient(here)), k = W(a.delays[c]);
  const S first = static_cast<const S*>(a.first)[c], second = static_cast<const S*>(a.second)[c];
  // Steps before the first and behind the last are 0. A step before the first wraps to one behind the last.
  const auto at = [&](W later, bool needed) {
    return needed && W(t + later) < places.steps.size ? load_pack<S, V>(a.x, int64_t(W(here + later * step)))
                                                      : Pack<S, V>{};
  };
  Pack<S, V> out = {};
  if constexpr (Earlier) {
    const Pack<S, V> now = at(k, true), next = at(k + 1, true);
    SNNLIB_UNROLL
    for (int v = 0; v < V; ++v) out.lane[v] = two_taps(first, now.lane[v], second, next.lane[v]);
  } else {
    const Pack<S, V> before = at(~k, second != S(0)), now = at(W(0) - k, true);
    SNNLIB_UNROLL
    for (int v = 0; v < V; ++v) {
      if (before.lane[v] != S(0)) out.lane[v] = add_event(out.lane[v], second, before.lane[v]);
      if (now.lane[v] != S(0)) out.lane[v] = add_event(out.lane[v], first, now.lane[v]);
    }
  }
  store_pack(a.out, int64_t(here), out);
}

template <class S, class W, int V>
void shift_packs(const DelayShiftArgs& a, int64_t elements) {
  launch("delay_shift", a.earlier ? delay_shift_kernel<S, W, V, true> : delay_shift_kernel<S, W, V, false>,
         elements / V, a.executor, Scratch{}, a, DelayPlaces<W>(a), elements / V);
}

template <class S, class W>
void shift_places(const DelayShiftArgs& a, int64_t elements) {
  constexpr int kPack = 16 / sizeof(S);
  const bool packs = a.channel_stride % kPack == 0 && is_aligned(a.x, 16) && is_aligned(a.out, 16);
  packs ? shift_packs<S, W, kPack>(a, elements) : shift_packs<S, W, 1>(a, elements);
}

template <class S>
void shift_of(const DelayShiftArgs& a) {
  const int64_t elements = a.steps * a.batch * a.channels * a.space;
  if (elements == 0) return;
  elements < (int64_t(1) << 31) ? shift_places<S, uint32_t>(a, elements) : shift_places<S, uint64_t>(a, elements);
}

// Neighbouring channels, whose elements may lie in the same sectors of memory.
constexpr int kSumWarps = 8;

template <class S>
__global__ void SNNLIB_MOST_THREADS(kSumWarps* kWarpThreads)
    delay_sums_kernel(DelaySumsArgs a, Divider<uint64_t> channels, Divider<uint64_t> space) {
  const int lane = block_thread() % kWarpThreads;
  const int64_t row = block_index() * kSumWarps + block_thread() / kWarpThreads;
  if (row >= a.batch * a.channels) return;
  const int64_t n = int64_t(channels.quotient(uint64_t(row))), c = row - n * a.channels, k = a.delays[c];
  const int64_t start = n * a.batch_stride + c * a.channel_stride, elements = a.steps * a.space;
  const S *x = static_cast<const S*>(a.x) + start, *grad = static_cast<const S*>(a.grad) + start;
  // Sums of the first thread count.
  double sums[3] = {};
  for (int64_t low = 0; low < elements; low += kWarpThreads) {
    const int64_t e = low + lane;
    const int64_t t = int64_t(space.quotient(uint64_t(e))), at = t * a.step_stride + (e - t * a.space) * a.space_stride;
    const S amount = e < elements ? x[at] : S(0);
    double products[3] = {};
    if (amount != S(0)) {
      SNNLIB_UNROLL
      for (int i = 0; i < 3; ++i) {
        const int64_t later = k + i - 1;
        // A product of 0 leaves a sum as it is.
        if (t + later >= 0 && t + later < a.steps)
          products[i] = delay_product(amount, grad[at + later * a.step_stride]);
      }
    }
    for (uint32_t events = warp_vote(amount != S(0)); events; events &= events - 1) {
      const int by = count_ones((events & (0u - events)) - 1u);
      SNNLIB_UNROLL
      for (int i = 0; i < 3; ++i) sums[i] += warp_ahead(products[i], by);
    }
  }
  SNNLIB_UNROLL
  for (int i = 0; i < 3; ++i) {
    if (lane == 0) a.sums[(n * 3 + i) * a.channels + c] = sums[i];
  }
}

template <class S>
void sums_of(const DelaySumsArgs& a) {
  const int64_t rows = a.batch * a.channels;
  if (rows == 0) return;
  launch_blocks("delay_shift_sums", delay_sums_kernel<S>,
                {(rows + kSumWarps - 1) / kSumWarps, kSumWarps * kWarpThreads, 0}, a.executor, a,
                Divider<uint64_t>(a.channels), Divider<uint64_t>(a.space > 0 ? a.space : 1));
}

void shift(const DelayShiftArgs& a) { a.dtype == DType::kFloat32 ? shift_of<float>(a) : shift_of<double>(a); }

void shift_sums(const DelaySumsArgs& a) { a.dtype == DType::kFloat32 ? sums_of<float>(a) : sums_of<double>(a); }

}  // namespace

extern const DelayKernels delay_kernels = {shift, shift_sums};

}  // namespace cuda
}  // namespace snnlib
