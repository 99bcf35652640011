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
    : problem_(problem), lists_(lists) {
  if (!problem.mask_bits) lists_.bits = nullptr, lists_.bit_blocks = nullptr;
}

MaskRow MaskRows::row(std::int64_t sequence, std::int64_t head, std::int64_t query) const {
  const Problem& p = problem_;
  if (!has_block_mask(p)) return {};
  const std::int64_t mask = (p.mask_batch == 1 ? 0 : sequence) * p.mask_heads +
                            head * p.mask_heads / p.num_heads_q;
  const std::int64_t at = first_row_ + mask * mask_blocks(p).q + query / p.mask_block_q;
  const auto begin = static_cast<std::size_t>(lists_.row_begin[at]),
             end = static_cast<std::size_t>(lists_.row_begin[at + 1]);
  MaskRow row;
  row.columns = {lists_.columns + begin, end - begin};
  row.block_kv = p.mask_block_kv;
  if (lists_.bits == nullptr) return row;
  const std::int64_t words_per_row = (p.mask_block_kv + 31) / 32;
  row.bit_blocks = lists_.bit_blocks + begin;
  row.bits = lists_.bits + query % p.mask_block_q * words_per_row;
  row.words_per_block = p.mask_block_q * words_per_row;
  return row;
}

MaskRows MaskRows::of_sequence(std::int64_t index) const {
  MaskRows one = *this;
  if (problem_.mask_batch != 1)
    one.first_row_ += index * problem_.mask_heads * mask_blocks(problem_).q;
  one.problem_.mask_batch = 1;
  return one;
}

}  // namespace attnforge
