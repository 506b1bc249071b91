// SRM neurons and the means of their spikes over windows of 2 x 2 cells on CUDA, in one pass over the currents: a
// thread takes the neurons of a window through all time steps, and spikes are never stored. Backward repeats the
// recurrence, shares the gradient of a window out to the neurons that fire in it, and walks back like srm_backward.h.
// Math: neurons/srm.h and pool/windows.h; the bits are those of srm.cu followed by a pool.
#include <cfloat>

#include "snnlib/loop/srm.h"
#include "snnlib/pool/windows.h"
#include "srm_backward.h"
#include "window_places.h"

namespace snnlib {
namespace cuda {
namespace {

template <class S, int C, class Args>
__device__ void load_limits(const Args& a, uint32_t channel, S (&limit)[C]) {
  SNNLIB_UNROLL
  for (int c = 0; c < C; ++c) {
    limit[c] = static_cast<const S*>(a.coefficients)[a.period == 1 ? 0 : channel + c];
  }
}

template <class T, int P, bool Last>
__global__ void srm_pool_forward_kernel(SrmForwardArgs a, SrmDecay<typename StateOf<T>::type> k, WindowPlaces places) {
  using S = typename StateOf<T>::type;
  using Shape = WindowShape<P, Last>;
  const int64_t index = thread_index();
  if (index >= places.threads) return;
  const WindowPlace place = places.of<P, Last>(uint32_t(index));
  S limit[Shape::kChannels];
  load_limits(a, place.channel, limit);
  SrmState<S> state[Shape::kCells] = {};
  const T* current = static_cast<const T*>(a.current) + place.cell;
  T* means = static_cast<T*>(a.spikes) + place.window;
  write_means<T, P, Last>(places, int(a.view.steps), current, means,
                          [&](int n, int v, S x) { return srm_step(state[n], x, limit[Shape::channel(v)], k).spike; });
}

template <class T, int P, bool Last, bool Input>
__global__ void srm_pool_backward_kernel(SrmBackwardArgs a, SrmDecay<typename StateOf<T>::type> k, WindowPlaces places,
                                         Chunks chunks) {
  using S = typename StateOf<T>::type;
  using Shape = WindowShape<P, Last>;
  using Parked = StateInColumn<T, SrmState<S>>;
  // Values of a step in scratch: q slope of two cells, or q slope and q gain of one.
  using Kept = Pack<S, 2>;
  constexpr int kCells = Shape::kCells, kKept = Input ? kCells : kCells / 2;
  const int64_t index = thread_index();
  if (index >= places.threads) return;
  const WindowPlace place = places.of<P, Last>(uint32_t(index));
  S limit[Shape::kChannels];
  load_limits(a, place.channel, limit);
  const S clamp = S(a.flags.grad_clamp), tolerance = S(4) * (sizeof(S) == 8 ? S(DBL_EPSILON) : S(FLT_EPSILON));
  const int64_t stride = places.step_stride;
  const T* current = static_cast<const T*>(a.current) + place.cell;
  const T* grad_means = static_cast<const T*>(a.grad_spikes) + place.window;
  // Where it is not wanted, the input signal of each step overwrites it.
  T* weight_signal = static_cast<T*>(a.weight_signal ? a.weight_signal : a.input_signal) + place.cell;
  T* input_signal = Input ? static_cast<T*>(a.input_signal) + place.cell : weight_signal;
  Kept* kept = scratch<Kept>();
  SrmState<S> state[kCells] = {};
  const auto column = [&](int64_t step, int n) {
    return weight_signal + step * stride + places.offset<Last>(n / P) + n % P;
  };
  // Repeats a chunk for the state behind it.
  const auto skip = [&](int64_t first) {
    const T* at = current + first * stride;
    for_each_group<kAhead<T>>(chunks.steps, [&](auto size, int) {
      constexpr int n = decltype(size)::value;
      Pack<T, P> cells[n][Shape::kPacks];
      SNNLIB_UNROLL
      for (int j = 0; j < n; ++j, at += stride) places.read<T, P, Last>(at, cells[j]);
      SNNLIB_UNROLL
      for (int j = 0; j < n; ++j) {
        SNNLIB_UNROLL
        for (int c = 0; c < kCells; ++c) {
          srm_step(state[c], to_state(cells[j][c / P].lane[c % P]), limit[Shape::channel(c % P)], k);
        }
      }
    });
  };
  // Repeats steps [first, first + count) and keeps what the credit needs of them. Gives false where a reciprocal may
  // not be right, which never happens to exact ones.
  const auto forwards = [&](int64_t first, int count, auto fast) {
    constexpr bool kFast = decltype(fast)::value;
    float doubt = 0.0f;
    SNNLIB_UNROLL
    for (int c = 0; c < kCells; ++c) {
      const S at_limit = limit[Shape::channel(c % P)];
      if (!(state[c].u < at_limit && at_limit > S(0))) doubt = 1.0f;
    }
    const T* at = current + first * stride;
    const T* q = grad_means + first * (stride / 4);
    Kept* to = kept;
    for_each_group<kAhead<T>>(count, [&](auto size, int) {
      constexpr int n = decltype(size)::value;
      Pack<T, P> cells[n][Shape::kPacks];
      Pack<T, Shape::kWindows> grads[n];
      SNNLIB_UNROLL
      for (int j = 0; j < n; ++j, at += stride, q += stride / 4) {
        places.read<T, P, Last>(at, cells[j]);
        grads[j] = read_pack<Pack<T, Shape::kWindows>>(q);
      }
      SNNLIB_UNROLL
      for (int j = 0; j < n; ++j, to += kKept * kScratchThreads) {
        SrmStep<S> out[kCells];
        S sum[Shape::kWindows] = {}, share[Shape::kWindows];
        SNNLIB_UNROLL
        for (int c = 0; c < kCells; ++c) {
          out[c] = srm_step(state[c], to_state(cells[j][c / P].lane[c % P]), limit[Shape::channel(c % P)], k);
          sum[Shape::window(c % P)] += out[c].spike;
        }
        // dL/ds of the neurons that fire in a window, rounded as a pool stores it.
        to_states(grads[j], share);
        SNNLIB_UNROLL
        for (int w = 0; w < Shape::kWindows; ++w) share[w] = S(0) + pool_share(share[w], sum[w], sum[w], tolerance);
        to_states(to_pack<T>(share), share);
        Kept values[kKept];
        SNNLIB_UNROLL
        for (int c = 0; c < kCells; ++c) {
          const bool fired = out[c].u >= limit[Shape::channel(c % P)];
          const S given = share[Shape::window(c % P)];
          S slope, gain = S(0);
          if constexpr (kFast) {
            float of_slope, of_gain = 0.0f;
            slope = srm_slope(out[c].delta_u, clamp, FastReciprocal{of_slope});
            if (Input) gain = fmaxf(srm_gain(out[c].delta_ut, FastReciprocal{of_gain}), 0.0f);
            const float error = Input ? of_slope + of_gain : of_slope;
            if (fired) doubt += error;
          } else {
            slope = srm_slope(out[c].delta_u, clamp, RiseReciprocal());
            if (Input) gain = srm_gain(out[c].delta_ut, RiseReciprocal());
          }
          const S amount = fired ? given * slope : no_spike(S());
          if (Input) {
            values[c] = {{amount, given * gain}};
          } else {
            values[c / 2].lane[c % 2] = amount;
          }
        }
        SNNLIB_UNROLL
        for (int i = 0; i < kKept; ++i) write_pack(&to[i * kScratchThreads], values[i]);
      }
    });
    return doubt < FastReciprocal::kMostDoubt;
  };
  SrmCredit<S> credit[kCells] = {};
  const auto backwards = [&](int64_t first, int count) {
    T* of_weights = weight_signal + (first + count - 1) * stride;
    T* of_inputs = input_signal + (first + count - 1) * stride;
    const Kept* from = kept + count * kKept * kScratchThreads;
    for_each_group<kAhead<T>>(count, [&](auto size, int) {
      constexpr int n = decltype(size)::value;
      SNNLIB_UNROLL
      for (int j = 0; j < n; ++j, of_weights -= stride, of_inputs -= stride) {
        from -= kKept * kScratchThreads;
        Kept values[kKept];
        SNNLIB_UNROLL
        for (int i = 0; i < kKept; ++i) values[i] = read_pack<Kept>(&from[i * kScratchThreads]);
        SNNLIB_UNROLL
        for (int pack = 0; pack < Shape::kPacks; ++pack) {
          S to_weights[P], to_inputs[P];
          SNNLIB_UNROLL
          for (int v = 0; v < P; ++v) {
            const int c = pack * P + v;
            const S amount = Input ? values[c].lane[0] : values[c / 2].lane[c % 2];
            const bool fired = is_spike(amount);
            srm_credit_weight(credit[c], fired, amount, k);
            to_weights[v] = credit[c].au;
            if (Input) {
              srm_credit_input(credit[c], fired, values[c].lane[1], k);
              to_inputs[v] = credit[c].bg;
            }
          }
          store_pack(of_weights, places.offset<Last>(pack), to_pack<T>(to_weights));
          if (Input) store_pack(of_inputs, places.offset<Last>(pack), to_pack<T>(to_inputs));
        }
      }
    });
  };

  const int64_t last = chunks.last;
  for (int64_t chunk = 0; chunk < last; ++chunk) {
    SNNLIB_UNROLL
    for (int n = 0; n < kCells && chunk > 0; ++n) Parked::store(column(chunk * chunks.steps, n), stride, state[n]);
    skip(chunk * chunks.steps);
  }
  for (int64_t chunk = last; chunk >= 0; --chunk) {
    const int64_t first = chunk * chunks.steps;
    const int count = chunk == last ? int(a.view.steps - first) : chunks.steps;
    SNNLIB_UNROLL
    for (int n = 0; n < kCells && chunk < last; ++n) {
      state[n] = chunk == 0 ? SrmState<S>{} : Parked::load(column(first, n), stride);
    }
    if constexpr (sizeof(S) == 4) {
      SrmState<S> before[kCells];
      SNNLIB_UNROLL
      for (int n = 0; n < kCells; ++n) before[n] = state[n];
      if (!forwards(first, count, std::true_type{})) {
        SNNLIB_UNROLL
        for (int n = 0; n < kCells; ++n) state[n] = before[n];
        forwards(first, count, std::false_type{});
      }
    } else {
      forwards(first, count, std::false_type{});
    }
    backwards(first, count);
  }
}

template <class T>
void forward_as(const SrmPoolForwardArgs& a) {
  by_layout<T>(a.planes, [&](auto shape) {
    constexpr int P = decltype(shape)::kLanes;
    constexpr bool Last = decltype(shape)::kLast;
    const WindowPlaces places = WindowPlaces::split<P, Last>("srm_pool_forward", a.planes, a.view);
    launch("srm_pool_forward", srm_pool_forward_kernel<T, P, Last>, places.threads, a.executor, Scratch{}, a,
           srm_decay<typename StateOf<T>::type>(a.flags), places);
  });
}

template <class T, int P, bool Last, bool Input>
void run_backward(const SrmPoolBackwardArgs& a) {
  using S = typename StateOf<T>::type;
  constexpr int kBytes = WindowShape<P, Last>::kCells * (Input ? 2 : 1) * int(sizeof(S));
  static_assert((kScratchBytes / kBytes + 2) / 2 * sizeof(T) >= sizeof(SrmState<S>), "a chunk has room for a state");
  const WindowPlaces places = WindowPlaces::split<P, Last>("srm_pool_backward", a.planes, a.view);
  const Chunks chunks = even_chunks<kBytes>(a.view.steps);
  launch("srm_pool_backward", srm_pool_backward_kernel<T, P, Last, Input>, places.threads, a.executor,
         Scratch{chunks.steps * kBytes}, a, srm_decay<S>(a.flags), places, chunks);
}

template <class T>
void backward_as(const SrmPoolBackwardArgs& a) {
  if (a.view.steps == 0) return;
  if (a.input_signal) {
    // With both signals two channels would halve the steps of a chunk: from T = 13 on currents would be read twice.
    return a.planes.channels_last ? run_backward<T, 1, true, true>(a) : run_backward<T, 2, false, true>(a);
  }
  if (!a.weight_signal) return;
  by_layout<T>(a.planes,
               [&](auto shape) { run_backward<T, decltype(shape)::kLanes, decltype(shape)::kLast, false>(a); });
}

void forward(const SrmPoolForwardArgs& a) {
  by_dtype(a.dtype, a, forward_as<float>, forward_as<double>, forward_as<__nv_bfloat16>, forward_as<__half>);
}

void backward(const SrmPoolBackwardArgs& a) {
  by_dtype(a.dtype, a, backward_as<float>, backward_as<double>, backward_as<__nv_bfloat16>, backward_as<__half>);
}

}  // namespace

extern const SrmPoolKernels srm_pool_kernels = {forward, backward};

}  // namespace cuda
}  // namespace snnlib
