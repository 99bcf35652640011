// generators.cpp - masks of usual kinds. What a query sees is ranges of keys, so full
// blocks are found without a look at their pairs.
#include <algorithm>
#include <vector>

#include "attnforge/block_mask.h"
#include "reference/parts/block_mask/builder.h"
#include "reference/split_mix.h"
#include "reference/visible.h"

namespace attnforge {
namespace {

/// The shape of one head of one sequence; an empty mask of it passes validate().
BlockMaskShape one_of(const BlockMaskShape& shape) {
  BlockMaskShape one = shape;
  one.heads = one.batch = 1;
  validate(BlockMask{one, std::vector<int>(static_cast<std::size_t>(one.rows()) + 1), {}, {}, {}});
  return one;
}

/// `mask` for every head and sequence.
BlockMask repeated(BlockMask mask, const BlockMaskShape& shape) {
  const auto copies = static_cast<std::size_t>(shape.heads * shape.batch);
  if (mask.columns.size() > MaskBuilder::kMostEntries / copies) MaskBuilder::refuse_entries();
  BlockMask all = mask;
  all.heads = shape.heads;
  all.batch = shape.batch;
  for (std::size_t copy = 1; copy < copies; ++copy) {
    const int entries = all.row_begin.back();
    for (std::size_t i = 1; i < mask.row_begin.size(); ++i)
      all.row_begin.push_back(entries + mask.row_begin[i]);
    all.columns.insert(all.columns.end(), mask.columns.begin(), mask.columns.end());
    all.bit_blocks.insert(all.bit_blocks.end(), mask.bit_blocks.begin(), mask.bit_blocks.end());
  }
  validate(all);
  return all;
}

/// Keys of a query: disjoint, ascending, none of them next to another.
struct SeenRanges {
  KeyRange ranges[2];
  int count = 0;

  void add(KeyRange range, const BlockMaskShape& shape) {
    range.first = std::max<std::int64_t>(range.first, 0);
    range.last = std::min(range.last, shape.seqlen_kv - 1);
    if (range.first > range.last) return;
    if (count > 0 && range.first <= ranges[count - 1].last + 1) {
      ranges[count - 1].last = std::max(ranges[count - 1].last, range.last);
    } else {
      ranges[count++] = range;
    }
  }
  bool contains(std::int64_t key) const {
    return std::any_of(ranges, ranges + count,
                       [key](const KeyRange& range) { return range.contains(key); });
  }
};

/// `seen(query)` are its SeenRanges.
template <class Seen>
BlockMask mask_of_ranges(const BlockMaskShape& shape, const Seen& seen) {
  const BlockMaskShape one = one_of(shape);
  MaskBuilder builder(one);
  const std::int64_t columns = one.kv_blocks();
  std::vector<SeenRanges> of_query(static_cast<std::size_t>(one.block_q));
  for (std::int64_t row = 0; row < one.q_blocks(); ++row) {
    const std::int64_t first = row * one.block_q,
                       count = std::min<std::int64_t>(one.block_q, one.seqlen_q - first);
    // How many queries see a part, and all, of a column: differences to the column before.
    std::vector<std::int64_t> touched(static_cast<std::size_t>(columns) + 1), covered = touched;
    for (std::int64_t i = 0; i < count; ++i) {
      SeenRanges& ranges = of_query[i] = seen(first + i);
      for (int r = 0; r < ranges.count; ++r) {
        const KeyRange& range = ranges.ranges[r];
        ++touched[range.first / one.block_kv];
        --touched[range.last / one.block_kv + 1];
        const std::int64_t whole = (range.first + one.block_kv - 1) / one.block_kv;
        const std::int64_t end = range.last + 1 == one.seqlen_kv ? columns
                                                                 : (range.last + 1) / one.block_kv;
        if (whole >= end) continue;
        ++covered[whole];
        --covered[end];
      }
    }
    std::int64_t some = 0, all = 0;
    for (std::int64_t column = 0; column < columns; ++column) {
      some += touched[column];
      all += covered[column];
      if (all == count) {
        builder.add_full(column);
      } else if (some > 0) {
        builder.add_by_pairs(row, column, [&](std::int64_t query, std::int64_t key) {
          return of_query[query - first].contains(key);
        });
      }
    }
    builder.end_row();
  }
  return repeated(builder.take(), shape);
}

void check_side(const char* name, std::int64_t value) {
  if (value < -1) refuse_mask("{}={} must be -1 (open) or a number of keys", name, value);
}

KeyRange window_of(const BlockMaskShape& shape, std::int64_t query, std::int64_t left,
                   std::int64_t right) {
  const std::int64_t position = query + shape.seqlen_kv - shape.seqlen_q;
  return {left < 0 ? 0 : position - left, right < 0 ? shape.seqlen_kv - 1 : position + right};
}

/// Block columns that the positions of a block row's queries lie in; last < first if none does.
KeyRange diagonal_of(const BlockMaskShape& shape, std::int64_t row) {
  const std::int64_t shift = shape.seqlen_kv - shape.seqlen_q;
  const std::int64_t first = row * shape.block_q + shift,
                     last = std::min((row + 1) * shape.block_q, shape.seqlen_q) - 1 + shift;
  if (last < 0) return {};
  return {std::max<std::int64_t>(first, 0) / shape.block_kv, last / shape.block_kv};
}

double unit(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

constexpr int kPatterns = 8;

/// Blocks of random bits.
std::vector<std::vector<std::uint32_t>> random_patterns(const BlockMaskShape& shape,
                                                        std::uint64_t seed) {
  std::vector<std::vector<std::uint32_t>> patterns(kPatterns);
  for (auto& pattern : patterns) {
    for (std::int64_t i = 0; i < shape.words_per_block(); ++i)
      pattern.push_back(static_cast<std::uint32_t>(mixed(seed += kSplitMixStep) >> 32));
  }
  return patterns;
}

}  // namespace

BlockMask random_block_mask(const BlockMaskShape& shape, const RandomBlocks& random) {
  one_of(shape);
  const auto check_share = [](const char* name, double share) {
    if (!(share >= 0 && share <= 1)) refuse_mask("{}={} must be from 0 to 1", name, share);
  };
  check_share("density", random.density);
  check_share("partial", random.partial);
  const std::uint64_t seed = mixed(random.seed + kSplitMixStep);
  const auto patterns = random_patterns(shape, seed);
  MaskBuilder builder(shape);
  for (std::int64_t row = 0; row < shape.rows(); ++row) {
    const KeyRange diagonal = diagonal_of(shape, row % shape.q_blocks());
    for (std::int64_t column = 0; column < shape.kv_blocks(); ++column) {
      const auto number = static_cast<std::uint64_t>(row * shape.kv_blocks() + column);
      const std::uint64_t bits = mixed(seed + (number + 1) * kSplitMixStep);
      const bool present = unit(bits) < random.density ||
                           (random.diagonal && diagonal.contains(column));
      if (!present) continue;
      const std::uint64_t more = mixed(bits);
      if (unit(more) < random.partial) {
        builder.add_partial(column, patterns[more % kPatterns]);
      } else {
        builder.add_full(column);
      }
    }
    builder.end_row();
  }
  BlockMask mask = builder.take();
  validate(mask);
  return mask;
}

BlockMask sliding_window_mask(const BlockMaskShape& shape, std::int64_t left, std::int64_t right) {
  return global_window_mask(shape, 0, left, right);
}

BlockMask global_window_mask(const BlockMaskShape& shape, std::int64_t global, std::int64_t left,
                             std::int64_t right) {
  check_side("left", left);
  check_side("right", right);
  if (global < 0) refuse_mask("global={} must be 0 or a number of keys", global);
  return mask_of_ranges(shape, [&](std::int64_t query) {
    SeenRanges ranges;
    if (query < global) {
      ranges.add({0, shape.seqlen_kv - 1}, shape);
    } else {
      ranges.add({0, global - 1}, shape);
      ranges.add(window_of(shape, query, left, right), shape);
    }
    return ranges;
  });
}

BlockMask strided_mask(const BlockMaskShape& shape, std::int64_t local, std::int64_t stride) {
  if (local < 0) refuse_mask("local={} must be 0 or a number of blocks", local);
  if (stride < 1) refuse_mask("stride={} must be a number of blocks, 1 or more", stride);
  const BlockMaskShape one = one_of(shape);
  MaskBuilder builder(one);
  for (std::int64_t row = 0; row < one.q_blocks(); ++row) {
    const KeyRange diagonal = diagonal_of(one, row);
    const KeyRange near{diagonal.first - local, diagonal.last};
    for (std::int64_t column = 0; column < one.kv_blocks(); ++column) {
      if (near.contains(column) || column % stride == 0) builder.add_full(column);
    }
    builder.end_row();
  }
  return repeated(builder.take(), shape);
}

BlockMask document_mask(const BlockMaskShape& shape, std::span<const std::int64_t> lengths) {
  std::vector<std::int64_t> begins = {0};
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 0) refuse_mask("lengths[{}]={} is negative", i, lengths[i]);
    begins.push_back(begins.back() + lengths[i]);
  }
  if (begins.back() != shape.seqlen_q || begins.back() != shape.seqlen_kv) {
    refuse_mask("documents of {} tokens in all do not fill seqlen_q={} and seqlen_kv={}",
                begins.back(), shape.seqlen_q, shape.seqlen_kv);
  }
  return mask_of_ranges(shape, [&](std::int64_t query) {
    const auto end = std::upper_bound(begins.begin(), begins.end(), query);
    SeenRanges ranges;
    ranges.add({*(end - 1), *end - 1}, shape);
    return ranges;
  });
}

}  // namespace attnforge
