// The dense signals a and b of convolution and SRM neurons from the record of their spikes, for a dense backward pass,
// and what comes back to the state that the sequence started from.
#include "snnlib/core/parallel.h"
#include "snnlib/layer/bands.h"
#include "snnlib/layer/layer.h"
#include "snnlib/layer/linear_adjoint.h"
#include "snnlib/layer/recorded_spikes.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

struct Workspace {
  SpikeRowsMemory rows;
  Scratch<float> carried;
  LinearAdjoint adjoint;
};

void run_band(const LayerSignalsArgs& args, int64_t task, Workspace& w) {
  const ConvShape& s = args.shape;
  const int64_t n = task / args.bands.count, row = s.row(), stored = padded(row);
  const size_t bytes = size_t(row) * sizeof(float);
  const Rows own = output_rows(args, task % args.bands.count);
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

}  // namespace

void layer_signals(const LayerSignalsArgs& a) {
  parallel_for(a.shape.batch * a.bands.count, a.threads, [&](int64_t task) {
    thread_local Workspace local;
    Workspace& workspace = of_thread(local);
    run_band(a, task, workspace);
  });
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
