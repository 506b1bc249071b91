// Neurons of the linear family on CUDA: one thread walks through all time steps of its neuron, with state and
// coefficients in registers. Math: neurons/linear.h.
//
// Backward repeats the forward recurrence of a chunk of steps and keeps what the adjoint needs of it in shared memory;
// sequences longer than a chunk read the current a second time, to find the state at the start of every chunk.
#include "chunks.h"
#include "element.h"
#include "launch.h"
#include "scan_input.h"
#include "scan_options.h"

namespace snnlib {
namespace cuda {
namespace {

// Steps that a thread loads before it needs the first: enough loads on their way to hide the memory's latency. Neurons
// of several states are bound by arithmetic, and float64 is for gradient checks.
template <class T, int K>
constexpr int kAheadForward = sizeof(T) == 8 ? 1
                              : K == 1       ? 8
                                             : 4;
template <class T, int K>
constexpr int kAheadBackward = sizeof(T) == 8   ? 1
                               : K > 1          ? 2
                               : sizeof(T) == 4 ? 6
                                                : 8;

// True if two neurons can share a thread, and with it loads, stores and addresses: where arithmetic and not the memory
// would else set the pace.
template <class T, int K, bool Next, bool Learn>
constexpr bool kPairs = sizeof(T) == 2 && K == 1 && !Next && !Learn;

// True if the options of most nets have a loop of their own: neurons that are bound by memory but for this.
template <class S, int K, bool Next, bool Learn>
constexpr bool kHasUsual = sizeof(S) == 4 && K == 1 && !Next && !Learn;

// States of neurons lie [K + Next + Rests][neurons], with what is left of a refractory time where there is one; null is
// zero.
template <class S, int K, bool Next, bool Rests>
__device__ LinearState<K, S> state_at(const void* states, int64_t neurons, int64_t neuron) {
  LinearState<K, S> state = {};
  if (!states) return state;
  const S* p = static_cast<const S*>(states) + neuron;
  SNNLIB_UNROLL
  for (int s = 0; s < K; ++s) state.y[s] = p[s * neurons];
  if (Next) state.fired = p[K * neurons];
  if (Rests) state.left = p[(K + Next) * neurons];
  return state;
}

template <class T, int K, bool Next, bool Quadratic, int V, bool Rests, class Input>
__global__ void forward_kernel(ScanForwardArgs a, Places places, Input input) {
  using S = typename StateOf<T>::type;
  const int64_t neurons = a.view.outer * a.view.inner, neuron = thread_index() * V;
  if (neuron >= neurons) return;
  const NeuronPlace place = places.of(a.view, neuron);
  using Read = ScanInput<Input, S>;
  const Read read_as(input, places.constants(place));
  LinearCoefficients<K, S> coefficients[V];
  load_coefficients(a, a.period == 1 ? 0 : places.constants(place), coefficients);
  LinearState<K, S> state[V];
  SNNLIB_UNROLL
  for (int v = 0; v < V; ++v) state[v] = state_at<S, K, Next, Rests>(a.state_in, neurons, neuron + v);
  const int64_t stride = a.view.step_stride, start = a.view.offset(place.outer, 0, place.inner);
  by_usual<kHasUsual<S, K, Next, false> && !Rests, Rests, Quadratic>(
      a.flags, coefficients, [&](const LinearFlags& flags, const auto& k) {
        const T* current = static_cast<const T*>(a.current) + start;
        T* value = static_cast<T*>(a.value) + start;
        for_each_group<kAheadForward<T, K>>(int(a.view.steps), [&](auto size, int) {
          constexpr int n = decltype(size)::value;
          Pack<T, V> read[n];
          SNNLIB_UNROLL
          for (int j = 0; j < n; ++j, current += stride) read[j] = read_pack<Pack<T, V>>(current);
          SNNLIB_UNROLL
          for (int j = 0; j < n; ++j, value += stride) {
            S x[V];
            to_states(read[j], x);
            SNNLIB_UNROLL
            for (int v = 0; v < V; ++v) {
              const LinearStep<K, S> out =
                  linear_step<K, Next, Quadratic>(state[v], read_as.read(x[v]), k[v], flags, S(1));
              x[v] = flags.membrane ? out.h[0] : out.spike;
            }
            store_pack(value, 0, to_pack<T>(x));
          }
        });
      });
  S* out = static_cast<S*>(a.state_out) + neuron;
  SNNLIB_UNROLL
  for (int v = 0; v < V; ++v) {
    SNNLIB_UNROLL
    for (int s = 0; s < K; ++s) out[s * neurons + v] = state[v].y[s];
    if (Next) out[K * neurons + v] = state[v].fired;
    if (Rests) out[(K + Next) * neurons + v] = state[v].left;
  }
}

// Values per step and neuron that wait in shared memory for the backward pass: h before the reset, with Next the last
// step's spike, with Learn or Quadratic the state before the step, and with Rests what was left of the refractory time.
template <int K, bool Next, bool Learn, bool Quadratic, bool Rests>
constexpr int kKept = K + (Next ? 1 : 0) + (Learn || Quadratic ? K : 0) + (Rests ? 1 : 0);

template <class T, int K, bool Next, bool Learn, bool Quadratic, int V, bool Rests, class Input>
__global__ void backward_kernel(ScanBackwardArgs a, Places places, Chunks chunks, Input input) {
  using S = typename StateOf<T>::type;
  constexpr int kValues = kKept<K, Next, Learn, Quadratic, Rests>;
  constexpr bool kUsual = kHasUsual<S, K, Next, Learn> && !Rests;
  using Parked = StateInColumn<T, LinearState<K, S>>;
  using Kept = Pack<S, V>;
  const int64_t neurons = a.view.outer * a.view.inner, neuron = thread_index() * V;
  if (neuron >= neurons) return;
  const NeuronPlace place = places.of(a.view, neuron);
  using Read = ScanInput<Input, S>;
  Read read_as(input, places.constants(place));
  LinearCoefficients<K, S> coefficients[V];
  load_coefficients(a, a.period == 1 ? 0 : places.constants(place), coefficients);
  const int64_t stride = a.view.step_stride, start = a.view.offset(place.outer, 0, place.inner);
  const T* current = static_cast<const T*>(a.current) + start;
  const T* grad_value = static_cast<const T*>(a.grad_value) + start;
  T* grad_current = static_cast<T*>(a.grad_current) + start;
  Kept* kept = scratch<Kept>();

  LinearState<K, S> state[V];
  const auto begin = [&] {
    SNNLIB_UNROLL
    for (int v = 0; v < V; ++v) state[v] = state_at<S, K, Next, Rests>(a.state_in, neurons, neuron + v);
  };
  // Repeats steps [first, first + count), and keeps what the adjoint needs of them where Keep.
  const auto repeat = [&](int64_t first, int count, auto keep) {
    constexpr bool Keep = decltype(keep)::value;
    by_usual<kUsual, Rests, Quadratic>(a.flags, coefficients, [&](const LinearFlags& flags, const auto& k) {
      const T* at = current + first * stride;
      Kept* to = kept;
      for_each_group<kAheadBackward<T, K>>(count, [&](auto size, int) {
        constexpr int n = decltype(size)::value;
        Pack<T, V> read[n];
        SNNLIB_UNROLL
        for (int j = 0; j < n; ++j, at += stride) read[j] = read_pack<Pack<T, V>>(at);
        SNNLIB_UNROLL
        for (int j = 0; j < n; ++j, to += Keep ? kValues * kScratchThreads : 0) {
          S x[V];
          to_states(read[j], x);
          Kept values[kValues];
          SNNLIB_UNROLL
          for (int v = 0; v < V; ++v) {
            if (Next) values[K].lane[v] = state[v].fired;
            if (Rests) values[kValues - 1].lane[v] = state[v].left;
            SNNLIB_UNROLL
            for (int s = 0; s < K && (Learn || Quadratic); ++s) values[K + Next + s].lane[v] = state[v].y[s];
            const LinearStep<K, S> out =
                linear_step<K, Next, Quadratic>(state[v], read_as.read(x[v]), k[v], flags, S(1));
            SNNLIB_UNROLL
            for (int s = 0; s < K; ++s) values[s].lane[v] = out.raw[s];
          }
          SNNLIB_UNROLL
          for (int i = 0; i < kValues && Keep; ++i) write_pack(&to[i * kScratchThreads], values[i]);
        }
      });
    });
  };

  begin();
  const int64_t last = chunks.last;
  for (int64_t chunk = 0; chunk < last; ++chunk) {
    const int64_t first = chunk * chunks.steps;
    SNNLIB_UNROLL
    for (int v = 0; v < V && chunk > 0; ++v) Parked::store(grad_current + first * stride + v, stride, state[v]);
    repeat(first, chunks.steps, std::false_type{});
  }
  LinearCarry<K, S> carry[V] = {};
  LinearCoefficients<K, S> sum[V] = {};
  SNNLIB_UNROLL
  for (int v = 0; v < V; ++v) {
    const LinearState<K, S> given = state_at<S, K, Next, Rests>(a.grad_state_out, neurons, neuron + v);
    SNNLIB_UNROLL
    for (int s = 0; s < K; ++s) carry[v].g[s] = given.y[s];
    carry[v].qs = given.fired;
  }
  for (int64_t chunk = last; chunk >= 0; --chunk) {
    const int64_t first = chunk * chunks.steps;
    const int count = chunk == last ? int(a.view.steps - first) : chunks.steps;
    if (chunk == 0) {
      begin();
    } else if (chunk < last) {
      SNNLIB_UNROLL
      for (int v = 0; v < V; ++v) state[v] = Parked::load(grad_current + first * stride + v, stride);
    }
    repeat(first, count, std::true_type{});
    LinearCarry<K, S> after[V];
    SNNLIB_UNROLL
    for (int v = 0; v < V; ++v) after[v] = carry[v];
    const Read read_before = read_as;
    const auto back = [&](const LinearFlags& flags, const auto& k, const auto& reciprocal) {
      SNNLIB_UNROLL
      for (int v = 0; v < V; ++v) carry[v] = after[v];
      read_as = read_before;
      int64_t read_at = (first + count - 1) * stride, write_at = read_at;
      const Kept* from = kept + count * kValues * kScratchThreads;
      for_each_group<kAheadBackward<T, K>>(count, [&](auto size, int) {
        constexpr int n = decltype(size)::value;
        Pack<T, V> q[n], x[n];
        SNNLIB_UNROLL
        for (int j = 0; j < n; ++j, read_at -= stride) {
          q[j] = load_pack<T, V>(grad_value, read_at);
          if (Learn || Read::kNormalizes) x[j] = load_pack<T, V>(current, read_at);
        }
        SNNLIB_UNROLL
        for (int j = 0; j < n; ++j, write_at -= stride) {
          from -= kValues * kScratchThreads;
          Kept values[kValues];
          SNNLIB_UNROLL
          for (int i = 0; i < kValues; ++i) values[i] = read_pack<Kept>(&from[i * kScratchThreads]);
          S given[V], given_input[V], grad[V];
          to_states(q[j], given);
          if (Learn || Read::kNormalizes) to_states(x[j], given_input);
          SNNLIB_UNROLL
          for (int v = 0; v < V; ++v) {
            LinearSeen<K, S> seen = {};
            SNNLIB_UNROLL
            for (int s = 0; s < K; ++s) seen.raw[s] = values[s].lane[v];
            if (Next) seen.fired_before = values[K].lane[v];
            if (Rests) seen.left = values[kValues - 1].lane[v];
            if (Learn || Quadratic) {
              SNNLIB_UNROLL
              for (int s = 0; s < K; ++s) seen.y[s] = values[K + Next + s].lane[v];
            }
            if (Learn) seen.x = given_input[v];
            grad[v] =
                linear_back<K, Next, Learn, Quadratic>(carry[v], given[v], seen, k[v], flags, S(1), sum[v], reciprocal);
            grad[v] = read_as.back(grad[v], given_input[v]);
          }
          if (read_as.stores()) store_pack(grad_current, write_at, to_pack<T>(grad));
        }
        read_as.end_group();
      });
    };
    by_usual<kUsual, Rests, Quadratic>(a.flags, coefficients, [&](const LinearFlags& usual, const auto& k) {
      by_surrogate<kUsual, S>(usual,
                              [&](const LinearFlags& flags, const auto& reciprocal) { back(flags, k, reciprocal); });
    });
  }
  read_as.store_sums(thread_index(), neurons / V);
  SNNLIB_UNROLL
  for (int v = 0; v < V; ++v) {
    S* out = static_cast<S*>(a.grad_state_in) + neuron + v;
    SNNLIB_UNROLL
    for (int s = 0; s < K; ++s) out[s * neurons] = carry[v].g[s];
    if (Next) out[K * neurons] = carry[v].qs;
    if (Rests) out[(K + Next) * neurons] = S(0);
    if (!Learn || !a.grad_coefficients) continue;
    S* grads = static_cast<S*>(a.grad_coefficients) + neuron + v;
    SNNLIB_UNROLL
    for (int row = 0; row < LinearRows<K>::count; ++row) grads[row * neurons] = sum[v].row[row];
  }
}

template <class T, int K, bool Next, bool Quadratic, int V, bool Rests = false, class Input = AsTheyAre>
void launch_forward_packs(const ScanForwardArgs& a, const Input& input = {}) {
  launch("scan_forward", forward_kernel<T, K, Next, Quadratic, V, Rests, Input>, a.view.outer * a.view.inner / V,
         a.executor, Scratch{}, a, Places(a.view, period_of(a, input)), input);
}

template <class T, int K, bool Next>
void launch_forward(const ScanForwardArgs& a) {
  if constexpr (kPairs<T, K, Next, false>) {
    if (fits_packs<T, 2>(a.view, {a.current, a.value})) return launch_forward_packs<T, K, Next, false, 2>(a);
  }
  launch_forward_packs<T, K, Next, false, 1>(a);
}

template <class T, int K, bool Next, bool Learn, bool Quadratic, int V, bool Rests = false, class Input = AsTheyAre>
void launch_backward_packs(const ScanBackwardArgs& a, const Input& input = {}) {
  using S = typename StateOf<T>::type;
  constexpr int kBytes = kKept<K, Next, Learn, Quadratic, Rests> * V * int(sizeof(S));
  static_assert((kScratchBytes / kBytes + 2) / 2 * sizeof(T) >= sizeof(LinearState<K, S>),
                "a chunk has room for a state");
  const Chunks chunks = even_chunks<kBytes>(a.view.steps);
  launch("scan_backward", backward_kernel<T, K, Next, Learn, Quadratic, V, Rests, Input>,
         a.view.outer * a.view.inner / V, a.executor, Scratch{chunks.steps * kBytes}, a,
         Places(a.view, period_of(a, input)), chunks, input);
}

template <class T, int K, bool Next, bool Learn>
void launch_backward(const ScanBackwardArgs& a) {
  if constexpr (kPairs<T, K, Next, Learn>) {
    if (fits_packs<T, 2>(a.view, {a.current, a.grad_value, a.grad_current})) {
      return launch_backward_packs<T, K, Next, Learn, false, 2>(a);
    }
  }
  launch_backward_packs<T, K, Next, Learn, false, 1>(a);
}

// Refractory times are for resets in the same step, and half precision is widened for them: ops/scan_linear.py.
template <class T, int K>
void forward_states(const ScanForwardArgs& a) {
  if constexpr (sizeof(T) > 2) {
    if (a.flags.refractory && !(K > 1 && a.flags.quadratic))
      return launch_forward_packs<T, K, false, false, 1, true>(a);
  }
  if constexpr (K > 1) {
    if (a.flags.refractory) return launch_forward_packs<T, K, false, true, 1, true>(a);
    if (a.flags.quadratic) return launch_forward_packs<T, K, false, true, 1>(a);
  }
  a.flags.reset_next ? launch_forward<T, K, true>(a) : launch_forward<T, K, false>(a);
}

template <class T, int K, bool Learn>
void backward_learn(const ScanBackwardArgs& a) {
  if constexpr (sizeof(T) > 2) {
    if (a.flags.refractory && !(K > 1 && a.flags.quadratic))
      return launch_backward_packs<T, K, false, Learn, false, 1, true>(a);
  }
  if constexpr (K > 1) {
    if (a.flags.refractory) return launch_backward_packs<T, K, false, Learn, true, 1, true>(a);
    if (a.flags.quadratic) return launch_backward_packs<T, K, false, Learn, true, 1>(a);
  }
  a.flags.reset_next ? launch_backward<T, K, true, Learn>(a) : launch_backward<T, K, false, Learn>(a);
}

template <class T, int K>
void backward_states(const ScanBackwardArgs& a) {
  if constexpr (sizeof(T) == 2) {
    if (a.grad_coefficients) throw std::runtime_error("scan_backward: half precision has no gradients of coefficients");
    backward_learn<T, K, false>(a);
  } else if (a.grad_coefficients || sizeof(T) == 8) {
    // float64 has one kernel less to compile: it sums gradients that nobody asked for.
    backward_learn<T, K, true>(a);
  } else if constexpr (sizeof(T) == 4) {
    backward_learn<T, K, false>(a);
  }
}

// Half precision is for neurons of one state: others are bound by arithmetic, and ops/scan.py widens them.
template <class T>
void forward_type(const ScanForwardArgs& a) {
  if (a.states == 1) return forward_states<T, 1>(a);
  if constexpr (sizeof(T) > 2) {
    if (a.states == 2) return forward_states<T, 2>(a);
    return forward_states<T, 3>(a);
  }
  throw std::runtime_error("scan_forward: half precision is for one state");
}

template <class T>
void backward_type(const ScanBackwardArgs& a) {
  if (a.states == 1) return backward_states<T, 1>(a);
  if constexpr (sizeof(T) > 2) {
    if (a.states == 2) return backward_states<T, 2>(a);
    return backward_states<T, 3>(a);
  }
  throw std::runtime_error("scan_backward: half precision is for one state");
}

template <class Args>
void check_flags(const char* name, const Args& a) {
  if (!a.flags.refractory || !a.flags.reset_next) return;
  throw std::runtime_error(std::string(name) + ": expected no reset with the next step beside a refractory time");
}

void forward(const ScanForwardArgs& a) {
  check_flags("scan_forward", a);
  by_dtype(a.dtype, a, forward_type<float>, forward_type<double>, forward_type<__nv_bfloat16>, forward_type<__half>);
}

void backward(const ScanBackwardArgs& a) {
  check_flags("scan_backward", a);
  by_dtype(a.dtype, a, backward_type<float>, backward_type<double>, backward_type<__nv_bfloat16>,
           backward_type<__half>);
}

}  // namespace

extern const ScanKernels scan_kernels = {forward, backward};

void normalized_forward(const ScanForwardArgs& a, const Normalization& input) {
  launch_forward_packs<float, 1, false, false, 1, false>(a, input);
}

void normalized_backward(const ScanBackwardArgs& a, const Normalization& input) {
  launch_backward_packs<float, 1, false, false, false, 1, false>(a, input);
}

}  // namespace cuda
}  // namespace snnlib
