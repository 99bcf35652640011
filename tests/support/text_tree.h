// text_tree.h - a text of the user's as a tree that is printed as users write it and knows by
// itself, in fp64 and with derivatives, what it means. It shares no line with the product's reader
// of texts (generator/user_code).
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generator/formats/half.h"
#include "generator/user_code/user_code.h"
#include "reference/parts/user_code.h"

namespace attnforge::test {

// ---- Arrays and numbers that texts name ----

/// What indexes are made for: numbers of heads and of sequences, and positions, below these.
inline constexpr std::int64_t kMostTextHeads = 16, kMostTextLength = 256,
                              kTextElements = (kMostTextHeads + 1) * kMostTextLength,
                              kTextRowPitch = kMostTextLength + 8;

struct TextArgument {
  CodeArgument::Type type;
  std::string name;
  std::int64_t elements;  // 0: a number
  double (*value)(std::int64_t at);
  bool aligned = false;

  bool has_gradient() const {
    return elements != 0 && type != CodeArgument::Type::kInt && type != CodeArgument::Type::kBool;
  }
  std::string declared() const {
    const std::string_view of = to_string(type);
    if (elements == 0) return fmt::format("{} {} = {}", of, name, value(0));
    return fmt::format("{}{}* {}[{}]", aligned ? "aligned " : "", of, name, elements);
  }
  /// As a run has it, a number in its first 4 bytes.
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all;
    for (std::int64_t at = 0; at < std::max<std::int64_t>(1, elements); ++at) {
      const auto x = static_cast<float>(value(at));
      const std::uint32_t bits = type == CodeArgument::Type::kFloat
                                     ? std::bit_cast<std::uint32_t>(x)
                                 : type == CodeArgument::Type::kFp16 ? float_to_fp16(x)
                                 : type == CodeArgument::Type::kBf16
                                     ? float_to_bf16(x)
                                     : static_cast<std::uint32_t>(x);
      const auto element = std::as_bytes(std::span(&bits, 1));
      all.insert(all.end(), element.begin(), element.begin() + size_bytes(type));
    }
    return all;
  }
};

/// Odd multiples of 1/128 below 1: in all formats, never 0 nor what texts compare them with.
template <std::uint32_t kFactor>
double odd_number(std::int64_t at) {
  return (2.0 * ((static_cast<std::uint32_t>(at) + 1) * kFactor >> 13 & 127) - 127) / 128;
}

inline const std::vector<TextArgument>& text_arguments() {
  using enum CodeArgument::Type;
  static const std::vector<TextArgument> kArguments = {
      {kFloat, "a", kTextElements, odd_number<2654435761u>},
      {kBf16, "b", kTextElements, odd_number<2246822519u>},
      {kFp16, "c", kTextElements, odd_number<3266489917u>},
      {kBf16, "rows", kMostTextHeads * kMostTextLength * kTextRowPitch, odd_number<668265263u>,
       true},
      {kInt, "document", kTextElements, [](std::int64_t at) { return double(at / 13 % 4); }},
      {kInt, "prefix", kTextElements, [](std::int64_t at) { return double(7 + 20 * at % 90); }},
      {kBool, "seen", kTextElements, [](std::int64_t at) { return double(at * 7 % 11 < 7); }},
      {kFloat, "factor", 0, [](std::int64_t) { return 0.75; }},
      {kInt, "window", 0, [](std::int64_t) { return 20.0; }}};
  return kArguments;
}
inline const TextArgument& text_argument(std::string_view name) {
  return *std::ranges::find(text_arguments(), name, &TextArgument::name);
}

// ---- Trees ----

struct TextDual {
  double value = 0, slope = 0;
};

struct TextOperation {
  std::string_view text;
  int level = 9;  // what binds more tightly has a higher one: 9 of names and calls, 8 of signs
  TextDual (*of)(TextDual a, TextDual b) = nullptr;
  std::int64_t CodePair::*position = nullptr;
};
inline const TextOperation& text_operation(std::string_view text) {
  using Dual = TextDual;
  static constexpr TextOperation kOperations[] = {
      {"number"},
      {"s"},
      {"argument"},
      {"element"},
      {.text = "batch", .position = &CodePair::batch},
      {.text = "head", .position = &CodePair::head},
      {.text = "q", .position = &CodePair::q},
      {.text = "k", .position = &CodePair::k},
      {.text = "seqlen_q", .position = &CodePair::seqlen_q},
      {.text = "seqlen_kv", .position = &CodePair::seqlen_kv},
      {"?", 1},
      {"||", 2},
      {"&&", 3},
      {"==", 4, [](Dual a, Dual b) -> Dual { return {double(a.value == b.value)}; }},
      {"!=", 4, [](Dual a, Dual b) -> Dual { return {double(a.value != b.value)}; }},
      {"<", 5, [](Dual a, Dual b) -> Dual { return {double(a.value < b.value)}; }},
      {"<=", 5, [](Dual a, Dual b) -> Dual { return {double(a.value <= b.value)}; }},
      {">", 5, [](Dual a, Dual b) -> Dual { return {double(a.value > b.value)}; }},
      {">=", 5, [](Dual a, Dual b) -> Dual { return {double(a.value >= b.value)}; }},
      {"+", 6,
       [](Dual a, Dual b) -> Dual {
         return {a.value + b.value, a.slope + b.slope};
       }},
      {"-", 6,
       [](Dual a, Dual b) -> Dual {
         return {a.value - b.value, a.slope - b.slope};
       }},
      {"*", 7,
       [](Dual a, Dual b) -> Dual {
         return {a.value * b.value, a.slope * b.value + a.value * b.slope};
       }},
      {"/", 7,
       [](Dual a, Dual b) -> Dual {
         return {a.value / b.value, a.slope / b.value};
       }},
      {"%", 7, [](Dual a, Dual b) -> Dual { return {std::fmod(a.value, b.value)}; }},
      {"!", 8, [](Dual a, Dual) -> Dual { return {double(a.value == 0)}; }},
      {"min", 9, [](Dual a, Dual b) { return a.value <= b.value ? a : b; }},
      {"max", 9, [](Dual a, Dual b) { return a.value >= b.value ? a : b; }},
      {"abs", 9,
       [](Dual a, Dual) -> Dual {
         return {std::abs(a.value), a.value < 0 ? -a.slope : a.value > 0 ? a.slope : 0.0};
       }},
      {"tanhf", 9,
       [](Dual a, Dual) -> Dual {
         return {std::tanh(a.value), a.slope / std::pow(std::cosh(a.value), 2)};
       }},
      {"expf", 9, [](Dual a, Dual) -> Dual {
         return {std::exp(a.value), a.slope * std::exp(a.value)};
       }}};
  return *std::ranges::find(kOperations, text, &TextOperation::text);
}

struct TextNode {
  const TextOperation* operation;
  std::vector<TextNode> of{};
  bool real = false;  // a float; else an int or a bool
  double number = 0;  // of a number
  const TextArgument* argument = nullptr;

  /// What binds as tightly as a sign is put in brackets after one.
  int level() const { return number < 0 ? 8 : operation->level; }
  bool is(std::string_view text) const { return operation->text == text; }
};

/// With no more brackets than C++ needs.
inline std::string text_of(const TextNode& node) {
  const auto& [text, level, value, position] = *node.operation;
  const auto operand = [&](std::size_t i, int least = 0) {
    const std::string inner = text_of(node.of[i]);
    return node.of[i].level() < least ? "(" + inner + ")" : inner;
  };
  if (node.is("number"))
    return fmt::format(fmt::runtime(node.real ? "{:.6f}f" : "{:.0f}"), node.number);
  if (node.argument != nullptr)
    return node.argument->name + (node.is("element") ? "[" + operand(0) + "]" : "");
  if (node.of.empty()) return std::string(text);
  if (node.is("?")) return operand(0, 2) + " ? " + operand(1) + " : " + operand(2);
  if (node.is("!")) return "!" + operand(0, 9);
  if (level < 9) return fmt::format("{} {} {}", operand(0, level), text, operand(1, level + 1));
  return fmt::format("{}({}{})", node.real && text == "abs" ? "fabsf" : text, operand(0),
                     node.of.size() > 1 ? ", " + operand(1) : "");
}

/// An element of an array.
struct TextRead {
  const TextArgument* argument;
  std::int64_t element;
  friend bool operator==(const TextRead&, const TextRead&) = default;
};

/// The value of a tree for a pair, with its derivative by the score or by one of the reads.
struct TextValue {
  static constexpr std::ptrdiff_t kByScore = -1;
  double s;
  const CodePair& pair;
  std::ptrdiff_t by = kByScore;
  std::vector<TextRead> reads{};  // that were made, in their order

  TextDual of(const TextNode& node) {
    const TextOperation& operation = *node.operation;
    const auto holds = [&](std::size_t i) { return of(node.of[i]).value != 0; };
    if (operation.of != nullptr) {
      const TextDual a = of(node.of[0]), b = node.of.size() > 1 ? of(node.of[1]) : TextDual();
      const TextDual x = operation.of(a, b);
      return node.real ? x : TextDual{std::trunc(x.value)};
    }
    if (operation.position != nullptr) return {static_cast<double>(pair.*operation.position)};
    if (node.is("s")) return {s, by == kByScore ? 1.0 : 0.0};
    if (node.is("&&")) return {double(holds(0) && holds(1))};
    if (node.is("||")) return {double(holds(0) || holds(1))};
    if (node.is("?")) return of(node.of[holds(0) ? 1 : 2]);
    if (node.argument == nullptr) return {node.number};
    if (node.of.empty()) return {node.argument->value(0)};
    reads.push_back({node.argument, static_cast<std::int64_t>(of(node.of[0]).value)});
    return {node.argument->value(reads.back().element), std::ssize(reads) - 1 == by ? 1.0 : 0.0};
  }
};

}  // namespace attnforge::test
