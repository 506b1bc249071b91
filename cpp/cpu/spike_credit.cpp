// Neurons of the spike response model on the CPU: apart from spike_time.cpp, with which GCC would inline less of both.
#include "snnlib/loop/neuron_scan.h"
#include "snnlib/loop/scan.h"

namespace snnlib {
namespace SNNLIB_ISA {

// Neurons walk with their trace where it is asked for.
void spike_credit_forward(const SpikeTimeForwardArgs& a) {
  by_element(a.dtype, a, portable::spike_time_kernels.forward, [&](auto zero) {
    using T = decltype(zero);
    a.state_out ? scan_forward<T, SpikeCreditNeuron<true>>(a) : scan_forward<T, SpikeCreditNeuron<false>>(a);
  });
}

void spike_credit_backward(const SpikeTimeBackwardArgs& a) {
  // The loop with the trace alone may store no signal for the weights.
  const bool both = !a.grad_current || a.input_signal || a.grad_state_in || a.grad_state_out;
  by_element(a.dtype, a, portable::spike_time_kernels.backward, [&](auto zero) {
    using T = decltype(zero);
    both ? scan_backward<T, SpikeCreditNeuron<true>>(a) : scan_backward<T, SpikeCreditNeuron<false>>(a);
  });
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
