// parallel_for(tasks, threads, f): f(task) for every task in [0, tasks), on the OpenMP pool that torch uses too.
// One thread runs without a parallel region: a forked DataLoader worker may not start one.
#pragma once

#include <cstdint>

namespace snnlib {

template <class F>
void parallel_for(int64_t tasks, int threads, const F& f) {
#if defined(_OPENMP)
  if (threads > 1 && tasks > 1) {
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t task = 0; task < tasks; ++task) f(task);
    return;
  }
#endif
  (void)threads;
  for (int64_t task = 0; task < tasks; ++task) f(task);
}

}  // namespace snnlib
