#include "generator/user_code/pair_terms.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "generator/user_code/code_tokens.h"
#include "generator/user_code/code_tree.h"
#include "generator/user_code/mask_windows.h"
#include "generator/user_code/user_code.h"

namespace attnforge {
namespace {

using Relation = PairTerm::Relation;
using enum CodeOp;

bool is_one_of(CodeOp op, std::initializer_list<CodeOp> ops) {
  return std::ranges::find(ops, op) != ops.end();
}

/// Whether nothing in a term but comparisons decides what is evaluated, and it has no functions of
/// its own. Bits may be cheap to tell, and are left alone.
bool is_plain(std::span<const CodeNode> term) {
  return std::ranges::none_of(term, [](const CodeNode& node) {
    return is_one_of(node.op, {kOpaque, kChoice, kAnd, kOr, kBits, kOtherBits, kAnyBits});
  });
}

/// Whether arrays are read at indexes alone that no other term can have been meant to bound.
bool reads_plainly(const CodeTree& tree, std::span<const CodeNode> term) {
  return std::ranges::all_of(term, [&](const CodeNode& node) {
    return node.op != kElement || std::ranges::all_of(tree.under(node.a), [](const CodeNode& in) {
             return is_one_of(in.op, {kBatch, kHead, kQ, kK, kSeqlenQ, kSeqlenKv, kPlus, kTimes});
           });
  });
}

std::optional<Relation> relation_of(CodeOp op) {
  constexpr CodeOp kInOrder[] = {kEqual, kUnequal, kBelow, kAtMost, kAbove, kAtLeast};
  const auto found = std::ranges::find(kInOrder, op);
  if (found == std::end(kInOrder)) return std::nullopt;
  return static_cast<Relation>(found - std::begin(kInOrder));
}

Relation mirrored(Relation relation) {
  using enum Relation;
  constexpr Relation kMirrored[] = {kEqual, kUnequal, kAbove, kAtLeast, kBelow, kAtMost};
  return kMirrored[static_cast<int>(relation)];
}

/// Part of a text on one line.
std::string part_of(std::string_view text, std::size_t begin, std::size_t end) {
  std::string part(text.substr(begin, end - begin));
  std::ranges::replace(part, '\n', ' ');
  return part;
}

std::optional<PairTerm> read_term(std::string_view text, const CodeTree& tree,
                                  const CodeNode& term) {
  const std::optional<Relation> relation = relation_of(term.op);
  // A shift without brackets looks like a comparison.
  const auto shifts = [&](int side) {
    const CodeNode& node = tree[side];
    return is_one_of(node.op, {kLeft, kRight}) &&
           (side == term.a ? node.end == term.left_end : node.begin == term.middle);
  };
  if (relation && !shifts(term.a) && !shifts(term.b)) {
    const std::string left = part_of(text, term.begin, term.left_end),
                      right = part_of(text, term.middle, term.end);
    if (!names(left, "k") && !names(right, "q")) return PairTerm{left, *relation, right};
    if (!names(left, "q") && !names(right, "k")) return PairTerm{right, mirrored(*relation), left};
  }
  const std::string all = part_of(text, term.begin, term.end), truth = "bool(" + all + ")";
  if (!names(all, "k")) return PairTerm{truth, Relation::kEqual, "true"};
  if (!names(all, "q")) return PairTerm{"true", Relation::kEqual, truth};
  return std::nullopt;
}

}  // namespace

PairTerms pair_terms(const Problem& problem) {
  const std::string text = mask_code(problem);
  if (text.empty()) return {};
  const CodeTree tree = code_tree(text, CodeText::kMask, code_arguments(problem.args));
  if (tree.assigns) return {.terms = {}, .all = false};
  PairTerms found;
  bool is_first = true;
  for (const int at : terms_of(tree, text)) {
    const CodeNode& node = tree[at];
    if (text.substr(node.begin, node.end - node.begin) == "1") continue;  // a window was here
    const std::span<const CodeNode> term = tree.under(at);
    const bool reads = std::ranges::find(term, kElement, &CodeNode::op) != term.end();
    std::optional<PairTerm> read;
    if (is_plain(term) && (!reads || (is_first && reads_plainly(tree, term))))
      read = read_term(text, tree, node);
    is_first = false;
    if (read)
      found.terms.push_back(*std::move(read));
    else
      found.all = false;
  }
  return found;
}

bool holds_labels(const Problem& problem, std::string_view array) {
  const auto count = [&](const std::string& text) {
    return std::ranges::count(code_tokens(text), array, &CodeToken::text);
  };
  const std::vector<CodeArgument> arguments = code_arguments(problem.args);
  std::ptrdiff_t compared = 0;
  for (const PairTerm& term : pair_terms(problem).terms) {
    if (term.relation != Relation::kEqual) continue;
    for (const std::string* side : {&term.of_query, &term.of_key}) {
      const CodeNode node = code_tree(*side, CodeText::kMask, arguments).nodes.back();
      compared += node.op == kElement && arguments[node.argument].name == array &&
                  count(*side) == 1;
    }
  }
  return compared > 0 && compared == count(problem.mask) + count(problem.score);
}

}  // namespace attnforge
