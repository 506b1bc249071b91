// Work of threads, and the memory that each keeps between calls.
//
// parallel_for(tasks, threads, f): f(task) for every task in [0, tasks), on the OpenMP pool that torch uses too.
// One thread runs without a parallel region: a forked DataLoader worker may not start one. What a task throws is thrown
// again by parallel_for, the first of several; tasks that have not begun by then are left out.
#pragma once

#include <cstdint>
#include <cstring>
#include <new>

#if defined(SNNLIB_STD_THREADS)
#include <atomic>
#include <thread>
#include <vector>
#endif

#include "snnlib/core/platform.h"

namespace snnlib {

// The first exception of the tasks of a loop. Compiled once, for any processor: inline code of the standard library
// would be shared between instruction sets.
class TaskError {
 public:
  TaskError();
  TaskError(const TaskError&) = delete;
  TaskError& operator=(const TaskError&) = delete;
  ~TaskError();

  // Keeps the exception that is being handled if it is the first; from any thread.
  void keep() noexcept;
  // True if there is one; from any thread.
  bool any() const noexcept;
  // Throws it, if there is one; after the loop.
  void rethrow();

 private:
  struct Kept;
  Kept* kept_;
};

// While it lives, its thread treats denormal numbers as told, and afterwards as before. Whether they count as zero is a
// setting of each thread, and no result may depend on the thread: parallel_for gives its threads the caller's.
//
// Kernels of float32 and the half types run flushed: a potential that decays without input is denormal from some 90
// time constants on, and a processor takes up to a hundred times as long for a denormal number as for zero. Kernels of
// float64 run in the mode of their caller (`torch.set_flush_denormal`).
class FloatMode {
 public:
  // The mode of this thread.
  static uint64_t current() noexcept;
  // The mode in which denormal operands and results are 0.
  static uint64_t flushed() noexcept;

  explicit FloatMode(uint64_t mode) noexcept;
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;
  ~FloatMode();

 private:
  uint64_t before_;
};

#if defined(SNNLIB_STD_THREADS)
// Each task on the next thread that is free. For the thread sanitizer, which does not see how OpenMP's runtime orders
// its threads and would report every loop.
template <class F>
void on_threads(int64_t tasks, int threads, const F& run) {
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) run(task);
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
}
#endif

template <class F>
void parallel_for(int64_t tasks, int threads, const F& f) {
#if defined(SNNLIB_STD_THREADS) || defined(_OPENMP)
  if (threads > 1 && tasks > 1) {
    TaskError error;
    const uint64_t mode = FloatMode::current();
    // No exception may leave a thread.
    const auto run = [&](int64_t task) {
      const FloatMode scope(mode);
      try {
        if (!error.any()) f(task);
      } catch (...) {
        error.keep();
      }
    };
#if defined(SNNLIB_STD_THREADS)
    on_threads(tasks, threads, run);
#else
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t task = 0; task < tasks; ++task) run(task);
#endif
    error.rethrow();
    return;
  }
#endif
  (void)threads;
  for (int64_t task = 0; task < tasks; ++task) f(task);
}

namespace SNNLIB_ISA {

// Memory that a thread keeps between calls, aligned to vectors; grows to what it has needed so far. No std::vector:
// its code would be shared between instruction sets.
template <class T>
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { release(data_); }

  // Room for `wanted` elements; what was there is lost.
  T* reserve(int64_t wanted) {
    if (wanted > size_) {
      release(data_);
      data_ = nullptr;
      size_ = 0;
      data_ = allocate(wanted);
      size_ = wanted;
    }
    return data_;
  }

  // Room for `wanted` elements; the first `kept` stay.
  T* grow(int64_t wanted, int64_t kept) {
    if (wanted > size_) {
      const int64_t size = wanted > 2 * size_ ? wanted : 2 * size_;
      T* data = allocate(size);
      if (kept) std::memcpy(static_cast<void*>(data), data_, size_t(kept) * sizeof(T));
      release(data_);
      data_ = data;
      size_ = size;
    }
    return data_;
  }

  T* data() const { return data_; }

  T* zeroed(int64_t wanted) {
    T* data = reserve(wanted);
    if (wanted) std::memset(static_cast<void*>(data), 0, size_t(wanted) * sizeof(T));
    return data;
  }

 private:
  static constexpr std::align_val_t kAlign{64};
  static T* allocate(int64_t count) { return static_cast<T*>(::operator new(size_t(count) * sizeof(T), kAlign)); }
  static void release(T* data) {
    if (data) ::operator delete(data, kAlign);
  }
  T* data_ = nullptr;
  int64_t size_ = 0;
};

// A thread_local object behind an address of unknown origin. Where the compiler knows that it is thread_local, it asks
// for the address again in every loop and function that uses it, a call that spills all vector registers.
template <class T>
inline T& of_thread(T& thread_local_object) {
  T* address = &thread_local_object;
#if defined(__GNUC__)
  __asm__("" : "+r"(address));
#endif
  return *address;
}

}  // namespace SNNLIB_ISA
}  // namespace snnlib
