// visible.h - which keys a query row sees.
#pragma once

#include <algorithm>
#include <cstdint>

#include "attnforge/problem.h"

namespace attnforge {

/// Keys first to last, both included; empty when first > last.
struct KeyRange {
  std::int64_t first = 0;
  std::int64_t last = -1;

  bool contains(std::int64_t key) const { return first <= key && key <= last; }
};

inline KeyRange visible_keys(const Problem& problem, std::int64_t query) {
  const std::int64_t position = query + problem.seqlen_kv - problem.seqlen_q;
  const Window window = effective_window(problem);
  KeyRange range{0, problem.seqlen_kv - 1};
  if (window.left >= 0) range.first = std::max<std::int64_t>(0, position - window.left);
  if (window.right >= 0) range.last = std::min(range.last, position + window.right);
  return range;
}

}  // namespace attnforge
