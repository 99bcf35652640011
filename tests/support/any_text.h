// any_text.h - texts of score and mask that nobody chose, over what users write: the one generator
// of them. `choices`: see any_problem.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/user_code/code_operands.h"
#include "generator/user_code/user_code.h"
#include "reference/parts/user_code.h"
#include "tests/support/any_problem.h"
#include "tests/support/text_tree.h"

namespace attnforge::test {

/// Texts of a problem; one may be missing.
struct AnyText {
  std::optional<TextNode> score, mask;

  TextDual score_of(double s, const CodePair& pair) const { return TextValue{s, pair}.of(*score); }
  bool sees(const CodePair& pair) const { return TextValue{0, pair}.of(*mask).value != 0; }
  /// Calls add(read, derivative by it) for each element that the score reads; by an int it is 0.
  template <class Add>
  void for_each_read(double s, const CodePair& pair, const Add& add) const {
    TextValue value{s, pair};
    value.of(*score);
    for (std::ptrdiff_t by = 0; by < std::ssize(value.reads); ++by)
      add(value.reads[static_cast<std::size_t>(by)], TextValue{s, pair, by}.of(*score).slope);
  }
};

/// Sets the problem's texts and args; of a backward problem dargs are all arrays of floats that its
/// score reads, last ones first.
inline void set_text(Problem& p, const AnyText& text) {
  p.score = text.score ? text_of(*text.score) : "";
  p.mask = text.mask ? text_of(*text.mask) : "";
  p.args = p.dargs = "";
  for (const TextArgument& argument : text_arguments()) {
    const bool in_score = names(p.score, argument.name);
    if (!in_score && !names(p.mask, argument.name)) continue;
    p.args += (p.args.empty() ? "" : ", ") + argument.declared();
    if (is_backward(p) && in_score && argument.has_gradient())
      p.dargs = argument.name + (p.dargs.empty() ? "" : ", ") + p.dargs;
  }
  if (!p.dargs.empty()) p.deterministic = false;
}

/// The same for the oracle, which borrows `text`.
inline CodeFunctions functions_of(const AnyText& text, const Problem& p) {
  CodeFunctions functions;
  if (text.mask) functions.mask = [&text](const CodePair& pair) { return text.sees(pair); };
  if (!text.score) return functions;
  functions.score = [&text](double s, const CodePair& at) { return text.score_of(s, at).value; };
  functions.score_derivative = [&text](double s, const CodePair& at) {
    return text.score_of(s, at).slope;
  };
  if (p.dargs.empty()) return functions;
  std::vector<const TextArgument*> order;
  for (const Darg& darg : dargs_of(p)) {
    order.push_back(&text_argument(darg.name));
    functions.dargs.push_back({.elements = darg.elements});
  }
  functions.score_reads = [&text, order](double s, const CodePair& at,
                                         const CodeFunctions::AddRead& add) {
    text.for_each_read(s, at, [&](const TextRead& read, double slope) {
      const auto found = std::ranges::find(order, read.argument);
      if (found != order.end())
        add(static_cast<std::size_t>(found - order.begin()), read.element, slope);
    });
  };
  return functions;
}

/// What a part of a text may name.
enum TextNames { kBatch = 1, kHead = 2, kQuery = 4, kKey = 8, kPair = kQuery | kKey, kAll = 15 };

template <class Choices>
struct TextDrawing {
  Choices& choices;

  static TextNode node(std::string_view text, std::initializer_list<TextNode> of) {
    TextNode made{&text_operation(text), of};
    const bool compares = made.level() >= 2 && made.level() <= 5;
    made.real = text == "s" || (!compares && std::ranges::any_of(of, &TextNode::real));
    return made;
  }
  TextNode one(std::initializer_list<std::string_view> texts, std::initializer_list<TextNode> of) {
    return node(choices.among(std::vector(texts)), of);
  }
  static TextNode whole(std::int64_t x) {
    return {.operation = &text_operation("number"), .number = double(x)};
  }
  static TextNode real(double x) {
    return {.operation = &text_operation("number"), .real = true, .number = x};
  }
  TextNode any_real() { return real(double(choices.between(-15, 15)) / 8); }
  static TextNode of_run(std::string_view name, std::initializer_list<TextNode> at = {}) {
    const TextArgument& argument = text_argument(name);
    return {.operation = &text_operation(at.size() == 0 ? "argument" : "element"),
            .of = at,
            .real = argument.type != CodeArgument::Type::kInt &&
                    argument.type != CodeArgument::Type::kBool,
            .argument = &argument};
  }

  TextNode position(int of) {
    std::vector<std::string_view> all;
    if ((of & kBatch) != 0) all.push_back("batch");
    if ((of & kHead) != 0) all.push_back("head");
    if ((of & kQuery) != 0) all.push_back("q");
    if ((of & kKey) != 0) all.push_back("k");
    if (all.empty() || choices.one_in(8)) return whole(choices.between(0, 9));
    return node(choices.among(all), {});
  }
  /// k - q or q - k, where both may be named.
  TextNode distance(int of) {
    if ((of & kPair) != kPair) return position(of);
    const TextNode q = node("q", {}), k = node("k", {});
    return choices.one_in(2) ? node("-", {k, q}) : node("-", {q, k});
  }
  /// An int.
  TextNode number(int of, int depth) {
    switch (depth == 0 ? 9 : choices.between(0, 7)) {
      case 0:
        return one({"+", "-"}, {number(of, depth - 1), number(of, depth - 1)});
      case 1:
        return one({"%", "/"}, {number(of, depth - 1), whole(choices.between(2, 9))});
      case 2:
        return node("abs", {number(of, depth - 1)});
      case 3:
        return one({"min", "max"}, {number(of, depth - 1), whole(choices.between(-5, 30))});
      case 4:
        return distance(of);
      default:
        return position(of);
    }
  }
  /// Of an array with kTextElements.
  TextNode index(int of) {
    const TextNode at = position(of & kPair), row = position(of & (kBatch | kHead));
    switch (choices.between(0, 6)) {
      case 0:
        return row;
      case 1:
        return node("+", {node("*", {row, whole(kMostTextLength)}), at});
      case 2:
        return node("%", {node("abs", {number(of, 2)}), whole(choices.between(2, 99))});
      case 3:
        return node("+", {distance(of & kPair), whole(kMostTextLength)});
      case 4: {
        const TextNode near = node("min",
                                   {node("max", {distance(of & kPair), whole(-5)}), whole(5)});
        return node("+", {node("*", {row, whole(11)}), node("+", {near, whole(5)})});
      }
      default:
        return at;
    }
  }
  TextNode element(int of) {
    return of_run(choices.among(std::vector{"a", "b", "c"}), {index(of)});
  }

  /// Lists have an order of evaluation, arguments have none.
  TextNode compared(std::initializer_list<TextNode> of) { return one({"<", "<=", ">", ">="}, of); }
  /// A bool.
  TextNode condition(int of, int depth) {
    const TextNode q = node("q", {}), k = node("k", {});
    const bool of_pair = (of & kPair) == kPair;
    switch (choices.between(depth == 0 ? 3 : 0, 10)) {
      case 0:
      case 1:
        return one({"&&", "&&", "||"}, {condition(of, depth - 1), condition(of, depth - 1)});
      case 2:
        return node("!", {condition(of, depth - 1)});
      case 3:
        return of_run("seen", {index(of)});
      case 4:
        return compared({position(of & kPair), of_run("prefix", {position(of & kBatch)})});
      case 5:
        return one({"==", "!="}, {node("%", {number(of, 1), whole(choices.between(2, 5))}),
                                  whole(choices.between(0, 2))});
      case 6:
        return compared({element(of), any_real()});
      case 7:
        if (of_pair)
          return one({"==", "==", "!="}, {of_run("document", {q}), of_run("document", {k})});
        [[fallthrough]];
      case 8:
        return compared({choices.one_in(2) ? distance(of) : node("abs", {distance(of)}),
                         choices.one_in(3) ? of_run("window") : whole(choices.between(-5, 60))});
      case 9:
        if (of_pair)
          return compared(
              {k, node("-", {node("+", {q, node("seqlen_kv", {})}), node("seqlen_q", {})})});
        [[fallthrough]];
      default:
        return one({"<", "<=", ">", ">=", "==", "!="}, {number(of, 2), number(of, 1)});
    }
  }

  /// A float without the score, of a size near 1.
  TextNode term(int of, int depth) {
    if (depth == 0) return choices.one_in(3) ? any_real() : element(of);
    switch (choices.between(0, 8)) {
      case 0:
        return one({"+", "-", "*"}, {term(of, depth - 1), term(of, depth - 1)});
      case 1:  // as ALiBi has it
        return node("*", {node("/", {term(of, 0), real(32)}), number(of, 1)});
      case 2:
        return one({"tanhf", "abs"}, {term(of, depth - 1)});
      case 3:
        return node("expf", {node("min", {term(of, depth - 1), real(1)})});
      case 4:
        return one({"min", "max"}, {term(of, depth - 1), term(of, depth - 1)});
      case 5:
        return node("?", {condition(of, 1), term(of, depth - 1), term(of, depth - 1)});
      case 6:
        return node("*", {term(of, 0), condition(of, 0)});
      case 7:
        return node("*", {of_run("factor"), term(of, depth - 1)});
      default:
        return element(of);
    }
  }
  TextNode any_term(int depth) {
    return term(choices.among(std::vector<int>{kAll, kKey, kKey | kBatch, kKey | kHead, kHead,
                                               kQuery, kPair, kAll - kKey}),
                depth);
  }
  TextNode added(const TextNode& to) {
    const TextNode sum = one({"+", "-"}, {to, any_term(2)});
    if (choices.one_in(2)) return sum;
    const TextNode more = any_term(1);
    return one({"+", "-"}, {sum, choices.one_in(8) ? node("*", {more, node("s", {})}) : more});
  }
  static TextNode capped(const TextNode& of, double cap) {
    return node("*", {real(cap), node("tanhf", {node("/", {of, real(cap)})})});
  }
  /// The score, changed. It has no step in the score: beside one, roundings would decide.
  TextNode score(int depth) {
    if (depth == 0) return node("s", {});
    const TextNode s = score(depth - 1);
    switch (choices.between(0, 8)) {
      case 0:
        return node("?", {condition(kAll, 1), s, score(depth - 1)});
      case 1:
        return capped(s, double(choices.between(1, 4)));
      case 2:
        return one({"min", "max"}, {s, choices.one_in(2) ? any_real() : score(depth - 1)});
      case 3:
        return node("*", {s, any_term(1)});
      case 4:
        return one({"abs", "tanhf"}, {s});
      case 5:
        return node("expf", {node("min", {s, real(1)})});
      case 6:  // a corner at 0
        return node("?", {node(">", {s, real(0)}), s, node("*", {s, any_real()})});
      default:
        return added(s);
    }
  }
  /// With an element that is read by rows, in no choice; with a slope that is not all roundings,
  /// as an element may be of one pair alone.
  TextNode score_with_row() {
    const TextNode q = node("q", {}), s = node("s", {});
    const TextNode row = node("+", {node("*", {node("head", {}), whole(kMostTextLength)}), q});
    const TextNode element = of_run(
        "rows", {node("+", {node("*", {choices.one_in(2) ? q : row, whole(kTextRowPitch)}),
                            node("k", {})})});
    const TextNode sum = node("+",
                              {choices.one_in(2) ? s : node("*", {s, term(kAll, 0)}),
                               choices.one_in(2) ? element : node("*", {any_real(), element})});
    return choices.one_in(4) ? capped(sum, 4) : sum;
  }
};

/// `kind`: what of it is drawn, 0 to kTextKinds - 1.
inline constexpr int kTextKinds = 11;
template <class Choices>
AnyText any_text(Choices& choices, std::int64_t kind) {
  TextDrawing<Choices> draw{choices};
  const TextNode s = draw.score(0);
  AnyText text;
  if (kind < 5) text.mask = draw.condition(kAll, 2);
  if (kind == 3) text.score = s;
  if (kind == 4 || kind == 5) text.score = draw.score(2);
  if (kind == 6) text.score = draw.score(1);
  if (kind == 7) text.score = draw.score_with_row();
  if (kind == 8) text.score = draw.one({"+", "-"}, {s, draw.term(kKey | kBatch, 2)});
  if (kind > 8) text.score = draw.added(s);
  return text;
}
template <class Choices>
AnyText any_text(Choices& choices) {
  return any_text(choices, choices.between(0, kTextKinds - 1));
}

/// A problem whose positions a text's indexes are made for. Scores are of products that are exact:
/// what a text makes of their roundings no tolerance knows.
template <class Choices>
Problem any_problem_for_text(Choices& choices, Op op) {
  constexpr MostSizes kMost{
      .batch_bits = 2, .heads_bits = 1, .seqlen_bits = 8, .gradients = false, .flops = 2e8};
  Problem p;
  do {
    p = op == Op::kForward ? any_problem(choices, kMost) : any_backward_problem(choices, kMost);
  } while (p.rope != Rope::kNone || is_low_bit(p.dtype_q) || has_low_bit_kv(p) ||
           (p.seqlen_kv < 64 && !choices.one_in(8)));
  p.tf32 = false;
  p.softmax_scale = 0;
  if (p.softcap != 0) p.softcap = 3;
  return p;
}

}  // namespace attnforge::test
