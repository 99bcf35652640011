// nearest_word.cpp - which known word a misspelt one means.
#include <algorithm>
#include <vector>

#include "attnforge/problem_words.h"

namespace attnforge {
namespace {

/// Edit distance where a letter too few or too many costs 2 and a wrong one 3: seqlen_k is nearer
/// to seqlen_kv than to seqlen_q.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = 2 * j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = 2 * i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 3);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 2, row[j - 1] + 2});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string_view nearest_word(std::string_view name, std::span<const std::string_view> words) {
  std::string_view nearest;
  std::size_t least = name.size() + 1;
  for (const std::string_view word : words) {
    const std::size_t distance = edit_distance(name, word);
    if (distance >= least) continue;
    nearest = word;
    least = distance;
  }
  return nearest;
}

}  // namespace attnforge
