// text_blocks.cpp - which blocks a mask's text leaves empty, full or partial: windows exactly, the
// rest of the text by asking pairs, of large masks some of each block.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "attnforge/block_mask.h"
#include "attnforge/error.h"
#include "generator/user_code/mask_rule.h"
#include "generator/user_code/mask_windows.h"

namespace attnforge {
namespace {

constexpr std::int64_t kMostBlocks = 1 << 16, kMostPairs = 1 << 22;  // that are asked
constexpr std::int64_t kMostDrawnOperations = 1 << 27;               // of the text, on all of them
constexpr int kUsualBlock = 128;

/// first to end - 1
struct Range {
  std::int64_t first, end;
  std::int64_t size() const { return end - first; }
};

BlockMaskShape drawn_shape(const Problem& p) {
  BlockMaskShape shape{.block_q = has_block_mask(p) ? p.mask_block_q : kUsualBlock,
                       .block_kv = has_block_mask(p) ? p.mask_block_kv : kUsualBlock,
                       .seqlen_q = p.seqlen_q,
                       .seqlen_kv = p.seqlen_kv};
  while (shape.q_blocks() * shape.kv_blocks() > kMostBlocks)
    (shape.q_blocks() > shape.kv_blocks() ? shape.block_q : shape.block_kv) *= 2;
  return shape;
}

/// What bounds around each query's position let be seen of a block.
struct Windows {
  KeyBounds bounds;
  std::int64_t offset;  // of a query's position

  bool sees(std::int64_t q, std::int64_t k) const {
    const std::int64_t distance = k - q - offset;
    return (!bounds.right || distance <= *bounds.right) &&
           (!bounds.left || distance >= -*bounds.left);
  }
  /// The key is furthest to the right of the first query, and furthest to the left of the last.
  bool see_all(Range q, Range k) const {
    return sees(q.first, k.end - 1) && sees(q.end - 1, k.first);
  }
  bool see_any(Range q, Range k) const {
    if (bounds.left && bounds.right && *bounds.left + *bounds.right < 0) return false;
    return (!bounds.right || k.first - (q.end - 1) - offset <= *bounds.right) &&
           (!bounds.left || k.end - 1 - q.first - offset >= -*bounds.left);
  }
};

/// At most `most` of a range: both ends, and others apart by uneven steps, which no pattern of the
/// text has. `salt` moves them.
void sample(Range range, std::int64_t most, std::uint64_t salt, std::vector<std::int64_t>& found) {
  found.clear();
  const std::int64_t count = std::min(most, range.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t from = range.first + i * range.size() / count;
    const std::int64_t room = range.first + (i + 1) * range.size() / count - from;
    const auto step = static_cast<std::int64_t>(
        (salt + static_cast<std::uint64_t>(i)) * 0x9e3779b97f4a7c15u >> 40);
    const bool is_end = i == 0 || i + 1 == count;
    found.push_back(from + (i + 1 == count ? room - 1 : is_end ? 0 : step % room));
  }
}

enum class BlockState { kEmpty, kPartial, kFull };

}  // namespace

TextBlocks text_blocks(const Problem& problem, std::span<const std::span<const std::byte>> arrays,
                       std::int64_t head, std::int64_t sequence) {
  validate(problem);
  if (problem.mask.empty() || head < 0 || head >= problem.num_heads_q || sequence < 0 ||
      sequence >= problem.batch) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("\"{}\" has no mask text of head {} and sequence {}",
                            to_string(problem), head, sequence));
  }
  MaskTerms terms = mask_terms(problem);
  if (has_block_mask(problem)) terms.bounds = {};  // a run applies its own window to the blocks
  const Windows windows{terms.bounds, problem.seqlen_kv - problem.seqlen_q};
  const bool has_rule = !terms.code.empty();
  const MaskRule rule(has_rule ? terms.code : "1", problem, arrays);
  if (!rule.unknown().empty()) return {{}, false, rule.unknown()};

  const BlockMaskShape shape = drawn_shape(problem);
  const std::int64_t blocks = std::max<std::int64_t>(1, shape.q_blocks() * shape.kv_blocks());
  constexpr std::int64_t kLeastSide = 2;  // corners
  const std::int64_t pairs = std::min(kMostPairs, kMostDrawnOperations / rule.operations());
  const auto side = std::max(
      kLeastSide, static_cast<std::int64_t>(std::sqrt(static_cast<double>(pairs / blocks))));
  TextBlocks found{{shape, {0}, {}, {}, {}}, false, ""};
  std::vector<std::int64_t> queries, keys;

  const auto asked = [&](Range q, Range k, bool whole) {
    if (!has_rule) return whole ? BlockState::kFull : BlockState::kPartial;
    const auto salt = static_cast<std::uint64_t>(q.first * 31 + k.first);
    sample(q, side, salt, queries);
    sample(k, side, ~salt, keys);
    found.sampled |= q.size() > side || k.size() > side;
    bool any = false, all = whole;
    for (const std::int64_t query : queries) {
      for (const std::int64_t key : keys) {
        const bool sees = windows.sees(query, key) && rule.sees({sequence, head, query, key});
        any |= sees;
        all &= sees;
      }
      if (any && !all) break;
    }
    return all ? BlockState::kFull : any ? BlockState::kPartial : BlockState::kEmpty;
  };

  for (std::int64_t row = 0; row < shape.q_blocks(); ++row) {
    const Range q{row * shape.block_q, std::min(shape.seqlen_q, (row + 1) * shape.block_q)};
    for (std::int64_t column = 0; column < shape.kv_blocks(); ++column) {
      const Range k{column * shape.block_kv,
                    std::min(shape.seqlen_kv, (column + 1) * shape.block_kv)};
      if (!windows.see_any(q, k)) continue;
      const BlockState state = asked(q, k, windows.see_all(q, k));
      if (state != BlockState::kEmpty)
        found.mask.columns.push_back(static_cast<int>(column) * 2 +
                                     (state == BlockState::kPartial));
    }
    found.mask.row_begin.push_back(static_cast<int>(found.mask.columns.size()));
  }
  return found;
}

}  // namespace attnforge
