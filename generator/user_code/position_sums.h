// position_sums.h - comparisons of sums of positions and lengths in a text: windows, or parts of
// one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "generator/user_code/code_tree.h"

namespace attnforge {

/// A sum of positions, lengths, a number, and a number of the run, each with a factor.
struct PositionSum {
  std::int64_t k = 0, q = 0, seqlen_q = 0, seqlen_kv = 0, number = 0;
  std::int64_t of_run = 0;   // the factor of that number
  std::size_t argument = 0;  // which one it is, where the factor is not 0

  /// Nothing where these are different numbers of the run.
  std::optional<PositionSum> plus(const PositionSum& other, std::int64_t factor) const;
};
using PositionSums = std::vector<std::optional<PositionSum>>;  // one for each node of a tree
PositionSums position_sums(const CodeTree& tree);

/// What has to be 0 or less where a comparison of sums, or of abs() of one, holds; empty if the
/// node is something else. `sums` are those of the tree.
std::vector<PositionSum> sums_of_comparison(const CodeTree& tree, const CodeNode& node,
                                            const PositionSums& sums);

}  // namespace attnforge
