#include "generator/user_code/pair_terms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "generator/user_code/code_tokens.h"
#include "generator/user_code/code_tree.h"
#include "generator/user_code/mask_windows.h"
#include "generator/user_code/position_sums.h"
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

/// Whether arrays are read at indexes of these operations alone.
bool reads_at(const CodeTree& tree, std::span<const CodeNode> term,
              std::initializer_list<CodeOp> ops) {
  return std::ranges::all_of(term, [&](const CodeNode& node) {
    return node.op != kElement || std::ranges::all_of(tree.under(node.a), [&](const CodeNode& in) {
             return is_one_of(in.op, ops);
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

/// "q + 5 >= k" of a sum that has to be 0 or less.
std::optional<PairTerm> term_of_sum(const PositionSum& sum,
                                    const std::vector<CodeArgument>& arguments) {
  // No int overflows: positions and lengths are below 2^27.
  constexpr std::int64_t kMostNumber = 1 << 28, kMostFactor = 2;
  if (sum.k * sum.q != -1 || std::abs(sum.number) > kMostNumber || std::abs(sum.of_run) > 1 ||
      std::max(std::abs(sum.seqlen_q), std::abs(sum.seqlen_kv)) > kMostFactor)
    return std::nullopt;
  std::string of_query = "q";
  const auto add = [&](std::int64_t factor, std::string_view of) {
    if (factor != 0) of_query += fmt::format(" + ({}){}", -sum.k * factor, of);
  };
  add(sum.seqlen_q, " * seqlen_q"), add(sum.seqlen_kv, " * seqlen_kv"), add(sum.number, "");
  if (sum.of_run != 0)  // no window is beyond 2^30
    add(sum.of_run,
        fmt::format(" * min(max({}, -1073741824), 1073741824)", arguments[sum.argument].name));
  return PairTerm{of_query, sum.k > 0 ? Relation::kAtLeast : Relation::kAtMost, "k"};
}

/// Takes a mask's text apart.
struct TermReader {
  const std::string& text;
  const CodeTree& tree;
  const std::vector<CodeArgument>& arguments;
  const PositionSums sums = position_sums(tree);
  PairTerms found{};
  bool is_first = true, all_of_positions = true;  // of what was read before

  bool may_read(std::span<const CodeNode> term) const {
    if (std::ranges::find(term, kElement, &CodeNode::op) == term.end()) return true;
    return (is_first &&
            reads_at(tree, term, {kBatch, kHead, kQ, kK, kSeqlenQ, kSeqlenKv, kPlus, kTimes})) ||
           (all_of_positions && reads_at(tree, term, {kBatch, kHead, kPlus, kTimes}));
  }

  void add(PairTerm term) {
    found.value.push_back(static_cast<int>(found.terms.size()));
    found.terms.push_back(std::move(term));
  }

  /// The terms of a window that is not the text's, joined; false: it is none.
  bool add_window(const CodeNode& node) {
    std::vector<PairTerm> terms;
    for (const PositionSum& sum : sums_of_comparison(tree, node, sums)) {
      std::optional<PairTerm> term = term_of_sum(sum, arguments);
      if (!term) return false;
      terms.push_back(*std::move(term));
    }
    for (std::size_t i = 0; i < terms.size(); ++i) {
      add(std::move(terms[i]));
      if (i > 0) found.value.push_back(PairTerms::kBoth);
    }
    return !terms.empty();
  }

  void read(int at, int depth = 0) {
    constexpr std::size_t kMostTerms = 24;  // a step has shared memory for each
    constexpr int kMostDepth = 64;
    const CodeNode& node = tree[at];
    const std::span<const CodeNode> term = tree.under(at);
    const bool full = found.terms.size() + 3 > kMostTerms;
    std::optional<PairTerm> single;
    if (!full && is_plain(term) && may_read(term)) single = read_term(text, tree, node);
    if (!single && depth < kMostDepth && is_one_of(node.op, {kAnd, kOr, kNot})) {
      read(node.a, depth + 1);
      if (node.op != kNot) read(node.b, depth + 1);
      join(node.op == kAnd  ? PairTerms::kBoth
           : node.op == kOr ? PairTerms::kEither
                            : PairTerms::kOpposite);
      return;
    }
    if (single)
      add(*std::move(single));
    else if (full || !add_window(node))
      found.value.push_back(PairTerms::kUnknown);
    is_first = false;
    all_of_positions = all_of_positions && is_of_positions(term);
  }

  /// Whether it is about pairs of a sequence, not about which sequence it is.
  static bool is_of_positions(std::span<const CodeNode> term) {
    const auto has = [&](std::initializer_list<CodeOp> ops) {
      return std::ranges::any_of(term, [&](const CodeNode& in) { return is_one_of(in.op, ops); });
    };
    return !has({kBatch, kHead, kArgument, kElement, kUnknown, kOpaque}) &&
           (has({kQ, kK}) || !has({kSeqlenQ, kSeqlenKv}));
  }

  void join(PairTerms::Join how) { found.value.push_back(how); }
};

}  // namespace

PairTerms pair_terms(const Problem& problem) {
  const std::string text = mask_code(problem);
  if (text.empty()) return {};
  const std::vector<CodeArgument> arguments = code_arguments(problem.args);
  const CodeTree tree = code_tree(text, CodeText::kMask, arguments);
  if (tree.assigns) return {.terms = {}, .value = {PairTerms::kUnknown}};
  TermReader reader{text, tree, arguments};
  for (const int at : terms_of(tree, text)) {
    const CodeNode& node = tree[at];
    if (text.substr(node.begin, node.end - node.begin) == "1") continue;  // a window was here
    const bool joined = !reader.found.value.empty();
    reader.read(at);
    if (joined) reader.join(PairTerms::kBoth);
  }
  return std::move(reader.found);
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
