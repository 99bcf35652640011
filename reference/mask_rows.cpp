#include "reference/mask_rows.h"

#include <algorithm>

namespace attnforge {

bool MaskRow::sees(std::size_t entry, std::int64_t key) const {
  if (!has_bits(entry)) return true;
  const std::int64_t in_block = key % block_kv;
  return (bits[bit_blocks[entry] * words_per_block + in_block / 32] >> (in_block % 32) & 1) != 0;
}

bool MaskRow::contains(std::int64_t key) const {
  if (block_kv == 0) return true;
  const auto column = static_cast<int>(key / block_kv);
  const auto at = std::lower_bound(columns.begin(), columns.end(), column * 2);
  return at != columns.end() && *at / 2 == column &&
         sees(static_cast<std::size_t>(at - columns.begin()), key);
}

bool MaskRow::asks_rule(std::int64_t key) const {
  if (block_kv == 0) return true;
  const int partial = static_cast<int>(key / block_kv) * 2 + 1;
  return std::binary_search(columns.begin(), columns.end(), partial);
}

bool MaskRow::has_bits(std::size_t entry) const {
  return columns[entry] % 2 != 0 && bit_blocks != nullptr && bit_blocks[entry] >= 0;
}

KeyRange MaskRow::keys_of(std::size_t entry, std::int64_t seqlen_kv) const {
  const std::int64_t begin = std::int64_t{columns[entry] / 2} * block_kv;
  return {begin, std::min(seqlen_kv, begin + block_kv) - 1};
}

std::int64_t MaskRow::count(std::size_t entry, KeyRange range) const {
  const KeyRange block = keys_of(entry, range.last + 1);
  const std::int64_t first = std::max(range.first, block.first);
  if (!has_bits(entry)) return std::max<std::int64_t>(0, block.last - first + 1);
  std::int64_t keys = 0;
  for (std::int64_t key = first; key <= block.last; ++key) keys += sees(entry, key) ? 1 : 0;
  return keys;
}

std::int64_t MaskRow::count(KeyRange range) const {
  if (block_kv == 0) return std::max<std::int64_t>(0, range.last - range.first + 1);
  std::int64_t keys = 0;
  for (std::size_t entry = 0; entry < columns.size(); ++entry) keys += count(entry, range);
  return keys;
}

MaskRows::MaskRows(const Problem& problem, const BlockMaskRef& lists)
    : lists_(lists),
      block_q_(problem.mask_block_q),
      block_kv_(problem.mask_block_kv),
      q_blocks_(mask_blocks(problem).q),
      mask_heads_(problem.mask_heads),
      mask_batch_(problem.mask_batch),
      num_heads_q_(problem.num_heads_q) {
  if (!problem.mask_bits) lists_.bits = nullptr, lists_.bit_blocks = nullptr;
}

MaskRow MaskRows::row(std::int64_t sequence, std::int64_t head, std::int64_t query) const {
  if (block_q_ == 0) return {};
  const std::int64_t mask = (mask_batch_ == 1 ? 0 : sequence) * mask_heads_ +
                            head * mask_heads_ / num_heads_q_;
  const std::int64_t at = first_row_ + mask * q_blocks_ + query / block_q_;
  const auto begin = static_cast<std::size_t>(lists_.row_begin[at]),
             end = static_cast<std::size_t>(lists_.row_begin[at + 1]);
  MaskRow row;
  row.columns = {lists_.columns + begin, end - begin};
  row.block_kv = block_kv_;
  if (lists_.bits == nullptr) return row;
  const std::int64_t words_per_row = (block_kv_ + 31) / 32;
  row.bit_blocks = lists_.bit_blocks + begin;
  row.bits = lists_.bits + query % block_q_ * words_per_row;
  row.words_per_block = block_q_ * words_per_row;
  return row;
}

MaskRows MaskRows::of_sequence(std::int64_t index) const {
  MaskRows one = *this;
  if (mask_batch_ != 1) one.first_row_ += index * mask_heads_ * q_blocks_;
  one.mask_batch_ = 1;
  return one;
}

}  // namespace attnforge
