// Backward of convolution and SRM neurons from the spikes that the forward pass recorded. A task is one band of one
// sample: of output rows for the weights and the state, of input rows for the inputs. It goes back in time row by row;
// all gradients take what they need from each.
#include "snnlib/core/threads.h"
#include "snnlib/layer/inputs_by_spikes.h"
#include "snnlib/layer/layer.h"
#include "snnlib/layer/recorded_spikes.h"
#include "snnlib/layer/srm_rows.h"
#include "snnlib/layer/weights_by_inputs.h"
#include "snnlib/layer/weights_by_spikes.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

struct Workspace {
  SpikeRowsMemory rows;
  WeightsBySpikes weights_by_spikes;
  WeightsByInputs weights_by_inputs;
  InputsBySpikes inputs;
  LinearAdjoint adjoint;
  StateGradient state;
  Scratch<float> current;  // a row of currents' gradients
  Scratch<float> carried;  // dense signals
};

// The weight gradient of one band of a convolution without neurons: `grad_output` is the signal.
void run_band_of_currents(const LayerBackwardArgs& a, int64_t task, float* grad, Workspace& w) {
  const ConvShape& s = a.shape;
  const int64_t n = task / a.bands.count;
  const Rows own = output_rows(s, a.bands, task % a.bands.count);
  w.weights_by_inputs.start(a, n, own, grad);
  float* copy = w.current.reserve(s.row() + kGroup);
  for (int64_t t = s.steps - 1; t >= 0; --t) {
    w.weights_by_inputs.begin_step(t);
    for (int64_t y = own.first; y < own.last; ++y) {
      if (!w.weights_by_inputs.sees(y)) continue;
      const int64_t at = (a.frames(t, n) * s.height + y) * s.row();
      w.weights_by_inputs.set_row(y, read_floats(a.grad_output, at, s.row(), copy));
    }
    w.weights_by_inputs.step();
  }
}

// `grad` is null where no weight gradient is wanted.
void run_band(const LayerBackwardArgs& a, int64_t task, float* grad, Workspace& w) {
  const ConvShape& s = a.shape;
  const int64_t n = task / a.bands.count, band = task % a.bands.count;
  const Rows own = grad ? output_rows(s, a.bands, band) : Rows{0, 0},
             in = a.grad_input.data ? input_rows(s, a.bands, band) : Rows{0, 0};
  const Rows state = a.grad_start ? output_rows(s, a.bands, band) : Rows{0, 0}, reaching = reaching_rows(s, in);
  const Rows all = either(either(own, state), reaching);
  SpikeRows rows(a, n, all.first, all.last, w.rows);
  if (own.count() && !a.by_inputs) w.weights_by_spikes.start(a, n, own, rows.spikes(), grad);
  if (own.count() && a.by_inputs) w.weights_by_inputs.start(a, n, own, grad);
  if (in.count()) w.inputs.start(a, n, in, reaching);
  const bool linear = a.neuron == LayerNeuron::kLinear;
  if (linear) w.adjoint.start(a, n, all);
  if (!linear && state.count()) w.state.start(a, n, state);
  for (int64_t t = s.steps - 1; t >= 0; --t) {
    if (in.count()) w.inputs.begin_step();
    if (own.count() && a.by_inputs) w.weights_by_inputs.begin_step(t);
    for (int64_t y = all.first; y < all.last; ++y) {
      const SpikeRow spikes = rows.next();
      if (linear) {
        const float* lam = w.adjoint.step(y, spikes);
        if (own.has(y) && a.by_inputs && w.weights_by_inputs.sees(y)) w.weights_by_inputs.set_row(y, lam);
        if (own.has(y) && !a.by_inputs) w.weights_by_spikes.add_amounts(t, y, spikes, w.adjoint.amounts());
        if (reaching.has(y)) w.inputs.add_amounts(spikes, w.adjoint.amounts());
        continue;
      }
      if (own.has(y) && a.by_inputs) w.weights_by_inputs.add_row(y, spikes);
      if (own.has(y) && !a.by_inputs) w.weights_by_spikes.add_row(t, y, spikes);
      if (reaching.has(y)) w.inputs.add_row(t, y, spikes);
      if (state.has(y)) w.state.add_row(t, y, spikes);
    }
    if (in.count()) w.inputs.step(t);
    if (own.count() && a.by_inputs) w.weights_by_inputs.step();
  }
  if (own.count() && !a.by_inputs) w.weights_by_spikes.run();
  if (!linear && state.count()) w.state.finish(a.grad_start);
  for (int64_t y = state.first; linear && y < state.last; ++y) {
    std::memcpy(a.grad_start + (n * s.height + y) * s.row(), w.adjoint.before(y), size_t(s.row()) * sizeof(float));
  }
}

// The dense signals a and b from the record of the spikes, for a dense backward pass, and what comes back to the state.
void run_band_of_signals(const LayerSignalsArgs& args, int64_t task, Workspace& w) {
  const ConvShape& s = args.shape;
  const int64_t n = task / args.bands.count, row = s.row(), stored = padded(row);
  const size_t bytes = size_t(row) * sizeof(float);
  const Rows own = output_rows(s, args.bands, task % args.bands.count);
  const SrmDecay<float> decay = float_decay(args.constants);
  SpikeRows rows(args, n, own.first, own.last, w.rows);
  if (args.neuron == LayerNeuron::kLinear) {
    w.adjoint.start(args, n, own);
    for (int64_t t = s.steps - 1; t >= 0; --t) {
      for (int64_t y = own.first; y < own.last; ++y) {
        const float* lam = w.adjoint.step(y, rows.next());
        if (args.a) std::memcpy(args.a + (args.frames(t, n) * s.height + y) * row, lam, bytes);
      }
    }
    for (int64_t y = own.first; args.grad_start && y < own.last; ++y) {
      std::memcpy(args.grad_start + (n * s.height + y) * row, w.adjoint.before(y), bytes);
    }
    return;
  }
  const int64_t plane = own.count() * stored;
  w.carried.zeroed(3 * plane);
  const float ratio = credit_ratio(args.constants);
  for (int64_t y = own.first; args.grad_state && y < own.last; ++y) {
    float* u = w.carried.data() + (y - own.first) * stored;
    credit_of_state(args.grad_state_row(0, n, y), args.grad_state_row(1, n, y), row, ratio, u, u + plane);
    std::memcpy(u + 2 * plane, args.grad_state_row(2, n, y), bytes);
  }
  for (int64_t t = s.steps - 1; t >= 0; --t) {
    for (int64_t y = own.first; y < own.last; ++y) {
      const int64_t at = (args.frames(t, n) * s.height + y) * row;
      const SpikeRow spikes = rows.next();
      float* u = w.carried.data() + (y - own.first) * stored;
      float *synapse = u + plane, *g = synapse + plane;
      if (args.a || args.grad_start) {
        for (int64_t i = 0; i < spikes.count; ++i) {
          const int32_t place = spikes.places[i];
          u[place] = 0.0f;
          synapse[place] = spikes.q[place] * spikes.slope[i];
        }
        step_back(u, synapse, stored, decay);
        if (args.a) std::memcpy(args.a + at, u, bytes);
      }
      if (args.b || args.grad_start) {
        for (int64_t i = 0; i < spikes.count; ++i) {
          const int32_t place = spikes.places[i];
          g[place] = spikes.q[place] * spikes.gain[i];
        }
        scale(g, stored, decay.e_g);
        if (args.b) std::memcpy(args.b + at, g, bytes);
      }
    }
  }
  const int64_t image = s.height * row, variable = s.batch * image;
  for (int64_t y = own.first; args.grad_start && y < own.last; ++y) {
    const float* u = w.carried.data() + (y - own.first) * stored;
    float* out = args.grad_start + n * image + y * row;
    state_of_credit(u, u + plane, row, ratio, out, out + variable);
    std::memcpy(out + 2 * variable, u + 2 * plane, bytes);
  }
}

// Sums of the blocks in their order, so that the number of threads changes nothing.
void sum_blocks(const LayerBackwardArgs& a, int64_t blocks) {
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

void layer_backward(const LayerBackwardArgs& a) {
  const int64_t tasks = a.shape.batch * a.bands.count, blocks = (tasks + a.tasks_per_block - 1) / a.tasks_per_block;
  parallel_for(blocks, a.threads, [&](int64_t block) {
    thread_local Workspace local;
    Workspace& workspace = of_thread(local);
    const int64_t end = (block + 1) * a.tasks_per_block < tasks ? (block + 1) * a.tasks_per_block : tasks;
    float* grad = a.grad_weight_blocks ? a.grad_weight_blocks + block * a.block_floats : nullptr;
    if (grad) std::memset(grad, 0, size_t(a.block_floats) * sizeof(float));
    const auto run = a.neuron == LayerNeuron::kNone ? run_band_of_currents : run_band;
    for (int64_t task = block * a.tasks_per_block; task < end; ++task) run(a, task, grad, workspace);
  });
  if (a.grad_weight_blocks) sum_blocks(a, blocks);
}

void layer_signals(const LayerSignalsArgs& a) {
  parallel_for(a.shape.batch * a.bands.count, a.threads, [&](int64_t task) {
    thread_local Workspace local;
    Workspace& workspace = of_thread(local);
    run_band_of_signals(a, task, workspace);
  });
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
