// The gradient of recurrent weights on CUDA. A block of threads has the weights that lead from one neuron: it adds up
// the signals of all steps and samples that follow a spike of it, in the order of steps and then samples.
#include "recurrent_block.h"

namespace snnlib {
namespace cuda {
namespace {

constexpr int kWeightThreads = 512;

template <class S>
__global__ void SNNLIB_MOST_THREADS(kWeightThreads)
    recurrent_weight_kernel(RecurrentBackwardArgs a, int states, Divider<uint64_t> batch) {
  const int64_t source = block_index(), rows = a.view.steps * a.view.outer;
  const int neurons = int(a.view.inner);
  const S* signal = static_cast<const S*>(a.grad_current);
  S* grad = static_cast<S*>(a.grad_weight) + source * a.row;
  BlockList<Event<S, int64_t>> events(kWeightThreads, block_memory());
  for (int i = block_thread(); i < neurons; i += kWeightThreads) grad[i] = S(0);

  // The spike that comes back in the step and sample of a row, and the place of their signals.
  const auto read = [&](int64_t row) {
    Event<S, int64_t> out = {};
    if (row >= rows) return out;
    const int64_t t = int64_t(batch.quotient(uint64_t(row))), sample = row - t * a.view.outer;
    out.place = a.view.offset(sample, t, 0);
    const S* spikes = t > 0 ? static_cast<const S*>(a.value) + out.place - a.view.step_stride
                            : state_row<S>(a, a.state_in, states, sample);
    if (t < steps_of(a, sample) && spikes) out.amount = spikes[source];
    return out;
  };
  Event<S, int64_t> ahead = read(block_thread());
  for (int64_t first = 0; first < rows; first += kWeightThreads) {
    const Event<S, int64_t> now = ahead;
    ahead = read(first + kWeightThreads + block_thread());
    events.vote(0, !(now.amount == S(0)));
    events.collect([&](int) { return now; });
    for (int i = block_thread(); i < neurons; i += kWeightThreads) grad[i] = add_events(events, grad[i], signal + i);
  }
}

template <class S>
void run(const RecurrentBackwardArgs& a) {
  const int states = a.states + added_rows(a.flags);
  const Blocks blocks = {a.view.inner, kWeightThreads, BlockList<Event<S, int64_t>>::bytes(kWeightThreads)};
  launch_blocks("recurrent_backward", recurrent_weight_kernel<S>, blocks, a.executor, a, states,
                Divider<uint64_t>(a.view.outer > 0 ? a.view.outer : 1));
}

}  // namespace

void recurrent_weight_gradient(const RecurrentBackwardArgs& a) {
  a.dtype == DType::kFloat32 ? run<float>(a) : run<double>(a);
}

}  // namespace cuda
}  // namespace snnlib
