// text_facts.cpp - what the trees of a problem's texts say of the arrays that these read and of the
// score that they change.
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "generator/user_code/code_tree.h"
#include "generator/user_code/read_once.h"
#include "generator/user_code/user_code.h"

namespace attnforge {
namespace {

using enum CodeOp;

std::string_view text_of(const CodeNode& node, std::string_view text) {
  return text.substr(node.begin, node.end - node.begin);
}

/// Whether a node names the argument and it is unknown what it does with it.
bool hides(const CodeNode& node, std::string_view text, const CodeArgument& argument) {
  return node.op == kOpaque && names(text_of(node, text), argument.name);
}

/// X of "X * tanhf(s / X)"; 0: the nodes are others.
double cap_of_product(const CodeTree& tree, int number, int call) {
  const CodeNode &factor = tree[number], &tanh = tree[call];
  if (factor.op != kNumber || tanh.op != kCall || tanh.function->name != "tanh") return 0;
  const CodeNode& quotient = tree[tanh.a];
  const bool same = quotient.op == kDivide && tree[quotient.a].op == kScore &&
                    tree[quotient.b].op == kNumber && tree[quotient.b].number == factor.number;
  return same ? factor.number : 0;
}

struct ScoreFacts {
  float cap = 0;
  bool adds = false, sum = false;
};
ScoreFacts facts_of_score(const std::string& text) {
  const CodeTree tree = code_tree(text, CodeText::kScore, {});
  const CodeNode& value = tree.nodes.back();
  ScoreFacts facts;
  if (value.op == kTimes) {
    const double cap = std::max(cap_of_product(tree, value.a, value.b),
                                cap_of_product(tree, value.b, value.a));
    facts.cap = std::isfinite(static_cast<float>(cap)) ? static_cast<float>(cap) : 0.0f;
  }
  const CodeNode* first = &value;
  while (first->op == kPlus || first->op == kMinus) first = &tree[first->a];
  const bool once = 1 == std::ranges::count_if(tree.nodes, [&](const CodeNode& node) {
                      return node.op == kScore ||
                             (node.op == kOpaque && names(text_of(node, text), "s"));
                    });
  facts.adds = first->op == kScore && once;
  facts.sum = facts.adds && first != &value;
  return facts;
}

/// Whether a sum has an element of the argument as a summand.
bool adds(const CodeTree& tree, int number, std::size_t argument) {
  const CodeNode& node = tree[number];
  if (node.op == kPlus) return adds(tree, node.a, argument) || adds(tree, node.b, argument);
  if (node.op == kMinus) return adds(tree, node.a, argument);
  return node.op == kElement && node.argument == argument;
}

enum class OfQuery { kNot, kEvenly, kAnyhow };

/// How a node's value follows the query.
OfQuery follows_query(const CodeTree& tree, int number, std::string_view text) {
  const CodeNode& node = tree[number];
  const auto of = [&](int operand) { return follows_query(tree, operand, text); };
  switch (node.op) {
    case kQ:
      return OfQuery::kEvenly;
    case kNegative:
      return of(node.a);
    case kPlus:
    case kMinus:
      return std::max(of(node.a), of(node.b));
    case kTimes: {
      const OfQuery a = of(node.a), b = of(node.b);
      if (a != OfQuery::kNot && b != OfQuery::kNot) return OfQuery::kAnyhow;
      return std::max(a, b);
    }
    default:
      return names(text_of(node, text), "q") ? OfQuery::kAnyhow : OfQuery::kNot;
  }
}

Problem with_texts(const std::string& score, const std::string& args, const std::string& dargs) {
  Problem p;
  p.score = score, p.args = args, p.dargs = dargs;
  return p;
}

bool adds_rows(const std::string& score, const std::string& args, const std::string& dargs) {
  const std::vector<std::size_t> wanted = places_of_dargs(with_texts(score, args, dargs));
  return wanted.size() == 1 && wanted.front() == place_of_aligned(code_arguments(args)) &&
         adds_to_score(score);
}

bool reads_without_query(const std::string& score, const std::string& args,
                         const std::string& dargs) {
  const Problem p = with_texts(score, args, dargs);
  const std::vector<std::size_t> wanted = places_of_dargs(p);
  const int reads = most_array_reads(p);
  if (reads == 0 || reads > kMostReadsAtOnce) return false;
  const CodeTree tree = code_tree(p.score, CodeText::kScore, code_arguments(p.args));
  const auto is_read = [&](const CodeNode& node) {
    return node.op == kElement && std::ranges::count(wanted, node.argument) > 0;
  };
  if (tree.assigns) return false;  // an index may be anything then
  for (int i = 0; i < static_cast<int>(tree.nodes.size()); ++i) {
    const CodeNode& node = tree[i];
    if (is_read(node)) {
      const std::string_view index = text_of(tree[node.a], p.score);
      if (names(index, "q") || names(index, "s") || index.find('{') != index.npos) return false;
    }
    const bool leaves_out = node.op == kChoice || node.op == kAnd || node.op == kOr;
    if (leaves_out && std::ranges::any_of(tree.under(i), is_read)) return false;
  }
  return true;
}

}  // namespace

float cap_of(const std::string& score) { return read_once<facts_of_score>(score).cap; }
bool adds_to_score(const std::string& score) { return read_once<facts_of_score>(score).adds; }

bool adds_term_of_key(const Problem& p) {
  const bool of_head = names(p.score, "head") && p.num_heads_q != p.num_heads_kv;
  return read_once<facts_of_score>(p.score).sum && !names(p.score, "q") && !of_head;
}

bool adds_element(const Problem& p) {
  const std::vector<CodeArgument> arguments = code_arguments(p.args);
  const CodeTree tree = code_tree(p.score, CodeText::kScore, arguments);
  const auto value = static_cast<int>(tree.nodes.size()) - 1;
  return value >= 0 && adds(tree, value, place_of_aligned(arguments));
}

bool reads_even_rows(const Problem& p) {
  const std::vector<CodeArgument> arguments = code_arguments(p.args);
  const CodeTree tree = code_tree(p.score, CodeText::kScore, arguments);
  const auto read = std::ranges::find_if(tree.nodes, [&](const CodeNode& node) {
    return node.op == kElement && node.argument == place_of_aligned(arguments);
  });
  return read != tree.nodes.end() && follows_query(tree, read->a, p.score) != OfQuery::kAnyhow;
}

int most_array_reads(const Problem& p) {
  const std::vector<CodeArgument> arguments = code_arguments(p.args);
  const CodeTree tree = code_tree(p.score, CodeText::kScore, arguments);
  int reads = 0;
  for (const std::size_t place : places_of_dargs(p)) {
    for (const CodeNode& node : tree.nodes) {
      if (hides(node, p.score, arguments[place])) return 0;
      reads += node.op == kElement && node.argument == place;
    }
  }
  return reads;
}

bool adds_rows_alone(const Problem& p) {
  return !p.dargs.empty() && p.softcap == 0 && read_once<adds_rows>(p.score, p.args, p.dargs);
}

bool dargs_without_query(const Problem& p) {
  return !p.dargs.empty() && read_once<reads_without_query>(p.score, p.args, p.dargs);
}

bool reads_by_key(std::string_view text, const std::vector<CodeArgument>& arguments) {
  if (!names(text, "k")) return false;
  const CodeTree tree = code_tree(text, CodeText::kScore, arguments);
  const auto has_key = [&](const CodeNode& node) {
    return node.op == kK || (node.op == kOpaque && names(text_of(node, text), "k"));
  };
  return std::ranges::any_of(tree.nodes, [&](const CodeNode& node) {
    // A pointer, or what a body returns, may meet the key elsewhere.
    return (node.op == kElement && std::ranges::any_of(tree.under(node.a), has_key)) ||
           (node.op == kOpaque && text_of(node, text).find('{') != text.npos) ||
           std::ranges::any_of(arguments, [&](const CodeArgument& argument) {
             return argument.is_array && hides(node, text, argument);
           });
  });
}

}  // namespace attnforge
