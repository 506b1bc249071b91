// Neurons of one state and the means of their spikes over windows of 2 x 2 cells on CUDA, in one pass over the
// currents: a thread takes the neurons of a window through all time steps. Spikes are never stored. Forward reads
// currents and writes a quarter as many means; backward repeats the recurrence, and shares a window's gradient out to
// its neurons. Math: neurons/linear.h; the bits are those of scan.cu followed by a pool, but for more spikes in a step
// than half precision counts (256 in bfloat16, 2048 in float16): the scan stores them rounded.
#include "scan_input.h"
#include "scan_options.h"
#include "window_places.h"

namespace snnlib {
namespace cuda {
namespace {

// True if the options of most nets have a loop of their own.
template <class S>
constexpr bool kUsual = sizeof(S) == 4;

// The state of every cell, [neurons] in memory; null is zero.
template <class S, int P, bool Last>
__device__ void load_states(const void* states, const WindowPlaces& places, int64_t neuron,
                            LinearState<1, S> (&state)[WindowShape<P, Last>::kCells]) {
  SNNLIB_UNROLL
  for (int n = 0; n < WindowShape<P, Last>::kCells; ++n) {
    const int64_t at = neuron + places.offset<Last>(n / P) + n % P;
    state[n] = {{states ? static_cast<const S*>(states)[at] : S(0)}, S(0)};
  }
}

template <class T, int P, bool Last, class Input>
__global__ void scan_pool_forward_kernel(ScanForwardArgs a, WindowPlaces places, Input input) {
  using S = typename StateOf<T>::type;
  using Shape = WindowShape<P, Last>;
  const int64_t index = thread_index();
  if (index >= places.threads) return;
  const WindowPlace place = places.of<P, Last>(uint32_t(index));
  LinearCoefficients<1, S> coefficients[Shape::kChannels];
  load_coefficients(a, a.period == 1 ? 0 : place.channel, coefficients);
  const ScanInput<Input, S> read_as(input, place.channel);
  LinearState<1, S> state[Shape::kCells];
  load_states<S, P, Last>(a.state_in, places, place.neuron, state);
  by_usual<kUsual<S>>(a.flags, coefficients, [&](const LinearFlags& flags, const auto& k) {
    const T* current = static_cast<const T*>(a.current) + place.cell;
    T* value = static_cast<T*>(a.value) + place.window;
    write_means<T, P, Last>(places, int(a.view.steps), current, value, [&](int n, int v, S x) {
      return linear_step<1, false>(state[n], read_as.read(x), k[Shape::channel(v)], flags, S(1)).spike;
    });
  });
  S* out = static_cast<S*>(a.state_out) + place.neuron;
  SNNLIB_UNROLL
  for (int n = 0; n < Shape::kCells; ++n) out[places.offset<Last>(n / P) + n % P] = state[n].y[0];
}

template <class T, int P, bool Last, class Input>
__global__ void scan_pool_backward_kernel(ScanBackwardArgs a, WindowPlaces places, Chunks chunks, Input input) {
  using S = typename StateOf<T>::type;
  using Shape = WindowShape<P, Last>;
  using Parked = StateInColumn<T, LinearState<1, S>>;
  // The potentials of a step in scratch, two by two.
  using Kept = Pack<S, 2>;
  constexpr int kCells = Shape::kCells, kPairs = kCells / 2;
  const int64_t index = thread_index();
  if (index >= places.threads) return;
  const WindowPlace place = places.of<P, Last>(uint32_t(index));
  LinearCoefficients<1, S> coefficients[Shape::kChannels];
  load_coefficients(a, a.period == 1 ? 0 : place.channel, coefficients);
  using Read = ScanInput<Input, S>;
  Read read_as(input, place.channel);
  const int64_t stride = places.step_stride;
  const T* current = static_cast<const T*>(a.current) + place.cell;
  const T* grad_value = static_cast<const T*>(a.grad_value) + place.window;
  T* grad_current = static_cast<T*>(a.grad_current) + place.cell;
  Kept* kept = scratch<Kept>();
  LinearState<1, S> state[kCells];
  const auto column = [&](int64_t step, int n) {
    return grad_current + step * stride + places.offset<Last>(n / P) + n % P;
  };
  // Repeats steps [first, first + count), and keeps the potentials before the reset where Keep.
  const auto repeat = [&](int64_t first, int count, auto keep) {
    constexpr bool Keep = decltype(keep)::value;
    by_usual<kUsual<S>>(a.flags, coefficients, [&](const LinearFlags& flags, const auto& k) {
      const T* at = current + first * stride;
      Kept* to = kept;
      for_each_group<kAhead<T>>(count, [&](auto size, int) {
        constexpr int n = decltype(size)::value;
        Pack<T, P> cells[n][Shape::kPacks];
        SNNLIB_UNROLL
        for (int j = 0; j < n; ++j, at += stride) places.read<T, P, Last>(at, cells[j]);
        SNNLIB_UNROLL
        for (int j = 0; j < n; ++j, to += Keep ? kPairs * kScratchThreads : 0) {
          Kept potentials[kPairs];
          SNNLIB_UNROLL
          for (int pack = 0; pack < Shape::kPacks; ++pack) {
            S x[P];
            to_states(cells[j][pack], x);
            SNNLIB_UNROLL
            for (int v = 0; v < P; ++v) {
              const int c = pack * P + v;
              potentials[c / 2].lane[c % 2] =
                  linear_step<1, false>(state[c], read_as.read(x[v]), k[Shape::channel(v)], flags, S(1)).raw[0];
            }
          }
          SNNLIB_UNROLL
          for (int i = 0; i < kPairs && Keep; ++i) write_pack(&to[i * kScratchThreads], potentials[i]);
        }
      });
    });
  };

  load_states<S, P, Last>(a.state_in, places, place.neuron, state);
  const int64_t last = chunks.last;
  for (int64_t chunk = 0; chunk < last; ++chunk) {
    const int64_t first = chunk * chunks.steps;
    SNNLIB_UNROLL
    for (int n = 0; n < kCells && chunk > 0; ++n) Parked::store(column(first, n), stride, state[n]);
    repeat(first, chunks.steps, std::false_type{});
  }
  LinearState<1, S> given[kCells];
  load_states<S, P, Last>(a.grad_state_out, places, place.neuron, given);
  LinearCarry<1, S> carry[kCells];
  SNNLIB_UNROLL
  for (int n = 0; n < kCells; ++n) carry[n] = {{given[n].y[0]}, S(0)};
  for (int64_t chunk = last; chunk >= 0; --chunk) {
    const int64_t first = chunk * chunks.steps;
    const int count = chunk == last ? int(a.view.steps - first) : chunks.steps;
    if (chunk == 0) {
      load_states<S, P, Last>(a.state_in, places, place.neuron, state);
    } else if (chunk < last) {
      SNNLIB_UNROLL
      for (int n = 0; n < kCells; ++n) state[n] = Parked::load(column(first, n), stride);
    }
    repeat(first, count, std::true_type{});
    LinearCarry<1, S> after[kCells];
    SNNLIB_UNROLL
    for (int n = 0; n < kCells; ++n) after[n] = carry[n];
    const Read read_before = read_as;
    const auto back = [&](const LinearFlags& flags, const auto& k, const auto& reciprocal) {
      SNNLIB_UNROLL
      for (int n = 0; n < kCells; ++n) carry[n] = after[n];
      read_as = read_before;
      const T* x_at = current + (first + count - 1) * stride;
      const T* q = grad_value + (first + count - 1) * (stride / 4);
      T* out = grad_current + (first + count - 1) * stride;
      const Kept* from = kept + count * kPairs * kScratchThreads;
      for_each_group<kAhead<T>>(count, [&](auto size, int) {
        constexpr int n = decltype(size)::value;
        Pack<T, Shape::kWindows> grads[n];
        SNNLIB_UNROLL
        for (int j = 0; j < n; ++j, q -= stride / 4) grads[j] = read_pack<Pack<T, Shape::kWindows>>(q);
        Pack<T, P> cells[n][Shape::kPacks];
        SNNLIB_UNROLL
        for (int j = 0; j < n && Read::kNormalizes; ++j, x_at -= stride) places.read<T, P, Last>(x_at, cells[j]);
        SNNLIB_UNROLL
        for (int j = 0; j < n; ++j, out -= stride) {
          from -= kPairs * kScratchThreads;
          Kept potentials[kPairs];
          SNNLIB_UNROLL
          for (int i = 0; i < kPairs; ++i) potentials[i] = read_pack<Kept>(&from[i * kScratchThreads]);
          // The share of a cell, rounded as a pool stores it.
          S share[Shape::kWindows];
          to_states(grads[j], share);
          SNNLIB_UNROLL
          for (int w = 0; w < Shape::kWindows; ++w) share[w] = share[w] * S(0.25);
          to_states(to_pack<T>(share), share);
          SNNLIB_UNROLL
          for (int pack = 0; pack < Shape::kPacks; ++pack) {
            S x[P], grad[P];
            if (Read::kNormalizes) to_states(cells[j][pack], x);
            SNNLIB_UNROLL
            for (int v = 0; v < P; ++v) {
              const int c = pack * P + v;
              LinearSeen<1, S> seen = {};
              seen.raw[0] = potentials[c / 2].lane[c % 2];
              LinearCoefficients<1, S> none;
              grad[v] = linear_back<1, false, false>(carry[c], share[Shape::window(v)], seen, k[Shape::channel(v)],
                                                     flags, S(1), none, reciprocal);
              grad[v] = read_as.back(grad[v], x[v]);
            }
            if (read_as.stores()) store_pack(out, places.offset<Last>(pack), to_pack<T>(grad));
          }
        }
        read_as.end_group();
      });
    };
    by_usual<kUsual<S>>(a.flags, coefficients, [&](const LinearFlags& usual, const auto& k) {
      by_surrogate<kUsual<S>, S>(usual,
                                 [&](const LinearFlags& flags, const auto& reciprocal) { back(flags, k, reciprocal); });
    });
  }
  read_as.store_sums(index, places.threads);
  S* out = static_cast<S*>(a.grad_state_in) + place.neuron;
  SNNLIB_UNROLL
  for (int n = 0; n < kCells; ++n) out[places.offset<Last>(n / P) + n % P] = carry[n].g[0];
}

template <class T, class Shape, class Input = AsTheyAre>
void launch_forward(const ScanPoolForwardArgs& a, const Input& input = {}) {
  constexpr int P = Shape::kLanes;
  const WindowPlaces places = WindowPlaces::split<P, Shape::kLast>("scan_pool_forward", a.planes, a.view);
  launch("scan_pool_forward", scan_pool_forward_kernel<T, P, Shape::kLast, Input>, places.threads, a.executor,
         Scratch{}, a, places, input);
}

template <class T>
void forward_as(const ScanPoolForwardArgs& a) {
  by_layout<T>(a.planes, [&](auto shape) { launch_forward<T, decltype(shape)>(a); });
}

template <class T, class Shape, class Input = AsTheyAre>
void launch_backward(const ScanPoolBackwardArgs& a, const Input& input = {}) {
  using S = typename StateOf<T>::type;
  constexpr int P = Shape::kLanes, kBytes = Shape::kCells * int(sizeof(S));
  static_assert((kScratchBytes / kBytes + 2) / 2 * sizeof(T) >= sizeof(LinearState<1, S>),
                "a chunk has room for a state");
  const WindowPlaces places = WindowPlaces::split<P, Shape::kLast>("scan_pool_backward", a.planes, a.view);
  const Chunks chunks = even_chunks<kBytes>(a.view.steps);
  launch("scan_pool_backward", scan_pool_backward_kernel<T, P, Shape::kLast, Input>, places.threads, a.executor,
         Scratch{chunks.steps * kBytes}, a, places, chunks, input);
}

template <class T>
void backward_as(const ScanPoolBackwardArgs& a) {
  by_layout<T>(a.planes, [&](auto shape) { launch_backward<T, decltype(shape)>(a); });
}

void forward(const ScanPoolForwardArgs& a) {
  by_dtype(a.dtype, a, forward_as<float>, forward_as<double>, forward_as<__nv_bfloat16>, forward_as<__half>);
}

void backward(const ScanPoolBackwardArgs& a) {
  by_dtype(a.dtype, a, backward_as<float>, backward_as<double>, backward_as<__nv_bfloat16>, backward_as<__half>);
}

void forward_normalized(const Normalized<ScanPoolForwardArgs>& a) {
  if (a.planes.height == 0) return normalized_forward(a, a.input);
  launch_forward<float, WindowShape<1, true>>(a, a.input);
}

void backward_normalized(const Normalized<ScanPoolBackwardArgs>& a) {
  if (a.planes.height == 0) return normalized_backward(a, a.input);
  launch_backward<float, WindowShape<1, true>>(a, a.input);
}

}  // namespace

extern const ScanPoolKernels scan_pool_kernels = {forward, backward};
extern const NormalizedKernels normalized_kernels = {forward_normalized, backward_normalized};

}  // namespace cuda
}  // namespace snnlib
