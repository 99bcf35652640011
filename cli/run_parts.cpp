#include "cli/run_parts.h"

namespace attnforge::cli {

// In the order in which files are taken: a mask may be found by what a text reads.
std::unique_ptr<RunPart> rope_files();      // cli/rope_files
std::unique_ptr<RunPart> gradient_files();  // cli/gradient_files
std::unique_ptr<RunPart> code_part();       // cli/code_part
std::unique_ptr<RunPart> mask_part();       // cli/mask_part

RunParts run_parts() {
  RunParts parts;
  for (const auto make : {rope_files, gradient_files, code_part, mask_part})
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
