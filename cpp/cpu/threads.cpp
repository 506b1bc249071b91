#include "snnlib/core/threads.h"

#include <atomic>
#include <exception>

#if defined(__x86_64__) || defined(_M_X64)
#include <xmmintrin.h>
#endif

namespace snnlib {

namespace {

// Bits with which denormal operands and denormal results count as zero.
#if defined(__x86_64__) || defined(_M_X64)
constexpr uint64_t kFlush = 0x8040;
uint64_t float_control() { return _mm_getcsr(); }
void set_float_control(uint64_t bits) { _mm_setcsr(uint32_t(bits)); }
#elif defined(__aarch64__) && defined(__GNUC__)
constexpr uint64_t kFlush = uint64_t(1) << 24;
uint64_t float_control() {
  uint64_t bits;
  __asm__ volatile("mrs %0, fpcr" : "=r"(bits));
  return bits;
}
void set_float_control(uint64_t bits) { __asm__ volatile("msr fpcr, %0" : : "r"(bits)); }
#else
// Denormal numbers always count.
constexpr uint64_t kFlush = 0;
uint64_t float_control() { return 0; }
void set_float_control(uint64_t) {}
#endif

void set_mode(uint64_t mode) {
  const uint64_t bits = float_control();
  if ((bits & kFlush) != mode) set_float_control((bits & ~kFlush) | mode);
}

}  // namespace

uint64_t FloatMode::current() noexcept { return float_control() & kFlush; }
uint64_t FloatMode::flushed() noexcept { return kFlush; }
FloatMode::FloatMode(uint64_t mode) noexcept : before_(current()) { set_mode(mode); }
FloatMode::~FloatMode() { set_mode(before_); }

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
