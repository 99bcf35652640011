// mask_windows.h - finds windows in a mask's text, so that "k <= q" compiles to a causal mask.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "attnforge/problem.h"

namespace attnforge {

/// Which keys a query sees for where it stands: from its position - left to its position + right,
/// as Window says it; none: no bound. A text's bound may be negative.
struct KeyBounds {
  std::optional<std::int64_t> left, right;
};

/// A mask as kernels know it: windows, and what they have to ask the text for.
struct MaskTerms {
  /// The problem's windows and those of its mask text: of the terms that && joins, comparisons of
  /// sums of k, q, seqlen_q, seqlen_kv and whole numbers in which k and q differ in sign alone, and
  /// abs() of such a sum with an upper bound. Where only the device knows lengths, those that are
  /// relative to the query's position, such as "k <= q + seqlen_kv - seqlen_q". No windows where
  /// there is a block mask, whose full blocks a text does not concern.
  KeyBounds bounds{};
  /// The text with "1" at the place of each term that is in `bounds`, other characters where they
  /// were. "": nothing is left to ask, or there is no text.
  std::string code{};
};
/// Reads the text once: a microsecond or two for one of a line.
MaskTerms mask_terms(const Problem& problem);

/// One half of mask_terms() alone.
KeyBounds key_bounds(const Problem& problem);
std::string mask_code(const Problem& problem);

}  // namespace attnforge
