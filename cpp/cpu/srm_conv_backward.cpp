// Backward of convolution and SRM neurons from the spikes that the forward pass recorded. A task is one band of one
// sample: of output rows for the weights, of input rows for the inputs. It goes back in time row by row; both gradients
// take what they need from each.
#include "snnlib/kernels/inputs_by_spikes.h"
#include "snnlib/kernels/spike_rows.h"
#include "snnlib/kernels/weights_by_inputs.h"
#include "snnlib/kernels/weights_by_spikes.h"
#include "snnlib/parallel.h"
#include "snnlib/srm_conv.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

struct Workspace {
  Scratch<float> carried, signal, change_u, change_s, change_v;
  SpikeRowsMemory rows;
  WeightsBySpikes weights_by_spikes;
  WeightsByInputs weights_by_inputs;
  InputsBySpikes inputs;
};

using StepBack = void (*)(RecordedRow, SrmDecay<float>, CarriedCredit, RowCredit);

StepBack step_back_for(bool weights, bool by_inputs, bool inputs) {
  constexpr Credit none = Credit::none, changes = Credit::changes, signal = Credit::signal;
  if (!weights) return step_back<none, changes>;
  if (by_inputs) return inputs ? step_back<signal, changes> : step_back<signal, none>;
  return inputs ? step_back<changes, changes> : step_back<changes, none>;
}

// Hands the changes at the spikes of a row on.
template <bool Weights, bool Inputs>
void list_spikes(const RecordedRow& row, int64_t t, int64_t y, const RowCredit& credit, Workspace& w) {
  auto picks = Weights ? w.weights_by_spikes.begin_row(t, y) : WeightsBySpikes::Lister{};
  auto events = Inputs ? w.inputs.begin_row() : InputsBySpikes::Lister{};
  for_each_spike(row.bits, (row.neurons + 15) / 16, [&](int64_t place) {
    if (Weights) picks.add(place, credit.change_u[place], credit.change_s[place]);
    if (Inputs) events.add(place, credit.change_v[place]);
  });
  if (Weights) w.weights_by_spikes.end_row(t, y, picks);
  if (Inputs) w.inputs.end_row(events);
}

// `grad` is null where no weight gradient is wanted.
void run_band(const SrmConvBackwardArgs& a, int64_t task, float* grad, Workspace& w) {
  const ConvShape& s = a.shape;
  const int64_t n = task / a.bands.count, band = task % a.bands.count, row = padded(s.row());
  const Rows own = grad ? output_rows(a, band) : Rows{0, 0}, in = a.grad_input.data ? input_rows(a, band) : Rows{0, 0};
  const Rows reaching = reaching_rows(s, in), all = either(own, reaching);
  const SrmDecay<float> decay = float_decay(a.constants);
  SpikeRows rows(a, n, all.first, all.last, w.rows);
  const int64_t plane = all.count() * row;
  w.carried.zeroed(4 * plane);
  const RowCredit credit{w.signal.zeroed(row + kGroup), nullptr, w.change_u.reserve(row), w.change_s.reserve(row),
                         w.change_v.reserve(row)};
  if (own.count() && !a.by_inputs) w.weights_by_spikes.start(a, n, own, rows.spikes(), grad);
  if (own.count() && a.by_inputs) w.weights_by_inputs.start(a, n, own, grad);
  if (in.count()) w.inputs.start(a, n, in, reaching);
  for (int64_t t = s.steps - 1; t >= 0; --t) {
    if (in.count()) w.inputs.begin_step();
    for (int64_t y = all.first; y < all.last; ++y) {
      const bool for_weights = own.has(y), for_inputs = reaching.has(y);
      const RecordedRow record = rows.row(t, y);
      float* carried = w.carried.data() + (y - all.first) * row;
      step_back_for(for_weights, a.by_inputs, for_inputs)(
          record, decay, {carried, carried + plane, carried + 2 * plane, carried + 3 * plane}, credit);
      if (for_weights && a.by_inputs) w.weights_by_inputs.set_row(y, credit.a);
      const bool picked = for_weights && !a.by_inputs;
      if (picked && for_inputs) list_spikes<true, true>(record, t, y, credit, w);
      if (picked && !for_inputs) list_spikes<true, false>(record, t, y, credit, w);
      if (!picked && for_inputs) list_spikes<false, true>(record, t, y, credit, w);
    }
    if (in.count()) w.inputs.step(t);
    if (own.count() && a.by_inputs) w.weights_by_inputs.step(t);
  }
  if (own.count() && !a.by_inputs) w.weights_by_spikes.run();
}

// Sums of the blocks in their order, so that the number of threads changes nothing.
void sum_blocks(const SrmConvBackwardArgs& a, int64_t blocks) {
  constexpr int64_t kChunk = 4096;
  const int64_t floats = a.block_floats;
  parallel_for((floats + kChunk - 1) / kChunk, a.threads, [&](int64_t chunk) {
    const int64_t end = (chunk + 1) * kChunk < floats ? (chunk + 1) * kChunk : floats;
    for (int64_t i = chunk * kChunk; i < end; ++i) a.grad_weight[i] = 0.0f;
    for (int64_t b = 0; b < blocks; ++b) {
      const float* __restrict block = a.grad_weight_blocks + b * floats;
      float* __restrict sum = a.grad_weight;
      SNNLIB_SIMD
      for (int64_t i = chunk * kChunk; i < end; ++i) sum[i] += block[i];
    }
  });
}

}  // namespace

void srm_conv_backward(const SrmConvBackwardArgs& a) {
  const int64_t tasks = a.shape.batch * a.bands.count, blocks = (tasks + a.tasks_per_block - 1) / a.tasks_per_block;
  parallel_for(blocks, a.threads, [&](int64_t block) {
    thread_local Workspace workspace;
    const int64_t end = (block + 1) * a.tasks_per_block < tasks ? (block + 1) * a.tasks_per_block : tasks;
    float* grad = a.grad_weight_blocks ? a.grad_weight_blocks + block * a.block_floats : nullptr;
    if (grad) std::memset(grad, 0, size_t(a.block_floats) * sizeof(float));
    for (int64_t task = block * a.tasks_per_block; task < end; ++task) run_band(a, task, grad, workspace);
  });
  if (a.grad_weight_blocks) sum_blocks(a, blocks);
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
