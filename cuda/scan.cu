// Neurons of the linear family on CUDA: one thread walks through all time steps of its neuron, with state and
// coefficients in registers. Math: neurons/linear.h.
//
// Backward repeats the forward recurrence of a chunk of steps and keeps what the adjoint needs of it in shared memory;
// sequences longer than a chunk read the current a second time, to find the state at the start of every chunk.
#include "chunks.h"
#include "element.h"
#include "launch.h"
#include "snnlib/isa.h"
#include "snnlib/neurons/linear.h"
#include "snnlib/scan.h"

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
constexpr int kAheadBackward = sizeof(T) == 8 ? 1
                               : K == 1       ? 6
                                              : 2;

template <class S, int K>
__device__ LinearCoefficients<K, S> coefficients_of(const ScanArgs& a, int64_t first) {
  const S* p = static_cast<const S*>(a.coefficients) + first;
  LinearCoefficients<K, S> k;
  SNNLIB_UNROLL
  for (int row = 0; row < LinearRows<K>::count; ++row) k.row[row] = p[row * a.period];
  return k;
}

// States of neurons lie [K (+ 1 with Next)][neurons]; null is zero.
template <class S, int K, bool Next>
__device__ LinearState<K, S> state_at(const void* states, int64_t neurons, int64_t neuron) {
  LinearState<K, S> state = {};
  if (!states) return state;
  const S* p = static_cast<const S*>(states) + neuron;
  SNNLIB_UNROLL
  for (int s = 0; s < K; ++s) state.y[s] = p[s * neurons];
  if (Next) state.fired = p[K * neurons];
  return state;
}

template <class T, int K, bool Next>
__global__ void forward_kernel(ScanForwardArgs a, Places places) {
  using S = typename StateOf<T>::type;
  const int64_t neurons = a.view.outer * a.view.inner, neuron = thread_index();
  if (neuron >= neurons) return;
  const NeuronPlace place = places.of(a.view, neuron);
  const auto k = coefficients_of<S, K>(a, places.constants(place));
  const LinearFlags flags = a.flags;
  LinearState<K, S> state = state_at<S, K, Next>(a.state_in, neurons, neuron);
  const int64_t stride = a.view.step_stride, start = a.view.offset(place.outer, 0, place.inner);
  const T* current = static_cast<const T*>(a.current) + start;
  T* value = static_cast<T*>(a.value) + start;
  for_each_group<kAheadForward<T, K>>(int(a.view.steps), [&](auto size, int) {
    constexpr int n = decltype(size)::value;
    T x[n];
    SNNLIB_UNROLL
    for (int j = 0; j < n; ++j, current += stride) x[j] = *current;
    SNNLIB_UNROLL
    for (int j = 0; j < n; ++j, value += stride) {
      const LinearStep<K, S> out = linear_step<K, Next>(state, to_state(x[j]), k, flags, S(1));
      from_state(flags.membrane ? out.h[0] : out.spike, value);
    }
  });
  S* out = static_cast<S*>(a.state_out) + neuron;
  SNNLIB_UNROLL
  for (int s = 0; s < K; ++s) out[s * neurons] = state.y[s];
  if (Next) out[K * neurons] = state.fired;
}

// Values per step that wait in shared memory for the backward pass: h before the reset, with Next the last step's
// spike, and with Learn the state before the step.
template <int K, bool Next, bool Learn>
constexpr int kKept = K + (Next ? 1 : 0) + (Learn ? K : 0);

// f(flags), with the kind of the surrogate gradient a constant: the choice is then made outside of the loop over steps.
template <bool Constant, class F>
__device__ void by_surrogate(LinearFlags flags, const F& f) {
  if constexpr (Constant) {
    switch (flags.surrogate) {
      case SurrogateKind::kTriangle:
        flags.surrogate = SurrogateKind::kTriangle;
        return f(flags);
      case SurrogateKind::kRectangle:
        flags.surrogate = SurrogateKind::kRectangle;
        return f(flags);
      case SurrogateKind::kATan:
        flags.surrogate = SurrogateKind::kATan;
        return f(flags);
      case SurrogateKind::kFastSigmoid:
        flags.surrogate = SurrogateKind::kFastSigmoid;
        return f(flags);
      default:
        break;
    }
  }
  f(flags);
}

template <class T, int K, bool Next, bool Learn>
__global__ void backward_kernel(ScanBackwardArgs a, Places places, Chunks chunks) {
  using S = typename StateOf<T>::type;
  constexpr int kValues = kKept<K, Next, Learn>;
  using Parked = StateInColumn<T, LinearState<K, S>>;
  const int64_t neurons = a.view.outer * a.view.inner, neuron = thread_index();
  if (neuron >= neurons) return;
  const NeuronPlace place = places.of(a.view, neuron);
  const auto k = coefficients_of<S, K>(a, places.constants(place));
  const LinearFlags flags = a.flags;
  const int64_t stride = a.view.step_stride, start = a.view.offset(place.outer, 0, place.inner);
  const T* current = static_cast<const T*>(a.current) + start;
  const T* grad_value = static_cast<const T*>(a.grad_value) + start;
  T* grad_current = static_cast<T*>(a.grad_current) + start;
  S* kept = scratch<S>();

  LinearState<K, S> state = state_at<S, K, Next>(a.state_in, neurons, neuron);
  // Repeats steps [first, first + count); `keep(step - first, state before, out)` sees each.
  const auto repeat = [&](int64_t first, int count, const auto& keep) {
    const T* at = current + first * stride;
    for_each_group<kAheadBackward<T, K>>(count, [&](auto size, int t) {
      constexpr int n = decltype(size)::value;
      T x[n];
      SNNLIB_UNROLL
      for (int j = 0; j < n; ++j, at += stride) x[j] = *at;
      SNNLIB_UNROLL
      for (int j = 0; j < n; ++j) {
        const LinearState<K, S> before = state;
        keep(t + j, before, linear_step<K, Next>(state, to_state(x[j]), k, flags, S(1)));
      }
    });
  };

  const int64_t last = chunks.last;
  for (int64_t chunk = 0; chunk < last; ++chunk) {
    const int64_t first = chunk * chunks.steps;
    if (chunk > 0) Parked::store(grad_current + first * stride, stride, state);
    repeat(first, chunks.steps, [](int, const LinearState<K, S>&, const LinearStep<K, S>&) {});
  }
  const LinearState<K, S> given = state_at<S, K, Next>(a.grad_state_out, neurons, neuron);
  LinearCarry<K, S> carry = {};
  SNNLIB_UNROLL
  for (int s = 0; s < K; ++s) carry.g[s] = given.y[s];
  carry.qs = given.fired;
  LinearCoefficients<K, S> sum = {};
  for (int64_t chunk = last; chunk >= 0; --chunk) {
    const int64_t first = chunk * chunks.steps;
    const int count = chunk == last ? int(a.view.steps - first) : chunks.steps;
    if (chunk < last) {
      state = chunk == 0 ? state_at<S, K, Next>(a.state_in, neurons, neuron)
                         : Parked::load(grad_current + first * stride, stride);
    }
    repeat(first, count, [&](int t, const LinearState<K, S>& before, const LinearStep<K, S>& out) {
      S* at = &kept[t * kValues * kScratchThreads];
      SNNLIB_UNROLL
      for (int s = 0; s < K; ++s) at[s * kScratchThreads] = out.raw[s];
      if (Next) at[K * kScratchThreads] = before.fired;
      SNNLIB_UNROLL
      for (int s = 0; s < K && Learn; ++s) at[(K + Next + s) * kScratchThreads] = before.y[s];
    });
    by_surrogate<sizeof(S) == 4 && K == 1 && !Learn>(flags, [&](const LinearFlags& own) {
      int64_t read_at = (first + count - 1) * stride, write_at = read_at;
      for_each_group<kAheadBackward<T, K>>(count, [&](auto size, int done) {
        constexpr int n = decltype(size)::value;
        T q[n], x[n];
        SNNLIB_UNROLL
        for (int j = 0; j < n; ++j, read_at -= stride) {
          q[j] = grad_value[read_at];
          if (Learn) x[j] = current[read_at];
        }
        SNNLIB_UNROLL
        for (int j = 0; j < n; ++j, write_at -= stride) {
          const S* at = &kept[(count - 1 - done - j) * kValues * kScratchThreads];
          LinearSeen<K, S> seen = {};
          SNNLIB_UNROLL
          for (int s = 0; s < K; ++s) seen.raw[s] = at[s * kScratchThreads];
          if (Next) seen.fired_before = at[K * kScratchThreads];
          if (Learn) {
            SNNLIB_UNROLL
            for (int s = 0; s < K; ++s) seen.y[s] = at[(K + Next + s) * kScratchThreads];
            seen.x = to_state(x[j]);
          }
          from_state(linear_back<K, Next, Learn>(carry, to_state(q[j]), seen, k, own, S(1), sum),
                     &grad_current[write_at]);
        }
      });
    });
  }
  S* out = static_cast<S*>(a.grad_state_in) + neuron;
  SNNLIB_UNROLL
  for (int s = 0; s < K; ++s) out[s * neurons] = carry.g[s];
  if (Next) out[K * neurons] = carry.qs;
  if (!Learn || !a.grad_coefficients) return;
  S* grads = static_cast<S*>(a.grad_coefficients) + neuron;
  SNNLIB_UNROLL
  for (int row = 0; row < LinearRows<K>::count; ++row) grads[row * neurons] = sum.row[row];
}

template <class T, int K, bool Next>
void launch_forward(const ScanForwardArgs& a) {
  launch("scan_forward", forward_kernel<T, K, Next>, a.view.outer * a.view.inner, a.executor, Scratch{}, a,
         Places(a.view, a.period));
}

template <class T, int K, bool Next, bool Learn>
void launch_backward(const ScanBackwardArgs& a) {
  using S = typename StateOf<T>::type;
  constexpr int kBytes = kKept<K, Next, Learn> * int(sizeof(S));
  static_assert((kScratchBytes / kBytes + 2) / 2 * sizeof(T) >= sizeof(LinearState<K, S>),
                "a chunk has room for a state");
  const Chunks chunks = even_chunks<kBytes>(a.view.steps);
  launch("scan_backward", backward_kernel<T, K, Next, Learn>, a.view.outer * a.view.inner, a.executor,
         Scratch{chunks.steps * kBytes}, a, Places(a.view, a.period), chunks);
}

template <class T, int K>
void forward_states(const ScanForwardArgs& a) {
  a.flags.reset_next ? launch_forward<T, K, true>(a) : launch_forward<T, K, false>(a);
}

template <class T, int K>
void backward_states(const ScanBackwardArgs& a) {
  if constexpr (sizeof(T) == 2) {
    if (a.grad_coefficients) throw std::runtime_error("scan_backward: half precision has no gradients of coefficients");
    a.flags.reset_next ? launch_backward<T, K, true, false>(a) : launch_backward<T, K, false, false>(a);
  } else if (a.grad_coefficients || sizeof(T) == 8) {
    // float64 has one kernel less to compile: it sums gradients that nobody asked for.
    a.flags.reset_next ? launch_backward<T, K, true, true>(a) : launch_backward<T, K, false, true>(a);
  } else if constexpr (sizeof(T) == 4) {
    a.flags.reset_next ? launch_backward<T, K, true, false>(a) : launch_backward<T, K, false, false>(a);
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

void forward(const ScanForwardArgs& a) {
  by_dtype(a.dtype, a, forward_type<float>, forward_type<double>, forward_type<__nv_bfloat16>, forward_type<__half>);
}

void backward(const ScanBackwardArgs& a) {
  by_dtype(a.dtype, a, backward_type<float>, backward_type<double>, backward_type<__nv_bfloat16>,
           backward_type<__half>);
}

}  // namespace

extern const ScanKernels scan_kernels = {forward, backward};

}  // namespace cuda
}  // namespace snnlib
