// The dense signals a and b of convolution and SRM neurons from the record of their spikes, for a dense backward pass.
#include "snnlib/kernels/band_rows.h"
#include "snnlib/kernels/linear_adjoint.h"
#include "snnlib/kernels/spike_rows.h"
#include "snnlib/parallel.h"
#include "snnlib/srm_conv.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

struct Workspace {
  SpikeRowsMemory rows;
  Scratch<float> carried;
  LinearAdjoint adjoint;
};

void run_band(const SrmConvSignalsArgs& args, int64_t task, Workspace& w) {
  const ConvShape& s = args.shape;
  const int64_t n = task / args.bands.count, row = s.row(), stored = padded(row);
  const size_t bytes = size_t(row) * sizeof(float);
  const Rows own = output_rows(args, task % args.bands.count);
  const SrmDecay<float> decay = float_decay(args.constants);
  SpikeRows rows(args, n, own.first, own.last, w.rows);
  if (args.neuron == LayerNeuron::kLinear) {
    w.adjoint.start(args, own);
    for (int64_t t = s.steps - 1; t >= 0; --t) {
      for (int64_t y = own.first; y < own.last; ++y) {
        std::memcpy(args.a + (args.frames(t, n) * s.height + y) * row, w.adjoint.step(y, rows.next()), bytes);
      }
    }
    return;
  }
  const int64_t plane = own.count() * stored;
  w.carried.zeroed(3 * plane);
  for (int64_t t = s.steps - 1; t >= 0; --t) {
    for (int64_t y = own.first; y < own.last; ++y) {
      const int64_t at = (args.frames(t, n) * s.height + y) * row;
      const SpikeRow spikes = rows.next();
      float* u = w.carried.data() + (y - own.first) * stored;
      float *synapse = u + plane, *g = synapse + plane;
      if (args.a) {
        for (int64_t i = 0; i < spikes.count; ++i) {
          const int32_t place = spikes.places[i];
          u[place] = 0.0f;
          synapse[place] = spikes.q[place] * spikes.slope[i];
        }
        step_back(u, synapse, stored, decay);
        std::memcpy(args.a + at, u, bytes);
      }
      if (args.b) {
        for (int64_t i = 0; i < spikes.count; ++i) {
          const int32_t place = spikes.places[i];
          g[place] = spikes.q[place] * spikes.gain[i];
        }
        scale(g, stored, decay.e_g);
        std::memcpy(args.b + at, g, bytes);
      }
    }
  }
}

}  // namespace

void srm_conv_signals(const SrmConvSignalsArgs& a) {
  parallel_for(a.shape.batch * a.bands.count, a.threads, [&](int64_t task) {
    thread_local Workspace workspace;
    run_band(a, task, workspace);
  });
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
