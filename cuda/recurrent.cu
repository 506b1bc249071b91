// Recurrent neurons of the linear family on CUDA: a block of threads walks a sample through all its time steps in one
// launch. A step costs its threads two waits for each other, and loads for the neurons that fired in the step before.
// Math: neurons/linear.h; order of the sums: cpp/cpu/recurrent_*.cpp.
#include "recurrent_block.h"
#include "snnlib/cuda.h"

namespace snnlib {
namespace cuda {

void recurrent_backward(const RecurrentBackwardArgs& a);

namespace {

template <class S, int K, bool Next, bool Quadratic, bool Single>
__global__ void SNNLIB_MOST_THREADS(kMostThreads<S, K>)
    recurrent_forward_kernel(RecurrentForwardArgs a, Divider<uint32_t> period) {
  const int64_t sample = block_index(), steps = steps_of(a, sample), stride = a.view.step_stride;
  const int neurons = int(a.view.inner), row = int(a.row);
  const S* weight = static_cast<const S*>(a.weight);
  const S* current = static_cast<const S*>(a.current) + a.view.offset(sample, 0, 0);
  S* value = static_cast<S*>(a.value) + a.view.offset(sample, 0, 0);
  S* total = a.total ? static_cast<S*>(a.total) + a.view.offset(sample, 0, 0) : nullptr;
  BlockList<Event<S, int>> events(neurons, block_memory());
  LinearCoefficients<K, S> k;
  LinearState<K, S> state;
  S ahead = S(0), spike = S(0);
  if (Single && block_thread() < neurons) {
    k = coefficients_of<S, K>(a, period, block_thread());
    state = own_state<S, K, Next>(a, a.state_in, sample, block_thread());
    if (steps > 0) ahead = current[block_thread()];
  }
  const S* before = state_row<S>(a, a.state_in, K + added_rows(a.flags), sample);
  for_each_turn<S, K, Single>(neurons, [&](int first, int neuron) {
    events.vote(first, before && neuron < neurons && !(before[neuron] == S(0)));
  });
  events.collect([&](int neuron) { return Event<S, int>{before[neuron], neuron * row}; });

  for (int64_t t = 0; t < steps; ++t) {
    for_each_turn<S, K, Single>(neurons, [&](int first, int neuron) {
      spike = S(0);
      if (neuron < neurons) {
        if (!Single) {
          k = coefficients_of<S, K>(a, period, neuron);
          state = own_state<S, K, Next>(a, t > 0 ? a.state_out : a.state_in, sample, neuron);
        }
        S sum = Single ? ahead : current[t * stride + neuron];
        if (Single && t + 1 < steps) ahead = current[(t + 1) * stride + neuron];
        sum = add_events(events, sum, weight + neuron);
        if (total) total[t * stride + neuron] = sum;
        spike = linear_step<K, Next, Quadratic>(state, sum, k, a.flags, S(1)).spike;
        value[t * stride + neuron] = spike;
        if (!Single) store_state<S, K, Next>(a, a.state_out, sample, neuron, state.y, state.fired, state.left);
      }
      events.vote(first, !(spike == S(0)));
    });
    events.collect(
        [&](int neuron) { return Event<S, int>{Single ? spike : value[t * stride + neuron], neuron * row}; });
  }

  for_each_turn<S, K, Single>(neurons, [&](int, int neuron) {
    if (neuron >= neurons) return;
    if (!Single && steps == 0) state = own_state<S, K, Next>(a, a.state_in, sample, neuron);
    if (Single || steps == 0) store_state<S, K, Next>(a, a.state_out, sample, neuron, state.y, state.fired, state.left);
    const S last = steps > 0 ? value[(steps - 1) * stride + neuron] : (before ? before[neuron] : S(0));
    state_row<S>(a, a.state_out, K + added_rows(a.flags), sample)[neuron] = last;
    for (int64_t t = steps; t < a.view.steps; ++t) {
      value[t * stride + neuron] = S(0);
      if (total) total[t * stride + neuron] = S(0);
    }
  });
}

void forward(const RecurrentForwardArgs& a) {
  if (a.view.inner == 0) return;
  by_neuron("recurrent_forward", a, [&](auto zero, auto states, auto next, auto quadratic) {
    using S = decltype(zero);
    constexpr int K = decltype(states)::value;
    constexpr bool Next = decltype(next)::value, Quadratic = decltype(quadratic)::value;
    by_single<S, K, Next, Quadratic>(a, [&](auto single) {
      const Blocks blocks = {a.view.outer, whole_warps(a.view.inner, kMostThreads<S, K>),
                             BlockList<Event<S, int>>::bytes(int(a.view.inner))};
      launch_blocks("recurrent_forward", recurrent_forward_kernel<S, K, Next, Quadratic, decltype(single)::value>,
                    blocks, a.executor, a, Divider<uint32_t>(a.period));
    });
  });
}

}  // namespace

template <class S>
constexpr bool kFits = BlockList<Event<S, int>>::bytes(kMostNeurons<S>) <= kSharedBytes;
static_assert(kFits<float> && kFits<double>, "the events of all neurons fit into shared memory");

extern const RecurrentKernels recurrent_kernels = {forward, recurrent_backward};

}  // namespace cuda

int most_recurrent_neurons() { return cuda::kMostNeurons<float>; }

}  // namespace snnlib
