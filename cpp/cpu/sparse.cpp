// Products with a sparse matrix by events on the CPU. A thread takes whole frames, or where there are fewer of them
// than threads some of the targets or inputs of every frame.
#include "snnlib/events/sparse.h"

#include "snnlib/events/sparse_rows.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

template <class S>
SparseRows<S> rows_of(const SparseArgs& a) {
  return {static_cast<const S*>(a.weight), a.starts, a.targets, a.inputs, a.outputs};
}

// Calls f(frame, part) for frames, or for parts of `count` targets or inputs of each so that all threads have some.
template <class F>
void for_frames(const SparseArgs& a, int64_t count, const F& f) {
  const int64_t threads = a.executor.threads();
  const int64_t parts = !count || !a.frames || a.frames >= threads ? 1 : (threads + a.frames - 1) / a.frames;
  const int64_t each = (count + parts - 1) / parts;
  parallel_for(a.frames * parts, int(threads), [&](int64_t task) {
    const int64_t part = task % parts, first = part * each, end = first + each;
    f(task / parts, TargetPart{first < count ? first : count, end < count ? end : count, part, parts});
  });
}

template <class S>
void add_currents(const SparseCurrentsArgs& a) {
  for_frames(a, a.outputs, [&](int64_t n, const TargetPart& some) {
    thread_local Scratch<int32_t> numbers;
    thread_local Scratch<S> amounts;
    Fired<S> events{numbers.reserve(a.inputs + kMoreEvents), amounts.reserve(a.inputs + kMoreEvents), 0};
    list_events(static_cast<const S*>(a.x) + n * a.inputs, 0, a.inputs, events);
    S* sums = static_cast<S*>(a.out) + n * a.outputs;
    std::memset(sums + some.first, 0, size_t(some.end - some.first) * sizeof(S));
    add_rows(rows_of<S>(a), events, some, sums);
  });
}

template <class S>
void input_gradient(const SparseGradientsArgs& a) {
  for_frames(a, a.inputs, [&](int64_t n, const TargetPart& some) {
    thread_local Scratch<int32_t> numbers;
    const int64_t count = some.end - some.first;
    int32_t* listed = numbers.reserve(count);
    for (int64_t j = 0; j < count; ++j) listed[j] = int32_t(some.first + j);
    rows_times(rows_of<S>(a), listed, count, static_cast<const S*>(a.signal) + n * a.signal_row,
               static_cast<S*>(a.grad_x) + n * a.inputs);
  });
}

template <class S>
void add_gradients_of(const SparseGradientsArgs& a) {
  if (a.grad_x) input_gradient<S>(a);
  if (!a.grad_weight) return;
  sparse_weight_gradient(
      rows_of<S>(a), a.frames, a.executor.threads(), static_cast<S*>(a.grad_weight), [&](int64_t n, const auto& take) {
        take(static_cast<const S*>(a.x) + n * a.inputs, static_cast<const S*>(a.signal) + n * a.signal_row);
      });
}

void currents(const SparseCurrentsArgs& a) {
  by_state(a.dtype, a, portable::sparse_kernels.currents, [&](auto zero) { add_currents<decltype(zero)>(a); });
}

void gradients(const SparseGradientsArgs& a) {
  by_state(a.dtype, a, portable::sparse_kernels.gradients, [&](auto zero) { add_gradients_of<decltype(zero)>(a); });
}

}  // namespace

void sparse_recurrent_forward(const SparseRecurrent<RecurrentForwardArgs>& a);
void sparse_recurrent_backward(const SparseRecurrent<RecurrentBackwardArgs>& a);
extern const SparseKernels sparse_kernels = {currents, gradients, sparse_recurrent_forward, sparse_recurrent_backward};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
