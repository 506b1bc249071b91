// The dense signals a and b of convolution and SRM neurons from the record of their spikes, for a dense backward pass.
#include "snnlib/kernels/band_rows.h"
#include "snnlib/kernels/spike_rows.h"
#include "snnlib/parallel.h"
#include "snnlib/srm_conv.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

struct Workspace {
  SpikeRowsMemory rows;
  Scratch<float> carried, a, b;
};

void run_band(const SrmConvSignalsArgs& args, int64_t task, Workspace& w) {
  const ConvShape& s = args.shape;
  const int64_t n = task / args.bands.count, row = s.row(), stored = padded(row);
  const Rows own = output_rows(args, task % args.bands.count);
  const SrmDecay<float> decay = float_decay(args.constants);
  constexpr Credit none = Credit::none, signal = Credit::signal;
  const auto step = !args.a ? step_back<none, signal> : args.b ? step_back<signal, signal> : step_back<signal, none>;
  SpikeRows rows(args, n, own.first, own.last, w.rows);
  const int64_t plane = own.count() * stored;
  w.carried.zeroed(3 * plane);
  float *a = w.a.reserve(stored), *b = w.b.reserve(stored);
  for (int64_t t = s.steps - 1; t >= 0; --t) {
    for (int64_t y = own.first; y < own.last; ++y) {
      const int64_t at = (args.frames(t, n) * s.height + y) * row;
      float* carried = w.carried.data() + (y - own.first) * stored;
      const bool whole = row == stored;
      step(rows.row(t, y), decay, {nullptr, carried, carried + plane, carried + 2 * plane},
           {whole && args.a ? args.a + at : a, whole && args.b ? args.b + at : b, nullptr, nullptr, nullptr});
      if (!whole && args.a) std::memcpy(args.a + at, a, size_t(row) * sizeof(float));
      if (!whole && args.b) std::memcpy(args.b + at, b, size_t(row) * sizeof(float));
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
