#include "snnlib/memory/pack.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "bindings.h"
#include "snnlib/core/isa.h"
#include "snnlib/core/threads.h"

namespace snnlib {
namespace {

// Packed blocks until a tensor of the right size takes them.
class PackedBlocks {
 public:
  explicit PackedBlocks(int64_t words) : blocks_(size_t(pack_blocks(words))) {}
  PackedBlocks(const PackedBlocks&) = delete;
  PackedBlocks& operator=(const PackedBlocks&) = delete;
  ~PackedBlocks() {
    for (PackedBlock& block : blocks_) std::free(block.data);
  }

  PackedBlock* blocks() { return blocks_.data(); }
  int64_t count() const { return int64_t(blocks_.size()); }
  int64_t bytes() const {
    int64_t total = 0;
    for (const PackedBlock& block : blocks_) total += block.bytes;
    return total;
  }
  // Fills packed[bytes] and starts[blocks].
  void move_to(Address packed, Address starts) {
    uint8_t* out = static_cast<uint8_t*>(pointer(packed));
    int64_t* start = static_cast<int64_t*>(pointer(starts));
    int64_t at = 0;
    for (PackedBlock& block : blocks_) {
      *start++ = at;
      std::memcpy(out + at, block.data, size_t(block.bytes));
      at += block.bytes;
      std::free(block.data);
      block.data = nullptr;
    }
  }

 private:
  std::vector<PackedBlock> blocks_;
};

std::unique_ptr<PackedBlocks> pack(Address words, int64_t count, int threads) {
  auto blocks = std::make_unique<PackedBlocks>(count);
  kernels().pack->pack({static_cast<const uint8_t*>(pointer(words)), count, blocks->blocks(), threads});
  return blocks;
}

}  // namespace

void bind_pack(pybind11::module_& module) {
  namespace py = pybind11;
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  py::class_<PackedBlocks>(module, "PackedBlocks")
      .def_property_readonly("count", &PackedBlocks::count)
      .def_property_readonly("bytes", &PackedBlocks::bytes)
      .def("move_to", &PackedBlocks::move_to, unlocked);
  module.def("pack_words", &pack, unlocked);
  bind_kernel(module, &kernels, "unpack_words", &Kernels::pack, &PackKernels::unpack);
}

}  // namespace snnlib
