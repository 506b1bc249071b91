// Spike average pooling on the CPU. A task is one plane; a row of windows is summed tap by tap, so that the loops over
// neighbouring windows and channels vectorise and every window adds its cells in the same order in any layout.
#include "snnlib/pool/pool.h"

#include <limits>

#include "snnlib/pool/rows.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

// Loops over so many channels are long enough by themselves.
constexpr int64_t kManyChannels = 32;
// Wider windows of one channel are summed one by one.
constexpr int64_t kNarrowWindow = 4;

// Divisor of the sums of output row (z, y). Rows in the middle of an image share it.
template <class S>
class Divisors {
 public:
  const S* row(const PoolForwardArgs& args, const Axes& a, int64_t z, int64_t y) {
    const int64_t full = a.d.full_size(z) * a.h.full_size(y);
    const int64_t inside = (a.d.end(z) - a.d.begin(z)) * (a.h.end(y) - a.h.begin(y));
    if (full == full_ && inside == inside_) return memory_.data();
    full_ = full;
    inside_ = inside;
    S* out = memory_.reserve(a.out_row());
    for (int64_t x = 0; x < a.w.out; ++x) {
      const int64_t cells = args.count_include_pad ? full * a.w.full_size(x) : inside * (a.w.end(x) - a.w.begin(x));
      const S divisor = S(args.divisor_override ? args.divisor_override : cells);
      for (int64_t c = 0; c < a.inner; ++c) out[x * a.inner + c] = divisor;
    }
    return out;
  }

 private:
  int64_t full_ = -1, inside_ = -1;
  Scratch<S> memory_;
};

// Output row (z, y), window by window: for many channels, whose sums stay in the L1 cache.
template <class T, class S>
void average_windows(const Axes& a, const T* __restrict input, int64_t z, int64_t y, const S* divisors,
                     S* __restrict sum, T* __restrict out) {
  for (int64_t x = 0; x < a.w.out; ++x, out += a.inner) {
    for (int64_t c = 0; c < a.inner; ++c) sum[c] = S(0);
    for_each_input_row(a, z, y, [&](int64_t from_row, int64_t) {
      for (int64_t cell = a.w.begin(x); cell < a.w.end(x); ++cell) {
        const T* __restrict from = input + from_row + cell * a.inner;
        SNNLIB_SIMD
        for (int64_t c = 0; c < a.inner; ++c) sum[c] += to_state(from[c]);
      }
    });
    const S divisor = divisors[x * a.inner];
    SNNLIB_SIMD
    for (int64_t c = 0; c < a.inner; ++c) from_state(sum[c] / divisor, out + c);
  }
}

// A single channel, where loops over neighbouring windows do not vectorise: a window's sum stays in a register.
template <class T, class S>
void average_plane_windows(const Axes& a, const T* input, int64_t z, int64_t y, const S* divisors, T* out) {
  for (int64_t x = 0; x < a.w.out; ++x) {
    S sum = S(0);
    for_each_input_row(a, z, y, [&](int64_t from_row, int64_t) {
      for (int64_t cell = a.w.begin(x); cell < a.w.end(x); ++cell) sum += to_state(input[from_row + cell]);
    });
    from_state(sum / divisors[x], out + x);
  }
}

template <class T>
void forward_planes(const PoolForwardArgs& args) {
  using S = typename StateOf<T>::type;
  const Axes a(args);
  const int64_t row = a.out_row();
  for_each_task(args, a, [&](int64_t plane, int64_t last) {
    thread_local Scratch<S> scratch;
    S* __restrict sum = scratch.reserve(row);
    Divisors<S> divisors;
    for (; plane < last; ++plane) {
      const T* __restrict input = static_cast<const T*>(args.input) + plane * a.in_plane();
      T* __restrict output = static_cast<T*>(args.output) + plane * a.out_plane();
      for_each_output_row(a, [&](int64_t to_row, int64_t z, int64_t y) {
        const S* __restrict divisor = divisors.row(args, a, z, y);
        T* __restrict out = output + to_row;
        if (a.inner >= kManyChannels) return average_windows(a, input, z, y, divisor, sum, out);
        if (a.inner == 1 && a.w.stride > kNarrowWindow) return average_plane_windows(a, input, z, y, divisor, out);
        for (int64_t i = 0; i < row; ++i) sum[i] = S(0);
        for_each_input_row(a, z, y, [&](int64_t from_row, int64_t) {
          const T* __restrict from = input + from_row;
          for_each_cell(a, [&](int64_t to, int64_t x) { sum[to] += to_state(from[x]); });
        });
        SNNLIB_SIMD
        for (int64_t i = 0; i < row; ++i) from_state(sum[i] / divisor[i], out + i);
      });
    }
  });
}

// Gradient of an input by the shares of its windows. Inputs without an event get none, whatever the shares.
template <class S>
inline S shared_out(S value, S share) {
  const S product = value * share;
  return value == S(0) ? S(0) : product;
}

template <class T>
void backward_planes(const PoolBackwardArgs& args) {
  using S = typename StateOf<T>::type;
  const Axes a(args);
  const int64_t row = a.out_row(), cells = a.in_plane();
  // Bound of the rounding error of a window sum, relative to the sum of magnitudes.
  const S tolerance = S(a.d.kernel * a.h.kernel * a.w.kernel) * std::numeric_limits<S>::epsilon();
  // Where an input is in one window at most, its gradient is final as soon as that window is. Loops over few channels
  // are too short for it: there the shares wait for one long loop.
  const bool long_loops = a.inner == 1 || a.inner >= kManyChannels;
  const bool apart = long_loops && a.d.apart() && a.h.apart() && a.w.apart();
  const bool covered = a.d.covered() && a.h.covered() && a.w.covered();
  for_each_task(args, a, [&](int64_t plane, int64_t last) {
    thread_local Scratch<S> scratch;
    S* __restrict sum = scratch.reserve(2 * row + (apart ? 0 : cells));
    S* __restrict sum_abs = sum + row;
    S* __restrict shares = sum_abs + row;
    for (; plane < last; ++plane) {
      const T* __restrict input = static_cast<const T*>(args.input) + plane * cells;
      const T* __restrict grad_output = static_cast<const T*>(args.grad_output) + plane * a.out_plane();
      T* __restrict grad_input = static_cast<T*>(args.grad_input) + plane * cells;
      if (!apart) {
        for (int64_t i = 0; i < cells; ++i) shares[i] = S(0);
      } else if (!covered) {
        // Gradient of cells in no window, with the sign that a sum of no shares gives it.
        SNNLIB_SIMD
        for (int64_t i = 0; i < cells; ++i) from_state(shared_out(to_state(input[i]), S(0)), grad_input + i);
      }
      for_each_output_row(a, [&](int64_t to_row, int64_t z, int64_t y) {
        for (int64_t i = 0; i < 2 * row; ++i) sum[i] = S(0);
        for_each_input_row(a, z, y, [&](int64_t from_row, int64_t) {
          const T* __restrict from = input + from_row;
          for_each_cell(a, [&](int64_t to, int64_t x) {
            const S value = to_state(from[x]);
            sum[to] += value;
            sum_abs[to] += value < S(0) ? -value : value;
          });
        });
        const T* __restrict g = grad_output + to_row;
        // Zero is added as in a sum of shares, which never is -0.
        SNNLIB_SIMD
        for (int64_t i = 0; i < row; ++i) sum[i] = S(0) + pool_share(to_state(g[i]), sum[i], sum_abs[i], tolerance);
        for_each_input_row(a, z, y, [&](int64_t from_row, int64_t) {
          if (apart) {
            const T* __restrict from = input + from_row;
            T* __restrict grad = grad_input + from_row;
            for_each_cell(a,
                          [&](int64_t to, int64_t x) { from_state(shared_out(to_state(from[x]), sum[to]), grad + x); });
          } else {
            S* __restrict share = shares + from_row;
            for_each_cell(a, [&](int64_t to, int64_t x) { share[x] += sum[to]; });
          }
        });
      });
      if (!apart) {
        SNNLIB_SIMD
        for (int64_t i = 0; i < cells; ++i) from_state(shared_out(to_state(input[i]), shares[i]), grad_input + i);
      }
    }
  });
}

void forward(const PoolForwardArgs& a) {
  by_element(a.dtype, a, portable::pool_kernels.forward, [&](auto zero) { forward_planes<decltype(zero)>(a); });
}

void backward(const PoolBackwardArgs& a) {
  by_element(a.dtype, a, portable::pool_kernels.backward, [&](auto zero) { backward_planes<decltype(zero)>(a); });
}

}  // namespace

extern const PoolKernels pool_kernels = {forward, backward};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
