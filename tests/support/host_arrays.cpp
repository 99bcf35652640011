// host_arrays.cpp - arrays of a host problem beside its tensors: lengths, page tables, lists of a
// block mask, tables of a rope, sinks.
#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <utility>

#include "attnforge/block_mask.h"
#include "reference/half.h"
#include "reference/parts/rope.h"
#include "tests/support/host_parts.h"

namespace attnforge::test {
namespace {

/// Between integers that are neither lengths nor indexes.
template <class Integer>
void place_integers(HostProblem& host, Storage storage, const std::vector<Integer>& array,
                    PlacedTensor& placed) {
  placed.storage = storage;
  placed.offset_bytes = kGuardBytes;
  auto& bytes = host.storages[storage];
  bytes.assign(static_cast<std::size_t>(2 * kGuardBytes) + array.size() * sizeof(Integer),
               std::byte{0x7f});
  std::ranges::copy(std::as_bytes(std::span(array)), bytes.begin() + kGuardBytes);
}

/// Lengths with every edge: full, empty, one row, with pages around the end of one, then random
/// ones; packed ones as long as there is room.
std::vector<int> hard_lengths(std::int64_t count, std::int64_t seqlen, std::int64_t room,
                              unsigned seed, std::int64_t page) {
  std::mt19937 random(seed);
  std::vector<int> lengths;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t length = static_cast<std::int64_t>(random()) % (seqlen + 1);
    if (i == 0) length = seqlen;
    if (i == 1) length = 0;
    if (i == 2) length = std::min<std::int64_t>(1, seqlen);
    if (page != 0 && i >= 3 && i <= 5) length = std::min(page + i - 4, seqlen);
    length = std::min(length, room);
    room -= length;
    lengths.push_back(static_cast<int>(length));
  }
  return lengths;
}

std::vector<int> beginnings(const std::vector<int>& lengths) {
  std::vector<int> begins = {0};
  for (const int length : lengths) begins.push_back(begins.back() + length);
  return begins;
}

bool is_present(Blocks blocks, std::int64_t row, std::int64_t column, const BlockMaskShape& shape) {
  switch (blocks) {
    case Blocks::kRandom:
    case Blocks::kNone:
      return false;
    case Blocks::kSingle:
      return row == shape.q_blocks() / 2 && column == shape.kv_blocks() / 2;
    case Blocks::kOneHotRow:
      return row == shape.q_blocks() / 2 || column == 0;
    case Blocks::kCheckerboard:
      return (row + column) % 2 == 0;
    case Blocks::kAll:
      return true;
  }
  return false;
}

/// Of three blocks one is full, one partial with bits if the problem has them, one partial without.
BlockMask with_partial_blocks(BlockMask mask, bool bits, unsigned seed) {
  if (bits) {
    std::mt19937 random(seed);
    constexpr std::int64_t kPatterns = 5;
    for (std::int64_t i = 0; i < kPatterns * mask.words_per_block(); ++i)
      mask.bits.push_back(static_cast<std::uint32_t>(random()));
    mask.bit_blocks.assign(mask.columns.size(), -1);
    for (std::size_t i = 1; i < mask.columns.size(); i += 3)
      mask.bit_blocks[i] = static_cast<int>(i % kPatterns);
  }
  for (std::size_t i = 0; i < mask.columns.size(); ++i) mask.columns[i] += i % 3 != 0 ? 1 : 0;
  return mask;
}

}  // namespace

void place_lengths(HostProblem& host, unsigned seed) {
  const Problem& p = host.problem;
  const Tokens tokens = total_tokens(p);
  const auto place = [&](Storage storage, std::int64_t seqlen, std::int64_t room,
                         unsigned side_seed, PlacedTensor& placed,
                         std::vector<SequenceRows>& rows) {
    const bool packed = storage == kStorageLengthsQ ? p.lengths == Lengths::kPacked
                                                    : has_packed_keys(p);
    std::vector<int> lengths(static_cast<std::size_t>(p.batch), static_cast<int>(seqlen));
    if (p.lengths != Lengths::kFixed)
      lengths = hard_lengths(p.batch, seqlen, packed ? room : p.batch * seqlen, side_seed,
                             storage == kStorageLengthsKv ? p.page_size : 0);
    const std::vector<int> begins = beginnings(lengths);
    for (std::int64_t i = 0; i < p.batch; ++i) {
      const auto at = static_cast<std::size_t>(i);
      rows.push_back({packed ? 0 : i, packed ? begins[at] : 0, lengths[at], i});
    }
    if (p.lengths == Lengths::kFixed) return;
    const std::vector<int>& array = packed ? begins : lengths;
    place_integers(host, storage, array, placed);
  };
  place(kStorageLengthsQ, p.seqlen_q, tokens.q, seed, host.lengths_q, host.rows_q);
  // One tensor of q, k and v has one kind of sequences.
  const unsigned other = p.layout == Layout::kPackedQkv ? 0 : 1000;
  place(kStorageLengthsKv, p.seqlen_kv, tokens.kv, seed + other, host.lengths_kv, host.rows_kv);
}

void place_pages(HostProblem& host, unsigned seed) {
  const Problem& p = host.problem;
  if (!has_pages(p)) return;
  constexpr int kNoPage = 0x7f7f7f7f, kFree = 3;
  const std::int64_t columns = pages_of_sequence(p);
  host.num_pages = p.batch * columns + kFree;
  host.table_stride = columns + 2;
  std::vector<int> pool(static_cast<std::size_t>(host.num_pages));
  std::iota(pool.begin(), pool.end(), 0);
  std::shuffle(pool.begin(), pool.end(), std::mt19937(seed));
  std::vector<int> table(static_cast<std::size_t>(p.batch * host.table_stride), kNoPage);
  std::vector<SequenceRows> of_pages;
  for (const SequenceRows& rows : host.rows_kv) {
    for (std::int64_t column = 0; column < columns; ++column) {
      const std::int64_t first = column * p.page_size;
      int& page = table[static_cast<std::size_t>(rows.sequence * host.table_stride + column)];
      page = -1;
      if (first >= rows.count) continue;
      page = pool.back();
      pool.pop_back();
      of_pages.push_back(
          {page, 0, std::min<std::int64_t>(p.page_size, rows.count - first), rows.sequence, first});
    }
  }
  host.rows_kv = of_pages;
  place_integers(host, kStoragePageTable, table, host.page_table);
}

void place_block_mask(HostProblem& host, Blocks blocks, unsigned seed) {
  const Problem& p = host.problem;
  if (!has_block_mask(p)) return;
  const BlockMaskShape shape = block_mask_shape(p);
  std::vector<std::uint8_t> present;
  for (std::int64_t row = 0; row < shape.rows(); ++row) {
    for (std::int64_t column = 0; column < shape.kv_blocks(); ++column)
      present.push_back(is_present(blocks, row % shape.q_blocks(), column, shape) ? 1 : 0);
  }
  BlockMask mask = block_mask_from_blocks(shape, present);
  if (blocks == Blocks::kRandom)
    mask = random_block_mask(
        shape, {.density = effective_density(p), .seed = seed, .diagonal = seed % 2 == 0});
  HostTensors lists;
  set_block_mask(p, lists, with_partial_blocks(std::move(mask), p.mask_bits, seed));
  place_integers(host, kStorageMaskRowBegin, lists.mask_row_begin, host.mask_row_begin);
  place_integers(host, kStorageMaskColumns, lists.mask_columns, host.mask_columns);
  if (!p.mask_bits) return;
  place_integers(host, kStorageMaskBits, lists.mask_bits, host.mask_bits);
  place_integers(host, kStorageMaskBitBlocks, lists.mask_bit_blocks, host.mask_bit_blocks);
}

std::int64_t rope_offset(const Problem& p) {
  return p.rope == Rope::kNone ? 0 : least_rope_offset(p) + 5;
}
std::int64_t rope_rows(const Problem& p) {
  return p.rope == Rope::kNone ? 0 : rope_offset(p) + p.seqlen_kv;
}

void place_rope_tables(HostProblem& host) {
  const Problem& p = host.problem;
  const HostRopeTables tables = rope_tables(effective_rope_dim(p), rope_rows(p));
  const auto first = static_cast<std::size_t>((rope_offset(p) - least_rope_offset(p)) *
                                              effective_rope_dim(p) / 2);
  const auto place = [&](Storage storage, const std::vector<float>& table, PlacedTensor& placed) {
    placed.storage = storage;
    placed.offset_bytes = kGuardBytes + 16;
    auto& bytes = host.storages[storage];
    bytes.resize(static_cast<std::size_t>(placed.offset_bytes + kGuardBytes) + table.size() * 4);
    poison(bytes, DType::kFp32, true);
    for (std::size_t i = first; i < table.size(); ++i) {
      store_element(DType::kFp32, bytes.data() + placed.offset_bytes, static_cast<std::int64_t>(i),
                    table[i]);
    }
  };
  place(kStorageCos, tables.cos, host.rope_cos);
  place(kStorageSin, tables.sin, host.rope_sin);
}

void place_sinks(HostProblem& host, unsigned seed) {
  const Problem& p = host.problem;
  if (!p.sinks) return;
  constexpr float kLogits[] = {5.0f, -std::numeric_limits<float>::infinity(), 2.0f, 1e30f, -3.0f,
                               8.0f};
  host.sinks.storage = kStorageSinks;
  host.sinks.offset_bytes = kGuardBytes + 4;
  auto& bytes = host.storages[kStorageSinks];
  bytes.resize(static_cast<std::size_t>(2 * kGuardBytes + p.num_heads_q * 4));
  poison(bytes, DType::kFp32, true);
  for (std::int64_t head = 0; head < p.num_heads_q; ++head) {
    const float logit = kLogits[static_cast<std::size_t>(head + seed) % std::size(kLogits)];
    store_element(DType::kFp32, bytes.data() + host.sinks.offset_bytes, head,
                  logit + 0.125f * static_cast<float>(head));
  }
}

}  // namespace attnforge::test
