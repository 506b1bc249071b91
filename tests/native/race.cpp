// Two loops on three threads, for test_thread_sanitizer.py: with an argument every task writes to one place.
#include <cstdio>
#include <vector>

#include "snnlib/core/threads.h"

int main(int arguments, char**) {
  const bool shared = arguments > 1;
  std::vector<long> sums(64);
  snnlib::parallel_for(64, 3, [&](int64_t task) {
    for (int i = 0; i < 10000; ++i) sums[shared ? 0 : size_t(task)] += i;
  });
  long total = 0;
  for (long sum : sums) total += sum;
  std::printf("%ld\n", total);
  return 0;
}
