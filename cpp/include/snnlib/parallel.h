// parallel_for(tasks, threads, f): f(task) for every task in [0, tasks), on the OpenMP pool that torch uses too.
// One thread runs without a parallel region: a forked DataLoader worker may not start one. What a task throws is thrown
// again by parallel_for, the first of several; tasks that have not begun by then are left out.
#pragma once

#include <cstdint>

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

template <class F>
void parallel_for(int64_t tasks, int threads, const F& f) {
#if defined(_OPENMP)
  if (threads > 1 && tasks > 1) {
    TaskError error;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t task = 0; task < tasks; ++task) {
      // No exception may leave a parallel region.
      try {
        if (!error.any()) f(task);
      } catch (...) {
        error.keep();
      }
    }
    error.rethrow();
    return;
  }
#endif
  (void)threads;
  for (int64_t task = 0; task < tasks; ++task) f(task);
}

}  // namespace snnlib
