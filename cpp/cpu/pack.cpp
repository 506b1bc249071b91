// Packing of sequences, block by block.
#include "snnlib/core/parallel.h"
#include "snnlib/memory/packed_block.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

int64_t words_of(int64_t block, int64_t count) {
  const int64_t left = count - block * kPackWords;
  return left < kPackWords ? left : kPackWords;
}

void pack(const PackArgs& a) {
  parallel_for(pack_blocks(a.count), a.threads, [&](int64_t block) {
    thread_local PackWorkspace workspace;
    a.blocks[block] = pack_block(a.words + block * kPackWords * 4, words_of(block, a.count), of_thread(workspace));
  });
}

void unpack(const UnpackArgs& a) {
  parallel_for(pack_blocks(a.count), a.threads, [&](int64_t block) {
    unpack_block(a.packed + a.starts[block], a.words + block * kPackWords * 4, words_of(block, a.count));
  });
}

}  // namespace

extern const PackKernels pack_kernels = {pack, unpack};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
