// Neurons whose step is a program, on the CPU: a tile of neurons walks through all time steps with its registers in the
// L1 cache. Backward repeats a chunk of steps from its checkpoint and walks back through it, so that what it saves of
// steps stays in the L2 cache for any number of steps.
#include "snnlib/program/tile.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

template <class S>
void run_all(const ProgramCode& code, const Register<S>* r, int64_t neurons) {
  for (const int32_t *at = code.numbers, *end = at + code.count * kCodeNumbers; at < end; at += kCodeNumbers)
    Operations<S>::kAll[at[0]](r, at, neurons);
}

// The states at the beginning of a later chunk, [states][outer * inner].
template <class S, class Args>
void* checkpoint(const Args& a, int64_t chunk) {
  return static_cast<S*>(a.checkpoints) + (chunk - 1) * a.states * a.view.outer * a.view.inner;
}

template <class T>
void forward_tile(const ProgramForwardArgs& a, bool streamed, int64_t o, int64_t first, int64_t count) {
  using S = typename StateOf<T>::type;
  Tile<S> tile(a, a.tile, o, first, count, 0);
  for (int k = 0; k < 2 * a.states; ++k) tile.tile(tile.at.y + k);
  tile.load(tile.at.y, a.states, a.state_in);
  S *const current = tile.tile(tile.at.x), *const value = tile.tile(tile.at.value);
  const int64_t stride = a.view.step_stride, start = a.view.offset(o, 0, first);
  const T* x = static_cast<const T*>(a.current) + start;
  T* to = static_cast<T*>(a.value) + start;
  for (int64_t t = 0; t < a.view.steps; ++t) {
    if (t + 1 < a.view.steps) prefetch(x + (t + 1) * stride, count);
    if (a.checkpoints && t && t % a.chunk == 0) tile.store(tile.at.y, a.states, checkpoint<S>(a, t / a.chunk));
    tile.read(tile.at.x, x + t * stride, current);
    tile.write(a.flags.forward, to + t * stride, value, streamed);
    tile.swap(tile.at.y, tile.at.z);
  }
  tile.store(tile.at.y, a.states, a.state_out);
  if (streamed) finish_streams();
}

template <class T>
void backward_tile(const ProgramBackwardArgs& a, bool streamed, int64_t o, int64_t first, int64_t count) {
  using S = typename StateOf<T>::type;
  const int64_t steps = a.view.steps, chunk = a.chunk < steps ? a.chunk : steps, K = a.states;
  Tile<S> tile(a, a.tile, o, first, count, (chunk + 1) * K + chunk * a.flags.saved);
  const auto& at = tile.at;
  for (int k = 0; k < 2 * K; ++k) tile.tile(at.g + k);
  tile.load(at.g, int(K), a.grad_state_out);
  S *const current = tile.tile(at.x), *const grad = tile.tile(at.q), *const found = tile.tile(at.value);
  S *const states = tile.rest(), *const saved = states + (chunk + 1) * K * a.tile;
  const int64_t stride = a.view.step_stride, start = a.view.offset(o, 0, first);
  const T *x = static_cast<const T*>(a.current) + start, *q = static_cast<const T*>(a.grad_value) + start;
  T* to = static_cast<T*>(a.grad_current) + start;
  // Registers of step t of a chunk, and the current.
  const auto enter = [&](int64_t t, int64_t begin) {
    tile.enter(states, saved, t - begin);
    tile.read(at.x, x + t * stride, current);
  };
  for (int64_t number = steps ? (steps - 1) / chunk : -1; number >= 0; --number) {
    const int64_t begin = number * chunk, end = begin + chunk < steps ? begin + chunk : steps;
    for (int64_t t = begin; t < end; ++t) {
      if (t + 1 < end) prefetch(x + (t + 1) * stride, count);
      enter(t, begin);
      if (t == begin) tile.load(at.y, int(K), number ? checkpoint<S>(a, number) : a.state_in);
      tile.run(a.flags.again);
    }
    for (int64_t t = end - 1; t >= begin; --t) {
      if (t > 0) prefetch(q + (t - 1) * stride, count);
      enter(t, begin);
      tile.read(at.q, q + t * stride, grad);
      tile.write(a.flags.back, to + t * stride, found, streamed);
      tile.swap(at.g, at.h);
    }
  }
  tile.store(at.g, int(K), a.grad_state_in);
  tile.store(at.sum, a.flags.learned, a.grad_coefficients);
  if (streamed) finish_streams();
}

// Least size of results that are stored past the caches. The rows of a tile lie pages apart, and reading the lines that
// they overwrite takes a quarter of the time of both passes.
constexpr int64_t kPassedBytes = int64_t(4) << 20;

template <class T>
bool passes_caches(const SequenceView& view, const void* output) {
  constexpr int64_t bytes = sizeof(T);
  return view.outer * view.steps * view.inner * bytes >= kPassedBytes &&
         streamable(output, kStreamedBytes, view.step_stride * bytes);
}

void forward(const ProgramForwardArgs& a) {
  by_element(a.dtype, a, portable::program_kernels.forward, [&](auto zero) {
    using T = decltype(zero);
    const bool streamed = passes_caches<T>(a.view, a.value);
    for_each_block(a.view, a.tile, a.executor.threads(),
                   [&](int64_t o, int64_t first, int64_t count) { forward_tile<T>(a, streamed, o, first, count); });
  });
}

void backward(const ProgramBackwardArgs& a) {
  by_element(a.dtype, a, portable::program_kernels.backward, [&](auto zero) {
    using T = decltype(zero);
    const bool streamed = passes_caches<T>(a.view, a.grad_current);
    for_each_block(a.view, a.tile, a.executor.threads(),
                   [&](int64_t o, int64_t first, int64_t count) { backward_tile<T>(a, streamed, o, first, count); });
  });
}

}  // namespace

void run_code(const ProgramCode& code, const Register<float>* r, int64_t neurons) {
  if constexpr (kHasFloat32) run_all(code, r, neurons);
}
void run_code(const ProgramCode& code, const Register<double>* r, int64_t neurons) {
  if constexpr (kHasFloat64) run_all(code, r, neurons);
}

void program_recurrent_forward(const ProgramRecurrentForwardArgs& a);
void program_recurrent_backward(const ProgramRecurrentBackwardArgs& a);
extern const ProgramKernels program_kernels = {forward, backward, program_recurrent_forward,
                                               program_recurrent_backward};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
