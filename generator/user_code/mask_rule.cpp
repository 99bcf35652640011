#include "generator/user_code/mask_rule.h"

#include <fmt/format.h>

#include "generator/user_code/user_code.h"

namespace attnforge {

MaskRule::MaskRule(std::string_view text, const Problem& problem,
                   std::span<const std::span<const std::byte>> arrays)
    : seqlen_q_(problem.seqlen_q), seqlen_kv_(problem.seqlen_kv) {
  const std::vector<CodeArgument> arguments = code_arguments(problem.args);
  tree_ = code_tree(text, CodeText::kMask, arguments);
  for (std::size_t i = 0; i < arguments.size(); ++i)
    values_.push_back(
        {arguments[i].value, i < arrays.size() ? arrays[i] : std::span<const std::byte>()});
  for (const CodeNode& node : tree_.nodes) {
    if (node.op != CodeOp::kElement || !values_[node.argument].bytes.empty()) continue;
    if (tree_.unknown.empty())
      tree_.unknown = fmt::format("it reads {}, whose elements are not given",
                                  arguments[node.argument].name);
  }
}

std::int64_t MaskRule::operations() const {
  constexpr std::int64_t kOfCall = 16;
  std::int64_t count = 0;
  for (const CodeNode& node : tree_.nodes) count += node.op == CodeOp::kCall ? kOfCall : 1;
  return count;
}

}  // namespace attnforge
