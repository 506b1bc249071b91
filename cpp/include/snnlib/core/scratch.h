// Memory that a thread keeps between calls, aligned to vectors; grows to what it has needed so far. No std::vector:
// its code would be shared between instruction sets.
#pragma once

#include <cstring>
#include <new>

#include "snnlib/core/platform.h"

namespace snnlib {
namespace SNNLIB_ISA {

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
