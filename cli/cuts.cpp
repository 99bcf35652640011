#include "cli/cuts.h"

#include <algorithm>
#include <map>
#include <string>

namespace attnforge::cli {
namespace {

/// "smem 180224 > 101376" and "smem 196608 > 101376" are one reason: "smem # > #".
std::string without_numbers(const std::string& reason) {
  std::string text;
  for (char c : reason) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit) text += c;
    if (digit && (text.empty() || text.back() != '#')) text += '#';
  }
  return text;
}

}  // namespace

std::vector<CutCount> counted_cuts(const std::vector<CandidateInfo>& candidates) {
  std::map<std::string, CutCount> counts;
  for (const CandidateInfo& candidate : candidates) {
    if (candidate.cut.empty()) continue;
    CutCount& cut = counts[without_numbers(candidate.cut)];
    if (++cut.count == 1) cut.example = &candidate;
  }
  std::vector<CutCount> common;
  for (const auto& [kind, cut] : counts) common.push_back(cut);
  std::stable_sort(common.begin(), common.end(),
                   [](const CutCount& a, const CutCount& b) { return a.count > b.count; });
  return common;
}

}  // namespace attnforge::cli
