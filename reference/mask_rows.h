// mask_rows.h - which keys a query row sees, by window and by block mask.
#pragma once

#include <cstdint>
#include <span>

#include "attnforge/plan.h"
#include "attnforge/problem.h"
#include "reference/visible.h"

namespace attnforge {

/// What a block mask says of one query. Without a mask: all keys.
struct MaskRow {
  std::span<const int> columns{};       // of its block row
  const int* bit_blocks = nullptr;      // of these; null: no bits
  const std::uint32_t* bits = nullptr;  // the query's words in block 0
  std::int64_t words_per_block = 0;
  int block_kv = 0;  // 0: no mask

  bool contains(std::int64_t key) const;
  /// Whether a text decides about the key too: in partial blocks, and without a mask.
  bool asks_rule(std::int64_t key) const;
  /// How many keys of a range it lets the query see.
  std::int64_t count(KeyRange range) const;
  /// The count of one of its blocks alone: an index of columns.
  std::int64_t count(std::size_t entry, KeyRange range) const;
  /// The keys of one of them, of seqlen_kv that there are.
  KeyRange keys_of(std::size_t entry, std::int64_t seqlen_kv) const;
  bool has_bits(std::size_t entry) const;

 private:
  bool sees(std::size_t entry, std::int64_t key) const;
};

/// The block mask of a problem, its lists in host memory, borrowed; or none.
class MaskRows {
 public:
  MaskRows() = default;
  MaskRows(const Problem& problem, const BlockMaskRef& lists);

  MaskRow row(std::int64_t sequence, std::int64_t head, std::int64_t query) const;
  /// That of one sequence, which is then sequence 0.
  MaskRows of_sequence(std::int64_t index) const;

 private:
  Problem problem_{};
  BlockMaskRef lists_{};
  std::int64_t first_row_ = 0;
};

/// The keys of a query.
struct RowKeys {
  KeyRange range;  // by the window: no others
  MaskRow mask{};

  bool contains(std::int64_t key) const { return range.contains(key) && mask.contains(key); }
  std::int64_t count() const { return mask.count(range); }
};

}  // namespace attnforge
