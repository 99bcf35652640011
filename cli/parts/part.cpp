#include "cli/parts/part.h"

#include <span>
#include <utility>

namespace attnforge::cli {

RunParts run_parts() {
  RunParts parts;
  for (const auto make : {rope_part, head_part, scale_part, gradient_part, code_part, mask_part})
    parts.push_back(make());
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
