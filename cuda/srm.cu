// SRM neurons on CUDA: which kernel takes a call.
#include "snnlib/loop/srm.h"
#include "srm_backward.h"
#include "srm_forward.h"

namespace snnlib {
namespace cuda {
namespace {

template <class T, int V>
void launch_forward(const SrmForwardArgs& a) {
  launch("srm_forward", srm_forward_kernel<T, V>, a.view.outer * a.view.inner / V, a.executor, Scratch{}, a,
         srm_decay<typename StateOf<T>::type>(a.flags), Places(a.view, a.period));
}

template <class T>
void forward_sequence(const SrmForwardArgs& a) {
  constexpr int V = 16 / sizeof(T);
  fits_packs<T, V>(a.view, {a.current, a.spikes}) ? launch_forward<T, V>(a) : launch_forward<T, 1>(a);
}

template <class T, int V, bool Input>
void launch_backward(const SrmBackwardArgs& a) {
  constexpr int kBytes = SrmSlot<T, V, Input>::kBytes;
  const Chunks chunks = even_chunks<kBytes>(a.view.steps);
  launch("srm_backward", srm_backward_kernel<T, V, Input>, a.view.outer * a.view.inner / V, a.executor,
         Scratch{chunks.steps * kBytes}, a, srm_decay<typename StateOf<T>::type>(a.flags), Places(a.view, a.period),
         chunks);
}

template <class T, int V>
void backward_packs(const SrmBackwardArgs& a) {
  a.input_signal ? launch_backward<T, V, true>(a) : launch_backward<T, V, false>(a);
}

template <class T>
void backward_sequence(const SrmBackwardArgs& a) {
  if (a.view.steps == 0 || (!a.input_signal && !a.weight_signal)) return;
  if constexpr (sizeof(T) < 8) {
    // Two neurons a thread share its loads, stores and addresses.
    if (fits_packs<T, 2>(a.view, {a.current, a.grad_spikes, a.weight_signal, a.input_signal})) {
      return backward_packs<T, 2>(a);
    }
  }
  backward_packs<T, 1>(a);
}

void forward(const SrmForwardArgs& a) {
  by_dtype(a.dtype, a, forward_sequence<float>, forward_sequence<double>, forward_sequence<__nv_bfloat16>,
           forward_sequence<__half>);
}

void backward(const SrmBackwardArgs& a) {
  by_dtype(a.dtype, a, backward_sequence<float>, backward_sequence<double>, backward_sequence<__nv_bfloat16>,
           backward_sequence<__half>);
}

}  // namespace

extern const SrmKernels srm_kernels = {forward, backward};

}  // namespace cuda
}  // namespace snnlib
