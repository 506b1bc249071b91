// Packing of sequences, block by block. A block is a header, a table of the values other than 0, and the words in one
// of these forms:
//
//   kList    place (16 bits) of every word that is not 0, then its number in the table (8 bits, none for one value)
//   kCodes   number in the table of every word, 0 for 0, in 1, 2, 4 or 8 bits each
//   kValues  place and value of every word that is not 0
//   kWords   the words themselves
//
// Sizes are multiples of 4 bytes. Spikes take kList where they are few and one bit per word where they are not, and
// means of windows, of which there are few different ones, two to four bits.
#include "snnlib/memory/pack.h"

#include <cstdlib>

#include "snnlib/core/simd.h"
#include "snnlib/core/threads.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

enum class PackedForm : uint8_t { kList, kCodes, kValues, kWords };

struct PackedHeader {
  PackedForm form;
  uint8_t values;  // in the table
  uint8_t bits;    // of a code
  uint8_t unused;
  uint32_t nonzero;  // words that are not 0
};

// Different values, beyond which no table is made.
constexpr int kPackValues = 31;

struct PackWorkspace {
  Scratch<int32_t> places, values;
  Scratch<uint8_t> codes;
};

Ints load_ints(const void* p) {
  Ints v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

constexpr int64_t in_words(int64_t bytes) { return (bytes + 3) / 4 * 4; }

// Places and values of the words that are not 0; returns their number. Both need room for all words and kGroup.
SNNLIB_NOINLINE int64_t find_words(const uint8_t* words, int64_t count, int32_t* places, int32_t* values) {
  int64_t found = 0, i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Ints v = load_ints(words + 4 * i);
    const uint32_t lanes = nonzero_lanes(v);
    if (!lanes) continue;
    store_selected(places + found, lane_numbers(i), lanes);
    store_selected(values + found, v, lanes);
    found += count_bits(lanes);
  }
  for (; i < count; ++i) {
    int32_t v;
    std::memcpy(&v, words + 4 * i, sizeof v);
    if (!v) continue;
    places[found] = int32_t(i);
    values[found++] = v;
  }
  return found;
}

// Numbers of the values in a table of their own, from 1 on; returns its size, or -1 where there are too many. The
// values behind `count` are overwritten up to a whole vector.
SNNLIB_NOINLINE int make_codes(int32_t* values, int64_t count, int32_t* table, uint8_t* codes) {
  int known = 0;
  for (int64_t i = count; i < count + kLanes; ++i) values[i] = count ? values[0] : 0;
  for (int64_t i = 0; i < count; i += kLanes) {
    const Ints v = load_ints(values + i);
    Ints code{};
    for (int k = 0; k < known; ++k) code = v == table[k] ? Ints{} + (k + 1) : code;
    int32_t lane[kLanes];
    std::memcpy(lane, &code, sizeof lane);
    if (!nonzero_lanes(code == 0)) {
      for (int64_t j = 0; j < kLanes; ++j) codes[i + j] = uint8_t(lane[j]);
      continue;
    }
    for (int64_t j = 0; j < kLanes; ++j) {
      // New to the table.
      for (int k = 0; !lane[j] && k < known; ++k) lane[j] = values[i + j] == table[k] ? k + 1 : 0;
      if (!lane[j]) {
        if (known == kPackValues) return -1;
        table[known] = values[i + j];
        lane[j] = ++known;
      }
      codes[i + j] = uint8_t(lane[j]);
    }
  }
  return known;
}

PackedBlock pack_block(const uint8_t* words, int64_t count, PackWorkspace& w) {
  int32_t* places = w.places.reserve(count + 2 * kGroup);
  int32_t* values = w.values.reserve(count + 2 * kGroup);
  uint8_t* codes = w.codes.reserve(count + 2 * kGroup);
  const int64_t nonzero = find_words(words, count, places, values);
  int32_t table[kPackValues];
  const int known = make_codes(values, nonzero, table, codes);
  const int bits = known <= 1 ? 1 : known <= 3 ? 2 : known <= 15 ? 4 : 8;
  const int64_t list_bytes = in_words(2 * nonzero) + (known == 1 ? 0 : in_words(nonzero));
  const int64_t code_bytes = in_words((count * bits + 7) / 8), value_bytes = in_words(2 * nonzero) + 4 * nonzero;
  PackedHeader header{PackedForm::kWords, 0, 0, 0, uint32_t(nonzero)};
  int64_t bytes = 4 * count;
  if (known >= 0) {
    header.form = list_bytes <= code_bytes ? PackedForm::kList : PackedForm::kCodes;
    bytes = list_bytes <= code_bytes ? list_bytes : code_bytes;
    header.values = uint8_t(known);
    header.bits = uint8_t(bits);
  } else if (value_bytes < bytes) {
    header.form = PackedForm::kValues;
    bytes = value_bytes;
  }
  PackedBlock block;
  block.bytes = int64_t(sizeof header) + 4 * header.values + bytes;
  block.data = static_cast<uint8_t*>(std::malloc(size_t(block.bytes)));
  if (!block.data) throw std::bad_alloc();
  uint8_t* out = block.data;
  std::memcpy(out, &header, sizeof header);
  out += sizeof header;
  std::memcpy(out, table, size_t(header.values) * 4);
  out += 4 * header.values;
  // No byte is left as malloc gave it.
  std::memset(out, 0, size_t(bytes));
  if (header.form == PackedForm::kWords) {
    std::memcpy(out, words, size_t(bytes));
  } else if (header.form == PackedForm::kCodes) {
    for (int64_t i = 0; i < nonzero; ++i) {
      const int64_t bit = places[i] * int64_t(bits);
      out[bit / 8] = uint8_t(out[bit / 8] | codes[i] << bit % 8);
    }
  } else {
    uint16_t* place = reinterpret_cast<uint16_t*>(out);
    for (int64_t i = 0; i < nonzero; ++i) place[i] = uint16_t(places[i]);
    out += in_words(2 * nonzero);
    if (header.form == PackedForm::kValues) std::memcpy(out, values, size_t(nonzero) * 4);
    if (header.form == PackedForm::kList && known > 1) std::memcpy(out, codes, size_t(nonzero));
  }
  return block;
}

void unpack_block(const uint8_t* packed, uint8_t* words, int64_t count) {
  PackedHeader header;
  std::memcpy(&header, packed, sizeof header);
  packed += sizeof header;
  int32_t table[kPackValues + 1] = {};
  std::memcpy(table + 1, packed, size_t(header.values) * 4);
  packed += 4 * header.values;
  if (header.form == PackedForm::kWords) {
    std::memcpy(words, packed, size_t(4 * count));
    return;
  }
  int32_t* out = reinterpret_cast<int32_t*>(words);
  if (header.form == PackedForm::kCodes) {
    const int bits = header.bits, mask = (1 << bits) - 1;
    for (int64_t i = 0; i < count; ++i) out[i] = table[packed[i * bits / 8] >> i * bits % 8 & mask];
    return;
  }
  std::memset(words, 0, size_t(4 * count));
  const uint16_t* place = reinterpret_cast<const uint16_t*>(packed);
  packed += in_words(2 * int64_t(header.nonzero));
  if (header.form == PackedForm::kValues) {
    for (uint32_t i = 0; i < header.nonzero; ++i) std::memcpy(out + place[i], packed + 4 * i, 4);
  } else if (header.values == 1) {
    for (uint32_t i = 0; i < header.nonzero; ++i) out[place[i]] = table[1];
  } else {
    for (uint32_t i = 0; i < header.nonzero; ++i) out[place[i]] = table[packed[i]];
  }
}

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
  parallel_for(pack_blocks(a.count), a.executor.threads(), [&](int64_t block) {
    unpack_block(a.packed + a.starts[block], a.words + block * kPackWords * 4, words_of(block, a.count));
  });
}

}  // namespace

extern const PackKernels pack_kernels = {pack, unpack};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
