// Neurons whose spike times are differentiated, on the CPU.
#include "snnlib/loop/neuron_scan.h"
#include "snnlib/loop/scan.h"

namespace snnlib {
namespace SNNLIB_ISA {

// cpp/cpu/spike_credit.cpp
void spike_credit_forward(const SpikeTimeForwardArgs& a);
void spike_credit_backward(const SpikeTimeBackwardArgs& a);

namespace {

void forward(const SpikeTimeForwardArgs& a) {
  if (a.flags.srm) return spike_credit_forward(a);
  by_state(a.dtype, a, portable::spike_time_kernels.forward, [&](auto zero) {
    using T = decltype(zero);
    a.flags.reset_current ? scan_forward<T, SpikeTimeNeuron<true>>(a) : scan_forward<T, SpikeTimeNeuron<false>>(a);
  });
}

void backward(const SpikeTimeBackwardArgs& a) {
  if (a.flags.srm) return spike_credit_backward(a);
  by_state(a.dtype, a, portable::spike_time_kernels.backward, [&](auto zero) {
    using T = decltype(zero);
    a.flags.reset_current ? scan_backward<T, SpikeTimeNeuron<true>>(a) : scan_backward<T, SpikeTimeNeuron<false>>(a);
  });
}

}  // namespace

extern const SpikeTimeKernels spike_time_kernels = {forward, backward};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
