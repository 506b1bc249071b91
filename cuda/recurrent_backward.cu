// The backward pass of recurrent neurons on CUDA, by three kernels: the neurons' steps once more, a thread for each of
// them; the adjoint, a block of threads for each sample; and the gradient of the weights (recurrent_weights.cu).
#include "chunks.h"
#include "recurrent_block.h"
#include "scan_options.h"

namespace snnlib {
namespace cuda {

void recurrent_weight_gradient(const RecurrentBackwardArgs& a);

namespace {

// Where the values lie that a step leaves for the adjoint. The first waits in the place of the step's own gradient.
template <class S>
struct KeptValues {
  S* first;
  S* rest;
  int64_t size;

  __device__ explicit KeptValues(const RecurrentBackwardArgs& a)
      : first(static_cast<S*>(a.grad_current)),
        rest(static_cast<S*>(a.kept)),
        size(a.view.outer * a.view.steps * a.view.inner) {}
  __device__ S& at(int value, int64_t place) const { return value ? rest[(value - 1) * size + place] : first[place]; }
};

template <class S, int K, bool Next, bool Quadratic>
__global__ void recurrent_repeat_kernel(RecurrentBackwardArgs a, Divider<uint64_t> neurons, Divider<uint32_t> period) {
  const int64_t index = thread_index();
  if (index >= a.view.outer * a.view.inner) return;
  const int64_t sample = int64_t(neurons.quotient(uint64_t(index)));
  const int neuron = int(index - sample * a.view.inner);
  const bool with_states = Quadratic || a.grad_coefficients;
  const LinearCoefficients<K, S> k = coefficients_of<S, K>(a, period, neuron);
  LinearState<K, S> state = own_state<S, K, Next>(a, a.state_in, sample, neuron);
  const KeptValues<S> kept(a);
  const int64_t steps = steps_of(a, sample);
  int64_t place = a.view.offset(sample, 0, neuron);
  for_each_group<sizeof(S) == 4 ? 8 : 1>(steps, [&](auto size, int64_t) {
    constexpr int n = decltype(size)::value;
    S total[n];
    SNNLIB_UNROLL
    for (int j = 0; j < n; ++j) total[j] = static_cast<const S*>(a.current)[place + j * a.view.step_stride];
    SNNLIB_UNROLL
    for (int j = 0; j < n; ++j, place += a.view.step_stride) {
      if (Next) kept.at(K, place) = state.fired;
      SNNLIB_UNROLL
      for (int s = 0; s < K; ++s) {
        if (with_states) kept.at(K + Next + s, place) = state.y[s];
      }
      if (a.flags.refractory) kept.at(K + Next + with_states * K, place) = state.left;
      const LinearStep<K, S> out = linear_step<K, Next, Quadratic>(state, total[j], k, a.flags, S(1));
      SNNLIB_UNROLL
      for (int s = 0; s < K; ++s) kept.at(s, place) = out.raw[s];
    }
  });
  for (int64_t t = steps; t < a.view.steps; ++t, place += a.view.step_stride) kept.at(0, place) = S(0);
}

// Terms of a sum over neurons that are added side by side, as on the CPU: by as many threads, half a warp.
constexpr int kSide = 16;

// back[j] = weight[j] . signal for the neurons j that are listed: 16 sums of every 16th term, then halves onto halves.
// Rows end in zeros as the signal does, so that only whole groups are added.
template <class S>
__device__ void multiply_rows(const BlockList<int>& listed, const S* weight, int row, const S* signal, S* back) {
  const int side = block_thread() % kSide, sums = block_threads() / kSide;
  // A warp stays together, also where there is no row for its second half.
  for (int first = block_thread() / kWarpThreads * 2; first < listed.size(); first += sums) {
    const int mine = first + block_thread() / kSide % 2;
    const int neuron = listed[mine < listed.size() ? mine : first];
    const S* from = weight + neuron * row + side;
    S sum = S(0);
    for_each_sum_group(row / kSide, [&](auto whole, int group) {
      const auto there = [&](int j) { return decltype(whole)::value || group + j < row / kSide; };
      S read[kSumAhead];
      SNNLIB_UNROLL
      for (int j = 0; j < kSumAhead; ++j) read[j] = from[(there(j) ? group + j : group) * kSide];
      SNNLIB_UNROLL
      for (int j = 0; j < kSumAhead; ++j) sum = there(j) ? sum + read[j] * signal[(group + j) * kSide + side] : sum;
    });
    SNNLIB_UNROLL
    for (int half = kSide / 2; half > 0; half /= 2) sum = sum + warp_ahead(sum, half);
    if (side == 0 && mine < listed.size()) back[neuron] = sum;
  }
}

// For `row` neurons and the zeros behind them.
template <class S>
constexpr size_t adjoint_bytes(int64_t row) {
  return 2 * sizeof(S) * size_t(row) + BlockList<int>::bytes(int(row));
}

static_assert(adjoint_bytes<float>(kMostNeurons<float>) <= kSharedBytes &&
                  adjoint_bytes<double>(kMostNeurons<double>) <= kSharedBytes,
              "the signals of all neurons fit into shared memory");

// Values that the adjoint of a step reads.
template <class S, int K>
struct ReadStep {
  S q;
  LinearSeen<K, S> seen;
};

template <class S, int K, bool Next, bool Learn, bool Quadratic, bool Single>
__global__ void SNNLIB_MOST_THREADS(kMostThreads<S, K>)
    recurrent_adjoint_kernel(RecurrentBackwardArgs a, Divider<uint32_t> period) {
  const int64_t sample = block_index(), steps = steps_of(a, sample), begin = a.view.offset(sample, 0, 0);
  const int neurons = int(a.view.inner), row = int(a.row);
  // dL/dI of a step, and what comes of it to the spikes of the step before: zero but for the neurons that are listed.
  S* signal = static_cast<S*>(block_memory());
  S* back = signal + row;
  BlockList<int> listed(row, back + row);
  const KeptValues<S> kept(a);
  const LinearFlags flags = flags_of_states<K, Quadratic>(a.flags);

  const auto read = [&](int64_t t, int neuron) {
    const int64_t place = begin + t * a.view.step_stride + neuron;
    ReadStep<S, K> out = {};
    out.q = static_cast<const S*>(a.grad_value)[place];
    SNNLIB_UNROLL
    for (int s = 0; s < K; ++s) {
      out.seen.raw[s] = kept.at(s, place);
      if (Learn || Quadratic) out.seen.y[s] = kept.at(K + Next + s, place);
    }
    if (Next) out.seen.fired_before = kept.at(K, place);
    if (a.flags.refractory) out.seen.left = kept.at(K + Next + (Learn || Quadratic) * K, place);
    if (Learn) out.seen.x = static_cast<const S*>(a.current)[place];
    return out;
  };
  LinearCoefficients<K, S> k, sum;
  LinearCarry<K, S> carry;
  const auto has_slope = [&](const LinearSeen<K, S>& seen) {
    S h[K];
    linear_compared<K, Next>(seen.raw, seen.fired_before, k, a.flags, h);
    const S u = linear_distance<K>(linear_level<K>(h, k), k, flags, S(1));
    return !(linear_slope<K>(u, k, flags, S(1)) == S(0));
  };
  // The adjoint's own state, from where it waits.
  const auto load = [&](const void* from, int neuron) {
    const LinearState<K, S> given = own_state<S, K, Next>(a, from, sample, neuron);
    SNNLIB_UNROLL
    for (int s = 0; s < K; ++s) carry.g[s] = given.y[s];
    carry.qs = given.fired;
    sum = {};
  };
  // With the sums of one step or of all, added to those that are there if they have begun.
  const auto store = [&](bool begun, int neuron) {
    store_state<S, K, Next>(a, a.grad_state_in, sample, neuron, carry.g, carry.qs, S(0));
    SNNLIB_UNROLL
    for (int i = 0; i < LinearRows<K>::count && Learn; ++i) {
      S& to = state_row<S>(a, a.grad_coefficients, i, sample)[neuron];
      to = begun ? to + sum.row[i] : sum.row[i];
    }
  };

  const S* grad_spikes = state_row<S>(a, a.grad_state_out, K + added_rows(a.flags), sample);
  for_each_turn<S, K, Single>(neurons, [&](int, int i) {
    if (i >= row) return;
    signal[i] = S(0);
    back[i] = grad_spikes && i < neurons ? grad_spikes[i] : S(0);
  });
  // Steps are read two ahead: whether the one before has a slope is asked for first.
  ReadStep<S, K> next, after_next;
  if (Single && block_thread() < neurons) {
    k = coefficients_of<S, K>(a, period, block_thread());
    load(a.grad_state_out, block_thread());
    if (steps > 0) next = read(steps - 1, block_thread());
    if (steps > 1) after_next = read(steps - 2, block_thread());
  }
  for (int64_t t = steps - 1; t >= 0; --t) {
    for_each_turn<S, K, Single>(neurons, [&](int first, int neuron) {
      bool wanted = false;
      if (neuron < neurons) {
        ReadStep<S, K> now;
        if (Single) {
          now = next;
          next = after_next;
          if (t > 1) after_next = read(t - 2, neuron);
          wanted = t == 0 || has_slope(next.seen);
        } else {
          k = coefficients_of<S, K>(a, period, neuron);
          wanted = t == 0 || has_slope(read(t - 1, neuron).seen);
          load(t + 1 < steps ? a.grad_state_in : a.grad_state_out, neuron);
          now = read(t, neuron);
        }
        const S grad =
            linear_back<K, Next, Learn, Quadratic>(carry, now.q + back[neuron], now.seen, k, flags, S(1), sum);
        static_cast<S*>(a.grad_current)[begin + t * a.view.step_stride + neuron] = grad;
        signal[neuron] = grad;
        back[neuron] = S(0);
        if (!Single) store(t + 1 < steps, neuron);
      }
      // The gradient of the spikes before the first step is for every neuron.
      listed.vote(first, wanted && a.spikes_back);
    });
    listed.collect([](int neuron) { return neuron; });
    multiply_rows(listed, static_cast<const S*>(a.weight), row, signal, back);
    block_wait();
  }

  for_each_turn<S, K, Single>(neurons, [&](int, int neuron) {
    if (neuron >= neurons) return;
    if (!Single && steps == 0) load(a.grad_state_out, neuron);
    if (Single || steps == 0) store(false, neuron);
    state_row<S>(a, a.grad_state_in, K + added_rows(a.flags), sample)[neuron] = back[neuron];
  });
}

template <class S, int K, bool Next, bool Learn, bool Quadratic>
void run(const RecurrentBackwardArgs& a) {
  const char* name = "recurrent_backward";
  const Divider<uint32_t> period(a.period);
  launch(name, recurrent_repeat_kernel<S, K, Next, Quadratic>, a.view.outer * a.view.inner, a.executor, Scratch{}, a,
         Divider<uint64_t>(a.view.inner), period);
  by_single<S, K, Next, Quadratic>(a, [&](auto single) {
    const Blocks blocks = {a.view.outer, whole_warps(a.view.inner, kMostThreads<S, K>), adjoint_bytes<S>(a.row)};
    launch_blocks(name, recurrent_adjoint_kernel<S, K, Next, Learn, Quadratic, decltype(single)::value>, blocks,
                  a.executor, a, period);
  });
}

}  // namespace

void recurrent_backward(const RecurrentBackwardArgs& a) {
  if (a.view.inner == 0) return;
  by_neuron("recurrent_backward", a, [&](auto zero, auto states, auto next, auto quadratic) {
    using S = decltype(zero);
    constexpr int K = decltype(states)::value;
    constexpr bool Next = decltype(next)::value, Quadratic = decltype(quadratic)::value;
    a.grad_coefficients ? run<S, K, Next, true, Quadratic>(a) : run<S, K, Next, false, Quadratic>(a);
  });
  if (a.grad_weight) recurrent_weight_gradient(a);
}

}  // namespace cuda
}  // namespace snnlib
