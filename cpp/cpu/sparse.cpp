// Products with a sparse matrix by events on the CPU. A thread takes whole frames, or where there are fewer of them
// than threads some of the targets or inputs of every frame.
#include "snnlib/events/sparse.h"

#include "snnlib/events/sparse_rows.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

template <class S>
SparseRows<S> rows_of(const SparseArgs& a) {
  return {static_cast<const S*>(a.weight), a.starts, a.targets};
}

// Calls f(frame, part) for parts of frames: enough of them for all threads.
template <class F>
void for_frames(const SparseArgs& a, int64_t parts, const F& f) {
  parallel_for(a.frames * parts, a.executor.threads(), [&](int64_t task) { f(task / parts, task % parts); });
}

int64_t parts_of(const SparseArgs& a) {
  return !a.frames || a.frames >= a.executor.threads() ? 1 : (a.executor.threads() + a.frames - 1) / a.frames;
}

template <class S>
void add_currents(const SparseCurrentsArgs& a) {
  const SparseArgs& m = a.map;
  const int64_t parts = parts_of(m), each = (m.outputs + parts - 1) / parts;
  for_frames(m, parts, [&](int64_t n, int64_t part) {
    thread_local Scratch<int32_t> numbers;
    thread_local Scratch<S> amounts;
    Fired<S> events{numbers.reserve(m.inputs + kMoreEvents), amounts.reserve(m.inputs + kMoreEvents), 0};
    list_events(static_cast<const S*>(m.x) + n * m.inputs, 0, m.inputs, events);
    const int64_t first = part * each < m.outputs ? part * each : m.outputs;
    const int64_t end = first + each < m.outputs ? first + each : m.outputs;
    S* sums = static_cast<S*>(a.out) + n * m.outputs;
    std::memset(sums + first, 0, size_t(end - first) * sizeof(S));
    add_rows(rows_of<S>(m), events, {first, end, m.outputs, part, parts}, sums);
  });
}

template <class S>
void input_gradient(const SparseGradientsArgs& a) {
  const SparseArgs& m = a.map;
  const int64_t parts = parts_of(m), each = (m.inputs + parts - 1) / parts;
  for_frames(m, parts, [&](int64_t n, int64_t part) {
    thread_local Scratch<int32_t> numbers;
    const int64_t first = part * each < m.inputs ? part * each : m.inputs;
    const int64_t end = first + each < m.inputs ? first + each : m.inputs;
    int32_t* listed = numbers.reserve(each);
    for (int64_t j = first; j < end; ++j) listed[j - first] = int32_t(j);
    rows_times(rows_of<S>(m), listed, end - first, static_cast<const S*>(a.signal) + n * m.outputs,
               static_cast<S*>(a.grad_x) + n * m.inputs);
  });
}

template <class S>
void add_gradients_of(const SparseGradientsArgs& a) {
  const SparseArgs& m = a.map;
  if (a.grad_x) input_gradient<S>(a);
  if (!a.grad_weight) return;
  sparse_weight_gradient(rows_of<S>(m), m.inputs, m.frames, m.executor.threads(), static_cast<S*>(a.grad_weight),
                         [&](int64_t n, const auto& take) {
                           take(static_cast<const S*>(m.x) + n * m.inputs,
                                static_cast<const S*>(a.signal) + n * m.outputs);
                         });
}

void currents(const SparseCurrentsArgs& a) {
  by_state(a.map.dtype, a, portable::sparse_kernels.currents, [&](auto zero) { add_currents<decltype(zero)>(a); });
}

void gradients(const SparseGradientsArgs& a) {
  by_state(a.map.dtype, a, portable::sparse_kernels.gradients, [&](auto zero) { add_gradients_of<decltype(zero)>(a); });
}

}  // namespace

void sparse_recurrent_forward(const SparseRecurrent<RecurrentForwardArgs>& a);
void sparse_recurrent_backward(const SparseRecurrent<RecurrentBackwardArgs>& a);
extern const SparseKernels sparse_kernels = {currents, gradients, sparse_recurrent_forward, sparse_recurrent_backward};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
