// Memory of tensors on the CPU: what the system and the C library are told about it, and a pool of large blocks. While
// somebody keeps the pool, the block of a freed tensor waits for the next tensor of about its size: memory that is
// fresh from the system is slow to touch for the first time, and in the C library's heap small blocks that live long
// cut the large ones that were freed, until nothing fits them any more.
#include <mutex>
#include <new>
#include <vector>

#include "bindings.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace snnlib {
namespace {

constexpr size_t kHugePage = size_t(2) << 20;

// Asks the kernel for huge pages under a fresh output. On 4 KiB pages the first write to a large tensor costs several
// times more than the computation that produces it.
void advise_huge_pages(Address address, size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  const Address begin = (address + kHugePage - 1) / kHugePage * kHugePage;
  const Address end = (address + bytes) / kHugePage * kHugePage;
  // Advice only: a kernel without huge pages returns an error that changes nothing.
  if (end > begin) (void)madvise(pointer(begin), end - begin, MADV_HUGEPAGE);
#else
  (void)address;
  (void)bytes;
#endif
}

// Tells the C library to keep freed blocks of any size for the next allocation instead of giving them back.
bool keep_freed_memory() {
#if defined(__GLIBC__)
  constexpr int kLimit = 1 << 30;
  return mallopt(M_MMAP_THRESHOLD, kLimit) == 1 && mallopt(M_TRIM_THRESHOLD, kLimit) == 1;
#else
  return false;
#endif
}

// Gives what the C library holds of freed blocks back to the system.
bool hand_back_freed_memory() {
#if defined(__GLIBC__)
  return malloc_trim(0) == 1;
#else
  return false;
#endif
}

// A tensor takes a block up to an eighth larger than its own, so that tensors of nearly the same size share it.
constexpr size_t kShare = 8;
// Used and waiting blocks together may take 1.5 times what used ones have ever taken: with less, the tensors of the
// forward and of the backward pass displace each other's blocks.
constexpr size_t kMost = 3, kOf = 2;

struct Memory {
  void* begin;
  size_t bytes;
};

// `bytes` rounded up to a multiple of between a sixteenth and an eighth of it, in whole pages.
size_t rounded_block(size_t bytes) {
  size_t grain = size_t(1) << 16;
  while (grain * 2 * kShare < bytes) grain *= 2;
  return (bytes + grain - 1) / grain * grain;
}

#if defined(__linux__)
constexpr bool kAvailable = true;

// On huge pages where the system has them.
Memory map_memory(size_t bytes) {
  const size_t whole = bytes + kHugePage;
  void* at = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  char* begin = static_cast<char*>(at);
  const size_t before = (kHugePage - Address(at) % kHugePage) % kHugePage;
  if (before) (void)munmap(begin, before);
  (void)munmap(begin + before + bytes, whole - before - bytes);
#if defined(MADV_HUGEPAGE)
  (void)madvise(begin + before, bytes, MADV_HUGEPAGE);
#endif
  return {begin + before, bytes};
}

void unmap_memory(const Memory& memory) { (void)munmap(memory.begin, memory.bytes); }
#else
constexpr bool kAvailable = false;
Memory map_memory(size_t) { throw std::bad_alloc(); }
void unmap_memory(const Memory&) {}
#endif

class BlockPool {
 public:
  bool kept() {
    const std::lock_guard<std::mutex> guard(mutex_);
    return kAvailable && keepers_ > 0;
  }
  void keep() {
    const std::lock_guard<std::mutex> guard(mutex_);
    ++keepers_;
  }
  void let_go() {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (--keepers_ == 0) {
      shrink(0);
      most_ = used_;
    }
  }

  Memory take(size_t wanted) {
    const size_t bytes = rounded_block(wanted);
    const std::lock_guard<std::mutex> guard(mutex_);
    size_t best = free_.size();
    for (size_t i = 0; i < free_.size(); ++i) {
      const size_t size = free_[i].bytes;
      if (size >= bytes && size <= bytes + bytes / kShare && (best == free_.size() || size < free_[best].bytes))
        best = i;
    }
    Memory found{};
    if (best < free_.size()) {
      found = free_[best];
      free_.erase(free_.begin() + std::ptrdiff_t(best));
      waiting_ -= found.bytes;
    } else {
      if (used_ + bytes > most_) most_ = used_ + bytes;
      const size_t most = most_ / kOf * kMost;
      shrink(most > used_ + bytes ? most - used_ - bytes : 0);
      found = map_memory(bytes);
    }
    used_ += found.bytes;
    if (used_ > most_) most_ = used_;
    return found;
  }

  // Bytes of used and waiting blocks.
  size_t bytes() {
    const std::lock_guard<std::mutex> guard(mutex_);
    return used_ + waiting_;
  }

  void give(const Memory& memory) {
    const std::lock_guard<std::mutex> guard(mutex_);
    used_ -= memory.bytes;
    if (keepers_ == 0) {
      unmap_memory(memory);
    } else {
      free_.push_back(memory);
      waiting_ += memory.bytes;
    }
  }

 private:
  // Unmaps the blocks that have waited longest until no more than `bytes` wait.
  void shrink(size_t bytes) {
    size_t gone = 0;
    for (; waiting_ > bytes; ++gone) {
      waiting_ -= free_[gone].bytes;
      unmap_memory(free_[gone]);
    }
    free_.erase(free_.begin(), free_.begin() + std::ptrdiff_t(gone));
  }

  std::mutex mutex_;
  std::vector<Memory> free_;  // in the order in which they came back
  int64_t keepers_ = 0;
  size_t used_ = 0, waiting_ = 0, most_ = 0;
};

// Never destroyed: tensors may outlive the module.
BlockPool& pool() {
  static BlockPool& instance = *new BlockPool;
  return instance;
}

// A block as long as a tensor holds it, with Python's buffer protocol.
class Block {
 public:
  explicit Block(size_t bytes) : memory_(pool().take(bytes)), bytes_(bytes) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { pool().give(memory_); }

  pybind11::buffer_info buffer() const {
    return {static_cast<uint8_t*>(memory_.begin), pybind11::ssize_t(bytes_), false};
  }

 private:
  Memory memory_;
  size_t bytes_;
};

}  // namespace

void bind_cpu_memory(pybind11::module_& module) {
  namespace py = pybind11;
  py::module_ memory = module.def_submodule("cpu_memory");
  memory.def("advise_huge_pages", &advise_huge_pages);
  memory.def("keep_freed_memory", &keep_freed_memory);
  memory.def("hand_back_freed_memory", &hand_back_freed_memory);
  py::class_<Block>(memory, "Block", py::buffer_protocol()).def(py::init<size_t>()).def_buffer([](const Block& block) {
    return block.buffer();
  });
  memory.attr("has_pool") = kAvailable;
  memory.def("keep_blocks", [] { pool().keep(); });
  memory.def("let_go_of_blocks", [] { pool().let_go(); });
  memory.def("bytes_of_blocks", [] { return pool().bytes(); });
  memory.def("blocks_are_kept", [] { return pool().kept(); });
}

}  // namespace snnlib
