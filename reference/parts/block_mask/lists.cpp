// lists.cpp - the lists of a block mask: from arrays of callers, checked, turned over and
// counted.
#include "attnforge/block_mask.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "attnforge/error.h"
#include "reference/mask_rows.h"
#include "reference/parts/block_mask/builder.h"

namespace attnforge {
namespace {

/// "row 70 (sequence 1, head 0, block row 6)".
std::string row_text(const BlockMaskShape& shape, std::int64_t row) {
  const std::int64_t q_blocks = shape.q_blocks();
  if (shape.heads == 1 && shape.batch == 1) return fmt::format("row {}", row);
  return fmt::format("row {} (sequence {}, head {}, block row {})", row,
                     row / q_blocks / shape.heads, row / q_blocks % shape.heads, row % q_blocks);
}

void check_row_begin(const BlockMaskShape& shape, std::span<const int> row_begin,
                     std::size_t entries) {
  const auto wanted = static_cast<std::size_t>(shape.rows()) + 1;
  if (row_begin.size() != wanted) {
    refuse_mask(
        "row_begin has {} entries; batch={} x heads={} x {} rows of blocks and the end need {}",
        row_begin.size(), shape.batch, shape.heads, shape.q_blocks(), wanted);
  }
  if (row_begin.front() != 0) refuse_mask("row_begin[0]={} must be 0", row_begin.front());
  for (std::size_t i = 1; i < wanted; ++i) {
    if (row_begin[i] >= row_begin[i - 1]) continue;
    refuse_mask("row_begin[{}]={} is less than row_begin[{}]={}; it must not fall", i, row_begin[i],
                i - 1, row_begin[i - 1]);
  }
  if (static_cast<std::size_t>(row_begin.back()) != entries) {
    refuse_mask("row_begin[{}]={} must be the number of entries, {}", wanted - 1, row_begin.back(),
                entries);
  }
}

/// `column(entry)` is its block column; `name` is the caller's of the list.
template <class Column>
void check_columns(const BlockMaskShape& shape, std::span<const int> row_begin, const char* name,
                   const Column& column) {
  const std::int64_t columns = shape.kv_blocks();
  for (std::int64_t row = 0; row < shape.rows(); ++row) {
    const int begin = row_begin[row], end = row_begin[row + 1];
    for (int entry = begin; entry < end; ++entry) {
      const int at = column(static_cast<std::size_t>(entry));
      if (at < 0 || at >= columns) {
        refuse_mask("{}[{}] of {} is block column {}; there are {}, from 0", name, entry,
                    row_text(shape, row), at, columns);
      }
      if (entry == begin) continue;
      const int before = column(static_cast<std::size_t>(entry) - 1);
      if (at == before)
        refuse_mask("{}[{}] of {} is block column {} a second time", name, entry,
                    row_text(shape, row), at);
      if (at < before) {
        refuse_mask("{}[{}] of {} is block column {} after {}; columns of a row ascend", name,
                    entry, row_text(shape, row), at, before);
      }
    }
  }
}

void check_bits(const BlockMask& mask) {
  if (mask.bits.empty() && mask.bit_blocks.empty()) return;
  const auto words = static_cast<std::size_t>(mask.words_per_block());
  if (mask.bits.size() % words != 0) {
    refuse_mask("bits has {} words; a block of {} x {} has {}", mask.bits.size(), mask.block_q,
                mask.block_kv, words);
  }
  if (mask.bit_blocks.size() != mask.columns.size()) {
    refuse_mask("bit_blocks has {} entries; columns has {}", mask.bit_blocks.size(),
                mask.columns.size());
  }
  const auto blocks = static_cast<std::int64_t>(mask.bits.size() / words);
  for (std::size_t i = 0; i < mask.bit_blocks.size(); ++i) {
    const int block = mask.bit_blocks[i];
    if (block < -1 || block >= blocks)
      refuse_mask("bit_blocks[{}]={} must be -1 or one of the {} blocks of bits", i, block, blocks);
    if (block >= 0 && mask.columns[i] % 2 == 0)
      refuse_mask(
          "bit_blocks[{}]={}, but columns[{}]={} is a full block, whose bits are not read; add 1 "
          "to it",
          i, block, i, mask.columns[i]);
  }
}

}  // namespace

void validate(const BlockMaskShape& shape) {
  const auto block = [](const char* name, int size) {
    if (size == 16 || size == 32 || size == 64 || size == 128) return;
    refuse_mask("{}={} must be 16, 32, 64 or 128", name, size);
  };
  block("block_q", shape.block_q);
  block("block_kv", shape.block_kv);
  constexpr std::int64_t kMostLength = std::int64_t{1} << 27, kMostMasks = 1 << 20;
  const struct {
    const char* name;
    std::int64_t value, least, most;
  } sizes[] = {{"seqlen_q", shape.seqlen_q, 0, kMostLength},
               {"seqlen_kv", shape.seqlen_kv, 0, kMostLength},
               {"heads", shape.heads, 1, kMostMasks},
               {"batch", shape.batch, 1, kMostMasks}};
  for (const auto& [name, value, least, most] : sizes) {
    if (value < least || value > most)
      refuse_mask("{}={} must be from {} to {}", name, value, least, most);
  }
  constexpr double kMostRows = 1 << 30;
  if (static_cast<double>(shape.batch) * static_cast<double>(shape.heads) *
          static_cast<double>(shape.q_blocks()) >
      kMostRows) {
    refuse_mask("batch={} heads={} and {} rows of blocks are more than 2^30 rows", shape.batch,
                shape.heads, shape.q_blocks());
  }
}

BlockMaskShape block_mask_shape(const Problem& problem) {
  if (!has_block_mask(problem))
    refuse_mask("\"{}\" has none; add blocks=64:64", to_string(problem));
  return {.block_q = problem.mask_block_q,
          .block_kv = problem.mask_block_kv,
          .seqlen_q = problem.seqlen_q,
          .seqlen_kv = problem.seqlen_kv,
          .heads = problem.mask_heads,
          .batch = problem.mask_batch};
}

void validate(const BlockMask& mask) {
  validate(static_cast<const BlockMaskShape&>(mask));
  check_row_begin(mask, mask.row_begin, mask.columns.size());
  for (std::size_t i = 0; i < mask.columns.size(); ++i) {
    if (mask.columns[i] < 0) refuse_mask("columns[{}]={} is negative", i, mask.columns[i]);
  }
  check_columns(mask, mask.row_begin, "columns",
                [&](std::size_t entry) { return mask.columns[entry] / 2; });
  check_bits(mask);
}

BlockMask block_mask_from_bsr(const BlockMaskShape& shape, std::span<const int> row_begin,
                              std::span<const int> indices, std::span<const std::uint8_t> partial,
                              std::span<const std::uint32_t> bits,
                              std::span<const int> bit_blocks) {
  validate(shape);
  check_row_begin(shape, row_begin, indices.size());
  check_columns(shape, row_begin, "indices", [&](std::size_t entry) { return indices[entry]; });
  if (!partial.empty() && partial.size() != indices.size())
    refuse_mask("partial has {} entries; indices has {}", partial.size(), indices.size());
  BlockMask mask{shape, {row_begin.begin(), row_begin.end()}, {}, {}, {}};
  for (std::size_t i = 0; i < indices.size(); ++i)
    mask.columns.push_back(indices[i] * 2 + (!partial.empty() && partial[i] != 0 ? 1 : 0));
  mask.bits.assign(bits.begin(), bits.end());
  mask.bit_blocks.assign(bit_blocks.begin(), bit_blocks.end());
  check_bits(mask);
  return mask;
}

BlockMask block_mask_from_runs(const BlockMaskShape& shape, std::span<const int> runs) {
  validate(shape);
  if (runs.size() != static_cast<std::size_t>(shape.rows()) * 2) {
    refuse_mask("there are {} runs for {} rows of blocks of {} queries", runs.size() / 2,
                shape.rows(), shape.block_q);
  }
  BlockMask mask{shape, {0}, {}, {}, {}};
  for (std::size_t row = 0; row < runs.size() / 2; ++row) {
    const std::int64_t first = runs[2 * row], count = runs[2 * row + 1];
    if (first < 0 || count < 0 || first + count > shape.kv_blocks()) {
      refuse_mask("the run of {} is {} block columns from {} on; there are {}",
                  row_text(shape, static_cast<std::int64_t>(row)), count, first, shape.kv_blocks());
    }
    for (std::int64_t column = first; column < first + count; ++column)
      mask.columns.push_back(static_cast<int>(column) * 2);
    mask.row_begin.push_back(static_cast<int>(mask.columns.size()));
  }
  return mask;
}

BlockMask block_mask_from_blocks(const BlockMaskShape& shape,
                                 std::span<const std::uint8_t> blocks) {
  validate(shape);
  const auto columns = static_cast<std::size_t>(shape.kv_blocks());
  const auto rows = static_cast<std::size_t>(shape.rows());
  if (blocks.size() != rows * columns) {
    refuse_mask("there are {} blocks for {} rows of {}", blocks.size(), rows, columns);
  }
  BlockMask mask{shape, {0}, {}, {}, {}};
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      if (blocks[row * columns + column] != 0) mask.columns.push_back(static_cast<int>(column) * 2);
    }
    mask.row_begin.push_back(static_cast<int>(mask.columns.size()));
  }
  return mask;
}

BlockMask block_mask_from_dense(const BlockMaskShape& shape, std::span<const std::uint8_t> seen) {
  validate(shape);
  const std::int64_t pairs = shape.batch * shape.heads * shape.seqlen_q * shape.seqlen_kv;
  if (static_cast<std::int64_t>(seen.size()) != pairs) {
    refuse_mask("a dense mask of {} pairs is not [{}, {}, {}, {}]", seen.size(), shape.batch,
                shape.heads, shape.seqlen_q, shape.seqlen_kv);
  }
  MaskBuilder builder(shape);
  for (std::int64_t mask = 0; mask < shape.batch * shape.heads; ++mask) {
    const std::uint8_t* const of_mask = seen.data() + mask * shape.seqlen_q * shape.seqlen_kv;
    const auto sees = [&](std::int64_t query, std::int64_t key) {
      return of_mask[query * shape.seqlen_kv + key] != 0;
    };
    for (std::int64_t row = 0; row < shape.q_blocks(); ++row) {
      for (std::int64_t column = 0; column < shape.kv_blocks(); ++column)
        builder.add_by_pairs(row, column, sees);
      builder.end_row();
    }
  }
  return builder.take();
}

BlockMask transposed(const BlockMask& mask) {
  BlockMaskShape shape = mask;
  std::swap(shape.block_q, shape.block_kv);
  std::swap(shape.seqlen_q, shape.seqlen_kv);
  BlockMask result{shape, std::vector<int>(static_cast<std::size_t>(shape.rows()) + 1), {}, {}, {}};
  struct Entry {
    std::int64_t row, column;  // in the result
    std::size_t from;
  };
  std::vector<Entry> entries;
  for (std::int64_t row = 0; row < mask.rows(); ++row) {
    const auto at = static_cast<std::size_t>(row);
    for (int entry = mask.row_begin[at]; entry < mask.row_begin[at + 1]; ++entry) {
      const auto from = static_cast<std::size_t>(entry);
      entries.push_back({row / mask.q_blocks() * shape.q_blocks() + mask.columns[from] / 2,
                         row % mask.q_blocks(), from});
    }
  }
  // Rows are visited in their order, so columns of the result ascend.
  std::ranges::stable_sort(entries, {}, &Entry::row);
  for (const auto& [row, column, from] : entries) {
    ++result.row_begin[row + 1];
    result.columns.push_back(static_cast<int>(column) * 2 + mask.columns[from] % 2);
    if (!mask.bit_blocks.empty()) result.bit_blocks.push_back(mask.bit_blocks[from]);
  }
  std::partial_sum(result.row_begin.begin(), result.row_begin.end(), result.row_begin.begin());

  const auto blocks = static_cast<std::int64_t>(mask.bits.size()) /
                      std::max<std::int64_t>(1, mask.words_per_block());
  result.bits.assign(static_cast<std::size_t>(blocks * shape.words_per_block()), 0);
  for (std::int64_t block = 0; block < blocks; ++block) {
    for (int query = 0; query < mask.block_q; ++query) {
      for (int key = 0; key < mask.block_kv; ++key) {
        if (!bit_of(mask, mask.bits.data(), block, query, key)) continue;
        set_bit(shape, result.bits.data(), block, key, query);
      }
    }
  }
  return result;
}

BlockCounts count_blocks(const BlockMask& mask) {
  BlockCounts counts;
  counts.blocks = mask.rows() * mask.kv_blocks();
  counts.partial = std::count_if(mask.columns.begin(), mask.columns.end(),
                                 [](int column) { return column % 2 != 0; });
  counts.full = static_cast<std::int64_t>(mask.columns.size()) - counts.partial;
  return counts;
}

std::int64_t merged_blocks(const BlockMask& mask, int block_m) {
  const std::int64_t together = std::max(1, block_m / mask.block_q), rows = mask.q_blocks();
  std::int64_t blocks = 0;
  std::vector<int> columns;
  for (std::int64_t first = 0; first < mask.rows();) {
    const std::int64_t end = std::min(first + together, (first / rows + 1) * rows);
    columns.clear();
    for (int entry = mask.row_begin[first]; entry < mask.row_begin[end]; ++entry)
      columns.push_back(mask.columns[entry] / 2);
    std::sort(columns.begin(), columns.end());
    const auto different = std::unique(columns.begin(), columns.end()) - columns.begin();
    blocks += different * (end - first);
    first = end;
  }
  return blocks;
}

BlockMaskRef block_mask_ref(const BlockMask& mask) {
  return {.row_begin = mask.row_begin.data(),
          .columns = mask.columns.data(),
          .bits = mask.bits.empty() ? nullptr : mask.bits.data(),
          .bit_blocks = mask.bits.empty() ? nullptr : mask.bit_blocks.data()};
}

Problem with_block_mask(const Problem& problem, const BlockMask& mask) {
  return with_block_mask(problem, mask, count_blocks(mask).density(), !mask.bits.empty());
}

Problem with_block_mask(const Problem& problem, const BlockMaskShape& mask, double density,
                        bool bits) {
  Problem p = problem;
  p.mask_block_q = mask.block_q;
  p.mask_block_kv = mask.block_kv;
  p.mask_heads = mask.heads;
  p.mask_batch = mask.batch;
  p.mask_bits = bits;
  p.density = static_cast<float>(density);
  constexpr float kLeastDensity = 1e-6f;
  if (p.density < kLeastDensity) p.density = kLeastDensity;
  if (mask.seqlen_q != p.seqlen_q || mask.seqlen_kv != p.seqlen_kv) {
    refuse_mask("it is of seqlen_q={} seqlen_kv={}, not of \"{}\"", mask.seqlen_q, mask.seqlen_kv,
                to_string(problem));
  }
  try {
    validate(p);
  } catch (const Error& error) {
    refuse_mask("it does not fit \"{}\": {}", to_string(problem), error.what());
  }
  return p;
}

}  // namespace attnforge
