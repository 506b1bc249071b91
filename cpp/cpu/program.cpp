// Neurons whose step is a program, on the CPU: a tile of neurons walks through all time steps with its registers in the
// L1 cache. Backward repeats a chunk of steps from its checkpoint and walks back through it, so that what it saves of
// steps stays in the L2 cache for any number of steps.
#include "snnlib/program/program.h"

#include "snnlib/loop/lines.h"
#include "snnlib/program/machine.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

// Numbers of the first register of each kind.
struct Places {
  int x, q, y, z, value, g, h, saved, temporary, sum, count;
  explicit Places(const ProgramArgs& a) {
    x = a.literals + a.constants, q = x + 1, y = q + 1, z = y + a.states, value = z + a.states;
    g = value + 1, h = g + a.states, saved = h + a.states, temporary = saved + a.saved;
    sum = temporary + a.temporaries, count = sum + a.learned;
  }
};

// Registers of a thread and the memory of their tiles. Nothing here is inlined: a call takes a row of a tile at least.
template <class S>
class Tile {
 public:
  static constexpr int64_t kStep = Simd<S>::kLanes;
  const Places at;

  // Neurons [first, first + count) of one outer index; `more` tiles of room behind those that all passes have.
  SNNLIB_NOINLINE Tile(const ProgramArgs& a, int64_t o, int64_t first, int64_t count, int64_t more)
      : at(a), args_(a), count_(count), padded_((count + kProgramUnit - 1) / kProgramUnit * kProgramUnit) {
    thread_local Scratch<Register<S>> registers;
    thread_local Scratch<S> memory;
    r_ = of_thread(registers).reserve(at.count);
    const bool own = a.period > 1;
    const int64_t numbers = (a.literals + (own ? 0 : a.constants)) * kProgramUnit;
    const int64_t tiles = (own ? a.constants : 0) + 4 * a.states + a.temporaries + a.learned + 3 + more;
    next_ = of_thread(memory).reserve(numbers + tiles * a.tile);
    for (int i = 0; i < a.literals; ++i) number(i, static_cast<const S*>(a.literal_values)[i]);
    for (int i = 0; i < a.constants; ++i) {
      const S* row = static_cast<const S*>(a.constant_values) + i * a.period;
      if (!own) {
        number(a.literals + i, *row);
        continue;
      }
      S* to = tile(a.literals + i);
      for (int64_t j = 0; j < padded_; ++j) to[j] = row[(first + (j < count ? j : 0)) % a.period];
    }
    for (int i = 0; i < a.temporaries; ++i) tile(at.temporary + i);
    for (int i = 0; i < a.learned; ++i) zero(tile(at.sum + i));
    all_ = a.view.outer * a.view.inner, offset_ = o * a.view.inner + first;
  }

  // A register with a tile of its own.
  SNNLIB_NOINLINE S* tile(int i) {
    place(i, next_);
    next_ += args_.tile;
    return r_[i].at;
  }
  // Room for further tiles.
  S* rest() const { return next_; }
  void place(int i, S* p) { r_[i] = {p, kStep}; }
  S* of(int i) const { return r_[i].at; }
  SNNLIB_NOINLINE void swap(int i, int j) {
    for (int k = 0; k < args_.states; ++k) {
      S* p = of(i + k);
      place(i + k, of(j + k));
      place(j + k, p);
    }
  }
  void zero(S* p) const { std::memset(p, 0, size_t(padded_) * sizeof(S)); }
  void run(const ProgramCode& code) const { run_code<S>(code.numbers, code.count, r_, padded_); }

  // Has a register read a row of the sequence: where it lies, or as a copy in `copy`.
  template <class T>
  SNNLIB_NOINLINE void read(int i, const T* row, S* copy) {
    if constexpr (std::is_same_v<T, S>) {
      // No instruction writes it.
      if (count_ == padded_) return place(i, const_cast<S*>(row));
    }
    for (int64_t j = 0; j < padded_; j += kStep) {
      const auto lanes = load_lanes<T>(row + (j < count_ ? j : 0), count_ - j);
      std::memcpy(copy + j, &lanes, sizeof lanes);
    }
    place(i, copy);
  }
  // Runs a program whose result is a row of the sequence.
  template <class T>
  SNNLIB_NOINLINE void write(const ProgramCode& code, T* row, S* copy, bool streamed) {
    if constexpr (std::is_same_v<T, S>) {
      if (count_ == padded_ && !streamed) {
        place(at.value, row);
        return run(code);
      }
    }
    place(at.value, copy);
    run(code);
    for_each_line<T>(count_, [&](int64_t j, int64_t neurons) {
      Line<T> line;
      for (int64_t v = 0; v < Line<T>::kVectors; ++v)
        std::memcpy(&line.vector[v], copy + j + v * kStep, sizeof(line.vector[v]));
      streamed ? line.template store<true>(row + j, neurons) : line.template store<false>(row + j, neurons);
    });
  }
  // Numbers [rows][all neurons] of these neurons, from and to registers.
  SNNLIB_NOINLINE void load(int i, int rows, const void* from) const {
    for (int k = 0; k < rows; ++k) {
      zero(of(i + k));
      if (from) std::memcpy(of(i + k), static_cast<const S*>(from) + k * all_ + offset_, size_t(count_) * sizeof(S));
    }
  }
  SNNLIB_NOINLINE void store(int i, int rows, void* to) const {
    for (int k = 0; k < rows; ++k)
      std::memcpy(static_cast<S*>(to) + k * all_ + offset_, of(i + k), size_t(count_) * sizeof(S));
  }
  // The states at the beginning of a later chunk, as above.
  void* checkpoint(int64_t chunk) const {
    return static_cast<S*>(args_.checkpoints) + (chunk - 1) * args_.states * all_;
  }

 private:
  void number(int i, S value) {
    r_[i] = {next_, 0};
    for (int64_t j = 0; j < kStep; ++j) next_[j] = value;
    next_ += kProgramUnit;
  }

  const ProgramArgs& args_;
  const int64_t count_, padded_;
  int64_t all_, offset_;
  Register<S>* r_;
  S* next_;
};

template <class T>
void forward_tile(const ProgramForwardArgs& a, bool streamed, int64_t o, int64_t first, int64_t count) {
  using S = typename StateOf<T>::type;
  Tile<S> tile(a, o, first, count, 0);
  for (int k = 0; k < 2 * a.states; ++k) tile.tile(tile.at.y + k);
  tile.load(tile.at.y, a.states, a.state_in);
  S *const current = tile.tile(tile.at.x), *const value = tile.tile(tile.at.value);
  const int64_t stride = a.view.step_stride, start = a.view.offset(o, 0, first);
  const T* x = static_cast<const T*>(a.current) + start;
  T* to = static_cast<T*>(a.value) + start;
  for (int64_t t = 0; t < a.view.steps; ++t) {
    if (t + 1 < a.view.steps) prefetch(x + (t + 1) * stride, count);
    if (a.checkpoints && t && t % a.chunk == 0) tile.store(tile.at.y, a.states, tile.checkpoint(t / a.chunk));
    tile.read(tile.at.x, x + t * stride, current);
    tile.write(a.code, to + t * stride, value, streamed);
    tile.swap(tile.at.y, tile.at.z);
  }
  tile.store(tile.at.y, a.states, a.state_out);
  if (streamed) finish_streams();
}

template <class T>
void backward_tile(const ProgramBackwardArgs& a, bool streamed, int64_t o, int64_t first, int64_t count) {
  using S = typename StateOf<T>::type;
  const int64_t steps = a.view.steps, chunk = a.chunk < steps ? a.chunk : steps, K = a.states;
  Tile<S> tile(a, o, first, count, (chunk + 1) * K + chunk * a.saved);
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
    for (int k = 0; k < K; ++k) {
      tile.place(at.y + k, states + ((t - begin) * K + k) * a.tile);
      tile.place(at.z + k, states + ((t - begin + 1) * K + k) * a.tile);
    }
    for (int k = 0; k < a.saved; ++k) tile.place(at.saved + k, saved + ((t - begin) * a.saved + k) * a.tile);
    tile.read(at.x, x + t * stride, current);
  };
  for (int64_t number = steps ? (steps - 1) / chunk : -1; number >= 0; --number) {
    const int64_t begin = number * chunk, end = begin + chunk < steps ? begin + chunk : steps;
    for (int64_t t = begin; t < end; ++t) {
      if (t + 1 < end) prefetch(x + (t + 1) * stride, count);
      enter(t, begin);
      if (t == begin) tile.load(at.y, int(K), number ? tile.checkpoint(number) : a.state_in);
      tile.run(a.again);
    }
    for (int64_t t = end - 1; t >= begin; --t) {
      if (t > 0) prefetch(q + (t - 1) * stride, count);
      enter(t, begin);
      tile.read(at.q, q + t * stride, grad);
      tile.write(a.back, to + t * stride, found, streamed);
      tile.swap(at.g, at.h);
    }
  }
  tile.store(at.g, int(K), a.grad_state_in);
  tile.store(at.sum, a.learned, a.grad_constants);
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

extern const ProgramKernels program_kernels = {forward, backward};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
