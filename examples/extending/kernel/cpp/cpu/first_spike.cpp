// First spikes on the CPU: a block of neurons goes back in time with its results in the L1 cache, and each step that
// spikes is the first so far.
#include "snnlib/events/first_spike.h"

#include "snnlib/loop/lines.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

template <class T>
void run_type(const FirstSpikeArgs& a) {
  const auto block = [&](int64_t o, int64_t start, int64_t count) {
    int32_t* __restrict first = a.first + o * a.view.inner + start;
    for (int64_t i = 0; i < count; ++i) first[i] = int32_t(a.view.steps);
    for (int64_t t = a.view.steps - 1; t >= 0; --t) {
      const T* __restrict x = static_cast<const T*>(a.x) + a.view.offset(o, t, start);
      SNNLIB_SIMD
      for (int64_t i = 0; i < count; ++i) first[i] = to_state(x[i]) != 0 ? int32_t(t) : first[i];
    }
  };
  for_each_block(a.view, kBlockNeurons, a.executor.threads(), block);
}

void run(const FirstSpikeArgs& a) {
  by_element(a.dtype, a, portable::first_spike_kernels.run, [&](auto zero) { run_type<decltype(zero)>(a); });
}

}  // namespace

extern const FirstSpikeKernels first_spike_kernels = {run};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
