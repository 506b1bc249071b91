// parallel_for(tasks, threads, f): f(task) for every task in [0, tasks), on the OpenMP pool that torch uses too.
// One thread runs without a parallel region: a forked DataLoader worker may not start one. What a task throws is thrown
// again by parallel_for, the first of several; tasks that have not begun by then are left out.
#pragma once

#include <cstdint>

#if defined(SNNLIB_STD_THREADS)
#include <atomic>
#include <thread>
#include <vector>
#endif

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
  // Whether there is one; from any thread.
  bool any() const noexcept;
  // Throws it, if there is one; after the loop.
  void rethrow();

 private:
  struct Kept;
  Kept* kept_;
};

// While it lives, its thread treats denormal numbers as the thread does whose `current()` it was given: whether they
// count as zero (`torch.set_flush_denormal`) is a setting of each thread, and no result may depend on the thread.
class FloatMode {
 public:
  // That of this thread.
  static uint64_t current() noexcept;

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

}  // namespace snnlib
