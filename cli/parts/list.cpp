#include "cli/parts/part.h"

#include <algorithm>
#include <span>
#include <utility>

#include "attnforge/error.h"

namespace attnforge::cli {
namespace {

struct Listed {
  RunPartPlace place;
  std::unique_ptr<RunPart> (*make)();
};

/// Filled before main() begins, by the files of the parts.
std::vector<Listed>& listed() {
  static std::vector<Listed> list;
  return list;
}

}  // namespace

ListedRunPart::ListedRunPart(RunPartPlace place, std::unique_ptr<RunPart> (*make)()) {
  listed().push_back({place, make});
}

RunParts run_parts() {
  std::vector<Listed> in_order = listed();
  std::ranges::sort(in_order, {}, &Listed::place);
  ATTNFORGE_ASSERT(std::ranges::adjacent_find(in_order, {}, &Listed::place) == in_order.end(),
                   "each part has a place of its own");
  RunParts parts;
  for (const Listed& part : in_order) parts.push_back(part.make());
  return parts;
}

ReadText reader_of(const RunParts& parts, std::uint64_t seed) {
  return [&parts, seed](const std::string& text) {
    std::string words = text;
    for (const auto& part : parts) part->add_words(words);
    Problem problem = parse_problem(words);
    for (const auto& part : parts) problem = part->completed(problem, seed);
    return problem;
  };
}

Work work_of(const RunParts& parts, const Problem& problem) {
  KnownTables known;
  for (const auto& part : parts) part->know(problem, known);
  const std::vector<std::span<const std::byte>> arrays(known.arrays.begin(), known.arrays.end());
  return work_of(problem, known.tables, arrays);
}

Drawing drawing_of(const RunParts& parts, const Problem& problem) {
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (std::optional<Drawing> drawing = (*part)->drawing(problem)) return *std::move(drawing);
  }
  return {};
}

std::string examples_of(const RunParts& parts, std::string_view verb) {
  std::string all;
  for (const auto& part : parts) all += part->examples(verb);
  return all;
}

}  // namespace attnforge::cli
