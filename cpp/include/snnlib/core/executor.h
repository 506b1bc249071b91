// Where a call runs: a number of CPU threads or a CUDA stream, in one word so that both kinds of kernels share one
// calling convention.
#pragma once

#include <cstdint>

namespace snnlib {

struct Executor {
  intptr_t word;

  int threads() const { return int(word); }
  void* stream() const { return reinterpret_cast<void*>(word); }
};

}  // namespace snnlib
