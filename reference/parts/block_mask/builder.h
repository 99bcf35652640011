// builder.h - a block mask put together row by row, equal blocks of bits stored once.
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "attnforge/block_mask.h"
#include "attnforge/error.h"

namespace attnforge {

template <class... Values>
[[noreturn]] void refuse_mask(fmt::format_string<Values...> format, Values&&... values) {
  throw Error(ErrorCode::kInvalidArgument,
              "block mask: " + fmt::format(format, std::forward<Values>(values)...));
}

/// Where the bit of a pair in block `block` of bits is.
inline std::size_t word_of_bit(const BlockMaskShape& shape, std::int64_t block, int query,
                               int key) {
  return static_cast<std::size_t>(block * shape.words_per_block() + query * shape.words_per_row() +
                                  key / 32);
}
inline bool bit_of(const BlockMaskShape& shape, const std::uint32_t* bits, std::int64_t block,
                   int query, int key) {
  return (bits[word_of_bit(shape, block, query, key)] >> (key % 32) & 1) != 0;
}
inline void set_bit(const BlockMaskShape& shape, std::uint32_t* bits, std::int64_t block, int query,
                    int key) {
  bits[word_of_bit(shape, block, query, key)] |= std::uint32_t{1} << (key % 32);
}

/// Blocks of a row in ascending columns, then end_row(), for every row.
class MaskBuilder {
 public:
  static constexpr std::size_t kMostEntries = 2147483647;
  [[noreturn]] static void refuse_entries() {
    refuse_mask(
        "more than 2^31 - 1 blocks are present; take larger blocks, or let heads share a mask");
  }

  explicit MaskBuilder(const BlockMaskShape& shape) : mask_{shape, {0}, {}, {}, {}} {}

  void add_full(std::int64_t column) { add(column, false, -1); }
  void add_partial(std::int64_t column, std::vector<std::uint32_t> bits) {
    add(column, true, block_of(std::move(bits)));
  }
  /// Adds a block as full, partial or not present, by sees(query, key).
  template <class Sees>
  void add_by_pairs(std::int64_t row, std::int64_t column, const Sees& sees) {
    std::vector<std::uint32_t> bits(static_cast<std::size_t>(mask_.words_per_block()), 0);
    std::int64_t seen = 0, pairs = 0;
    for (int i = 0; i < mask_.block_q; ++i) {
      const std::int64_t query = row * mask_.block_q + i;
      if (query >= mask_.seqlen_q) break;
      for (int j = 0; j < mask_.block_kv; ++j) {
        const std::int64_t key = column * mask_.block_kv + j;
        if (key >= mask_.seqlen_kv) break;
        ++pairs;
        if (!sees(query, key)) continue;
        ++seen;
        set_bit(mask_, bits.data(), 0, i, j);
      }
    }
    if (seen == pairs) {
      add_full(column);
    } else if (seen > 0) {
      add_partial(column, std::move(bits));
    }
  }
  /// Throws Error(kInvalidArgument) when there are more blocks than an index of the lists can say.
  void end_row() {
    if (mask_.columns.size() > kMostEntries) refuse_entries();
    mask_.row_begin.push_back(static_cast<int>(mask_.columns.size()));
  }
  /// Without lists of bits if there are none.
  BlockMask take() {
    if (mask_.bits.empty()) mask_.bit_blocks.clear();
    return std::move(mask_);
  }

 private:
  void add(std::int64_t column, bool partial, int bit_block) {
    mask_.columns.push_back(static_cast<int>(column) * 2 + (partial ? 1 : 0));
    mask_.bit_blocks.push_back(bit_block);
  }
  int block_of(std::vector<std::uint32_t> bits) {
    const auto [known, is_new] = blocks_.try_emplace(std::move(bits),
                                                     static_cast<int>(blocks_.size()));
    if (is_new) mask_.bits.insert(mask_.bits.end(), known->first.begin(), known->first.end());
    return known->second;
  }

  BlockMask mask_;
  std::map<std::vector<std::uint32_t>, int> blocks_;
};

}  // namespace attnforge
