// SRM neuron on CUDA: one thread walks through all time steps of its neurons with their state in registers.
//
// Bytes decide the speed. Forward reads the current and writes spikes. Backward reads the current and dL/ds and writes
// both signals, each once: the forward recurrence is repeated for a chunk of steps, and what the backward pass needs of
// it waits in shared memory (8 bytes per neuron-step in float32, so 7 blocks of a Hopper multiprocessor for T = 30).
// Trains longer than a chunk read the current a second time, to find the state at the start of every chunk.
#include "chunks.h"
#include "element.h"
#include "launch.h"
#include "snnlib/isa.h"
#include "snnlib/kernels/srm.h"
#include "snnlib/srm.h"

namespace snnlib {
namespace cuda {
namespace {

// Steps that a thread loads before it needs the first: enough loads on their way to hide the memory's latency.
constexpr int kAheadForward = 5;
constexpr int kAheadBackward = 6;

template <class S>
SrmDecay<S> decay(const SrmConstants& c) {
  return {S(c.e_m), S(c.e_s), S(c.e_g), S(c.r_s)};
}

// State before the first step of the neuron with index `neuron` in [outer * inner].
template <class S, class Args>
__device__ SrmState<S> first_state(const Args& a, int64_t neuron) {
  if (!a.state_in) return {};
  const S* p = static_cast<const S*>(a.state_in) + neuron;
  const int64_t neurons = a.view.outer * a.view.inner;
  return {p[0], p[neurons], p[2 * neurons]};
}

// `inner_index` counts within one step and outer index.
template <class S, class Args>
__device__ S threshold_of(const Args& a, int64_t inner_index) {
  const S* limits = static_cast<const S*>(a.threshold);
  return a.threshold_period == 1 ? limits[0] : limits[remainder(inner_index, a.threshold_period)];
}

// V neighbours a thread. Potential and deltas, which only tests and plots ask for, come from threads with one neuron.
template <class T, int V>
__global__ void forward_kernel(SrmForwardArgs a, SrmDecay<typename StateOf<T>::type> k) {
  using S = typename StateOf<T>::type;
  const int64_t neurons = a.view.outer * a.view.inner, neuron = thread_index() * V;
  if (neuron >= neurons) return;
  const auto [o, i] = place_of(a.view, neuron);
  SrmState<S> state[V];
  S limit[V];
  SNNLIB_UNROLL
  for (int v = 0; v < V; ++v) {
    state[v] = first_state<S>(a, neuron + v);
    limit[v] = threshold_of<S>(a, i + v);
  }
  for (int64_t first = 0; first < a.view.steps; first += kAheadForward) {
    const int64_t left = a.view.steps - first, p = a.view.offset(o, first, i);
    Pack<T, V> current[kAheadForward];
    SNNLIB_UNROLL
    for (int j = 0; j < kAheadForward; ++j) {
      if (j < left) current[j] = load_pack<T, V>(a.current, p + j * a.view.step_stride);
    }
    SNNLIB_UNROLL
    for (int j = 0; j < kAheadForward; ++j) {
      if (j >= left) break;
      const int64_t q = p + j * a.view.step_stride;
      Pack<T, V> spikes;
      SNNLIB_UNROLL
      for (int v = 0; v < V; ++v) {
        const SrmStep<S> out = srm_step(state[v], to_state(current[j].lane[v]), limit[v], k);
        from_state(out.spike, &spikes.lane[v]);
        if (V == 1 && a.potential) {
          from_state(out.u, static_cast<T*>(a.potential) + q);
          from_state(out.delta_u, static_cast<T*>(a.delta_u) + q);
          from_state(out.delta_ut, static_cast<T*>(a.delta_ut) + q);
        }
      }
      store_pack(a.spikes, q, spikes);
    }
  }
  if (!a.state_out) return;
  S* out = static_cast<S*>(a.state_out) + neuron;
  SNNLIB_UNROLL
  for (int v = 0; v < V; ++v) {
    out[v] = state[v].u;
    out[neurons + v] = state[v].s;
    out[2 * neurons + v] = state[v].g;
  }
}

// Values of type S that wait in shared memory for the backward pass, per step: `srm_rise`, and delta_ut for the inputs.
template <bool Input>
constexpr int kKept = Input ? 2 : 1;

template <class T, bool Input>
__global__ void backward_kernel(SrmBackwardArgs a, SrmDecay<typename StateOf<T>::type> k, int chunk_steps) {
  using S = typename StateOf<T>::type;
  using Parked = StateInColumn<T, SrmState<S>>;
  const int64_t neurons = a.view.outer * a.view.inner, neuron = thread_index();
  if (neuron >= neurons) return;
  const auto [o, i] = place_of(a.view, neuron);
  const int64_t stride = a.view.step_stride, start = a.view.offset(o, 0, i);
  const T* current = static_cast<const T*>(a.current);
  const T* grad_spikes = static_cast<const T*>(a.grad_spikes);
  T* weight_signal = static_cast<T*>(a.weight_signal);
  T* input_signal = static_cast<T*>(a.input_signal);
  T* spare = weight_signal ? weight_signal : input_signal;
  const S limit = threshold_of<S>(a, i), clamp = S(a.constants.grad_clamp);
  S* kept = scratch<S>();

  SrmState<S> state = first_state<S>(a, neuron);
  // Repeats steps [first, first + count); `keep(step - first, out)` sees each. Offsets are opaque here and below
  // because the compiler would otherwise hold one address for every step of a group in registers.
  const auto repeat = [&](int64_t first, int count, const auto& keep) {
    int64_t p = start + first * stride;
    for_each_group<kAheadBackward>(count, [&](auto size, int t) {
      constexpr int n = decltype(size)::value;
      T x[n];
      SNNLIB_UNROLL
      for (int j = 0; j < n; ++j, p = opaque(p + stride)) x[j] = current[p];
      SNNLIB_UNROLL
      for (int j = 0; j < n; ++j) keep(t + j, srm_step(state, to_state(x[j]), limit, k));
    });
  };

  const int64_t last = (a.view.steps - 1) / chunk_steps;
  for (int64_t chunk = 0; chunk < last; ++chunk) {
    if (chunk > 0) Parked::store(spare + start + chunk * chunk_steps * stride, stride, state);
    repeat(chunk * chunk_steps, chunk_steps, [](int, const SrmStep<S>&) {});
  }
  SrmCredit<S> credit = {};
  for (int64_t chunk = last; chunk >= 0; --chunk) {
    const int64_t first = chunk * chunk_steps;
    const int count = chunk == last ? int(a.view.steps - first) : chunk_steps;
    if (chunk < last) {
      state = chunk == 0 ? first_state<S>(a, neuron) : Parked::load(spare + start + first * stride, stride);
    }
    repeat(first, count, [&](int t, const SrmStep<S>& out) {
      kept[t * kKept<Input> * kBlockThreads] = srm_rise(out);
      if (Input) kept[(t * kKept<Input> + 1) * kBlockThreads] = out.delta_ut;
    });
    int64_t read_at = start + (first + count - 1) * stride, write_at = read_at;
    for_each_group<kAheadBackward>(count, [&](auto size, int done) {
      constexpr int n = decltype(size)::value;
      T q[n];
      SNNLIB_UNROLL
      for (int j = 0; j < n; ++j, read_at = opaque(read_at - stride)) q[j] = grad_spikes[read_at];
      SNNLIB_UNROLL
      for (int j = 0; j < n; ++j, write_at = opaque(write_at - stride)) {
        const S* at = &kept[(count - 1 - done - j) * kKept<Input> * kBlockThreads];
        srm_credit_weight(credit, to_state(q[j]), at[0], clamp, k);
        if (weight_signal) from_state(credit.au, &weight_signal[write_at]);
        if (Input) {
          srm_credit_input(credit, to_state(q[j]), at[0], at[kBlockThreads], k);
          from_state(credit.bg, &input_signal[write_at]);
        }
      }
    });
  }
}

// Whether packs of V elements can be loaded at every step of every tensor.
template <class T, int V>
bool fits_packs(const TrainView& view, std::initializer_list<const void*> tensors) {
  uintptr_t bits = 0;
  for (const void* tensor : tensors) bits |= reinterpret_cast<uintptr_t>(tensor);
  return bits % (sizeof(T) * V) == 0 && (view.inner | view.outer_stride | view.step_stride) % V == 0;
}

template <class T>
void forward_train(const SrmForwardArgs& a) {
  constexpr int V = 16 / sizeof(T);
  const int64_t neurons = a.view.outer * a.view.inner;
  const auto k = decay<typename StateOf<T>::type>(a.constants);
  if (!a.potential && fits_packs<T, V>(a.view, {a.current, a.spikes})) {
    launch("srm_forward", forward_kernel<T, V>, neurons / V, a.executor, Scratch{}, a, k);
  } else {
    launch("srm_forward", forward_kernel<T, 1>, neurons, a.executor, Scratch{}, a, k);
  }
}

template <class T, bool Input>
void launch_backward(const SrmBackwardArgs& a) {
  using S = typename StateOf<T>::type;
  const int steps = chunk_steps<kKept<Input>* int(sizeof(S))>(a.view.steps);
  launch("srm_backward", backward_kernel<T, Input>, a.view.outer * a.view.inner, a.executor,
         Scratch{steps * kKept<Input> * int(sizeof(S))}, a, decay<S>(a.constants), steps);
}

template <class T>
void backward_train(const SrmBackwardArgs& a) {
  if (a.view.steps == 0) return;
  if (a.input_signal) {
    launch_backward<T, true>(a);
  } else if (a.weight_signal) {
    launch_backward<T, false>(a);
  }
}

void forward(const SrmForwardArgs& a) {
  by_dtype(a.dtype, a, forward_train<float>, forward_train<double>, forward_train<__nv_bfloat16>,
           forward_train<__half>);
}

void backward(const SrmBackwardArgs& a) {
  by_dtype(a.dtype, a, backward_train<float>, backward_train<double>, backward_train<__nv_bfloat16>,
           backward_train<__half>);
}

}  // namespace

extern const SrmKernels srm_kernels = {forward, backward};

}  // namespace cuda
}  // namespace snnlib
