#include "plan/tools/text_functions.h"

#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attnforge/error.h"
#include "generator/user_code/code_operands.h"
#include "generator/user_code/code_tokens.h"
#include "generator/user_code/code_value.h"
#include "generator/user_code/user_code.h"

namespace attnforge {
namespace {

/// A text and what its names are in a run.
struct Text {
  CodeTree tree;
  std::vector<CodeValue> values;

  static CodePlace place(double s, const CodePair& pair) {
    return {s, pair.batch, pair.head, pair.q, pair.k, pair.seqlen_q, pair.seqlen_kv};
  }
  double value(double s, const CodePair& pair) const {
    return value_of(tree, place(s, pair), values);
  }
  double slope(double s, const CodePair& pair, const TakeRead* read = nullptr) const {
    return slope_of(tree, place(s, pair), values, read);
  }
};

std::vector<CodeValue> values_of_run(const Problem& problem,
                                     const std::vector<CodeArgument>& arguments,
                                     const Tensors& tensors) {
  std::vector<CodeValue> values;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const CodeArgument& argument = arguments[i];
    const std::uint64_t word = tensors.code_arguments[i];
    const auto low = static_cast<std::uint32_t>(word);
    CodeValue& value = values.emplace_back();
    if (argument.is_array) {
      const auto* const begin = reinterpret_cast<const std::byte*>(
          static_cast<std::uintptr_t>(word));
      value.bytes = {begin, static_cast<std::size_t>(array_elements(argument, problem)) *
                                static_cast<std::size_t>(size_bytes(argument.type))};
    } else if (argument.type == CodeArgument::Type::kFloat) {
      value.number = std::bit_cast<float>(low);
    } else {
      value.number = static_cast<std::int32_t>(low);
    }
  }
  return values;
}

std::shared_ptr<const Text> text_of(std::string_view name, const std::string& text, CodeText kind,
                                    const std::vector<CodeArgument>& arguments,
                                    const std::vector<CodeValue>& values) {
  if (text.empty()) return nullptr;
  auto read = std::make_shared<Text>(Text{code_tree(text, kind, arguments), values});
  const CodeTree& tree = read->tree;
  if (tree.unknown.empty()) return read;
  throw Error(ErrorCode::kUnsupported,
              fmt::format("the CPU cannot compute the {} text: {}, at {}; it knows operators, ?:, "
                          "conversions to int, float and bool, and the functions of "
                          "docs/USER_CODE.md; others need a GPU, where the family fwd_naive or "
                          "bwd_naive compiles the text in fp32",
                          name, tree.unknown, line_and_column(text, tree.unknown_at)));
}

}  // namespace

CodeFunctions text_functions(const Problem& problem, const Tensors& tensors) {
  CodeFunctions functions;
  if (!has_code(problem)) return functions;
  const std::vector<CodeArgument> arguments = code_arguments(problem.args);
  const std::vector<CodeValue> values = values_of_run(problem, arguments, tensors);
  const auto score = text_of("score", problem.score, CodeText::kScore, arguments, values);
  const auto mask = text_of("mask", problem.mask, CodeText::kMask, arguments, values);
  if (mask != nullptr)
    functions.mask = [mask](const CodePair& pair) { return mask->value(0, pair) != 0; };
  if (score == nullptr) return functions;
  functions.score = [score](double s, const CodePair& pair) { return score->value(s, pair); };
  functions.score_derivative = [score](double s, const CodePair& pair) {
    return score->slope(s, pair);
  };
  for (const Darg& darg : dargs_of(problem))
    functions.dargs.push_back({darg.elements, darg.written ? nullptr : address_of(darg, tensors)});
  if (functions.dargs.empty()) return functions;
  // Which of dargs an argument is.
  std::vector<std::size_t> places(arguments.size(), functions.dargs.size());
  const std::vector<std::size_t> wanted = places_of_dargs(problem);
  for (std::size_t i = 0; i < wanted.size(); ++i) places[wanted[i]] = i;
  functions.score_reads = [score, places = std::move(places), count = wanted.size()](
                              double s, const CodePair& pair, const CodeFunctions::AddRead& add) {
    const TakeRead take = [&](std::size_t argument, std::int64_t element, double slope) {
      if (places[argument] < count) add(places[argument], element, slope);
    };
    score->slope(s, pair, &take);
  };
  return functions;
}

}  // namespace attnforge
