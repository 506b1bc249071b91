#include "snnlib/parallel.h"

#include <atomic>
#include <exception>

namespace snnlib {

struct TaskError::Kept {
  std::atomic<bool> taken{false};
  std::exception_ptr first;
};

TaskError::TaskError() : kept_(new Kept) {}
TaskError::~TaskError() { delete kept_; }

void TaskError::keep() noexcept {
  if (!kept_->taken.exchange(true)) kept_->first = std::current_exception();
}

bool TaskError::any() const noexcept { return kept_->taken.load(std::memory_order_relaxed); }

void TaskError::rethrow() {
  if (kept_->first) std::rethrow_exception(kept_->first);
}

}  // namespace snnlib
