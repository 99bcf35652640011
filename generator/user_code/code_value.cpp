#include "generator/user_code/code_value.h"

#include <array>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "generator/formats/half.h"

namespace attnforge {
namespace {

/// A number for each node; those of usual texts lie on the stack.
class Numbers {
 public:
  explicit Numbers(std::size_t count) {
    if (count > few_.size()) many_.resize(count);
  }
  double& operator[](int node) {
    const auto at = static_cast<std::size_t>(node);
    return many_.empty() ? few_[at] : many_[at];
  }

 private:
  std::array<double, 96> few_{};
  std::vector<double> many_;
};

/// 0: what a program could not compute.
std::int64_t whole(double x) {
  constexpr double kMost = 9007199254740992.0;  // 2^53: doubles hold all up to it
  return std::abs(x) <= kMost ? static_cast<std::int64_t>(x) : std::int64_t{0};
}

template <class T>
T loaded(const std::byte* from) {
  T x{};
  std::memcpy(&x, from, sizeof(x));
  return x;
}

/// -1: it is outside of the array.
std::int64_t place_of(const CodeNode& node, const CodeValue& array, double index) {
  const auto elements = static_cast<double>(array.bytes.size() /
                                            static_cast<std::size_t>(size_bytes(node.type)));
  return index >= 0 && index < elements ? static_cast<std::int64_t>(index) : -1;
}

double element(const CodeNode& node, const CodeValue& array, double index) {
  const std::int64_t at = place_of(node, array, index);
  if (at < 0) return 0;
  const std::byte* const from = array.bytes.data() +
                                static_cast<std::size_t>(at) *
                                    static_cast<std::size_t>(size_bytes(node.type));
  switch (node.type) {
    case CodeArgument::Type::kFloat:
      return loaded<float>(from);
    case CodeArgument::Type::kInt:
      return loaded<std::int32_t>(from);
    case CodeArgument::Type::kFp16:
      return fp16_to_float(loaded<std::uint16_t>(from));
    case CodeArgument::Type::kBf16:
      return bf16_to_float(loaded<std::uint16_t>(from));
    case CodeArgument::Type::kBool:
      return *from != std::byte{0} ? 1 : 0;
  }
  return 0;
}

/// An operation on whole numbers.
template <auto of>
double wholes(double a, double b, double) {
  return static_cast<double>(of(whole(a), whole(b)));
}

using Operation = double (*)(double a, double b, double c);
using enum CodeOp;
/// The value of an operation by those of its operands.
constexpr std::pair<CodeOp, Operation> kOperations[] = {
    {kNegative, [](double a, double, double) { return -a; }},
    {kNot, [](double a, double, double) { return a == 0 ? 1.0 : 0.0; }},
    {kInverse, [](double a, double, double) { return static_cast<double>(~whole(a)); }},
    {kWhole, [](double a, double, double) { return static_cast<double>(whole(a)); }},
    {kBool, [](double a, double, double) { return a != 0 ? 1.0 : 0.0; }},
    {kFloat, [](double a, double, double) { return a; }},
    {kAbs, [](double a, double, double) { return std::abs(a); }},
    {kTimes, [](double a, double b, double) { return a * b; }},
    {kDivide, [](double a, double b, double) { return a / b; }},
    {kPlus, [](double a, double b, double) { return a + b; }},
    {kMinus, [](double a, double b, double) { return a - b; }},
    {kBelow, [](double a, double b, double) { return a < b ? 1.0 : 0.0; }},
    {kAtMost, [](double a, double b, double) { return a <= b ? 1.0 : 0.0; }},
    {kAbove, [](double a, double b, double) { return a > b ? 1.0 : 0.0; }},
    {kAtLeast, [](double a, double b, double) { return a >= b ? 1.0 : 0.0; }},
    {kEqual, [](double a, double b, double) { return a == b ? 1.0 : 0.0; }},
    {kUnequal, [](double a, double b, double) { return a != b ? 1.0 : 0.0; }},
    {kAnd, [](double a, double b, double) { return a != 0 && b != 0 ? 1.0 : 0.0; }},
    {kOr, [](double a, double b, double) { return a != 0 || b != 0 ? 1.0 : 0.0; }},
    {kMin, [](double a, double b, double) { return a <= b ? a : b; }},
    {kMax, [](double a, double b, double) { return a >= b ? a : b; }},
    {kChoice, [](double a, double b, double c) { return a != 0 ? b : c; }},
    {kDivideWhole, wholes<[](auto x, auto y) { return y == 0 ? 0 : x / y; }>},
    {kRest, wholes<[](auto x, auto y) { return y == 0 ? 0 : x % y; }>},
    {kLeft, wholes<[](auto x, auto y) {
       const bool shifts = y >= 0 && y <= 31;
       return shifts ? static_cast<std::int32_t>(static_cast<std::uint32_t>(x) << y) : 0;
     }>},
    {kRight, wholes<[](auto x, auto y) { return y >= 0 && y <= 31 ? (x >> y) : 0; }>},
    {kBits, wholes<[](auto x, auto y) { return x & y; }>},
    {kOtherBits, wholes<[](auto x, auto y) { return x ^ y; }>},
    {kAnyBits, wholes<[](auto x, auto y) { return x | y; }>},
};
constexpr auto kOperationOf = [] {
  std::array<Operation, static_cast<std::size_t>(kOpaque) + 1> all{};
  for (const auto& [op, operation] : kOperations) all[static_cast<std::size_t>(op)] = operation;
  return all;
}();

double computed(const CodeNode& node, Numbers& numbers, const CodePlace& place,
                std::span<const CodeValue> values) {
  const auto of = [&](int operand) { return operand < 0 ? 0 : numbers[operand]; };
  switch (node.op) {
    case kNumber:
      return node.number;
    case kScore:
      return place.s;
    case kBatch:
      return static_cast<double>(place.batch);
    case kHead:
      return static_cast<double>(place.head);
    case kQ:
      return static_cast<double>(place.q);
    case kK:
      return static_cast<double>(place.k);
    case kSeqlenQ:
      return static_cast<double>(place.seqlen_q);
    case kSeqlenKv:
      return static_cast<double>(place.seqlen_kv);
    case kArgument:
      return values[node.argument].number;
    case kElement:
      return element(node, values[node.argument], of(node.a));
    case kCall:
      return node.function->value(of(node.a), of(node.b));
    default:
      return kOperationOf[static_cast<std::size_t>(node.op)](of(node.a), of(node.b), of(node.c));
  }
}

void compute(const CodeTree& tree, const CodePlace& place, std::span<const CodeValue> values,
             Numbers& numbers) {
  for (std::size_t i = 0; i < tree.nodes.size(); ++i) {
    const CodeNode& node = tree.nodes[i];
    const double value = computed(node, numbers, place, values);
    // Ints have no -0: with 0 added it is 0.
    numbers[static_cast<int>(i)] = node.is_float ? value : value + 0.0;
  }
}

/// The derivatives of an operation by its operands a, b and c; zeros: steps, and what depends on
/// nothing.
std::array<double, 3> slopes_by(const CodeNode& node, double a, double b) {
  switch (node.op) {
    case kNegative:
      return {-1};
    case kFloat:
      return {1};
    case kAbs:
      return {a > 0 ? 1.0 : a < 0 ? -1.0 : 0.0};
    case kTimes:
      return {b, a};
    case kDivide:
      return {1 / b, -a / b / b};
    case kPlus:
      return {1, 1};
    case kMinus:
      return {1, -1};
    case kMin:
      return {a <= b ? 1.0 : 0.0, a <= b ? 0.0 : 1.0};
    case kMax:
      return {a >= b ? 1.0 : 0.0, a >= b ? 0.0 : 1.0};
    case kChoice:
      return {0, a != 0 ? 1.0 : 0.0, a != 0 ? 0.0 : 1.0};
    case kCall:
      return {node.function->slope(a, b, 0), node.b < 0 ? 0.0 : node.function->slope(a, b, 1)};
    default:
      return {};
  }
}

/// Adds to the slopes of a node's operands what its own, `slope`, says of them.
void hand_down(const CodeNode& node, double slope, Numbers& numbers, Numbers& slopes) {
  const auto of = [&](int operand) { return operand < 0 ? 0.0 : numbers[operand]; };
  const auto [a, b, c] = slopes_by(node, of(node.a), of(node.b));
  for (const auto& [operand, by] : {std::pair(node.a, a), {node.b, b}, {node.c, c}})
    if (by != 0) slopes[operand] += slope * by;
}

}  // namespace

double value_of(const CodeTree& tree, const CodePlace& place, std::span<const CodeValue> values) {
  Numbers numbers(tree.nodes.size());
  compute(tree, place, values, numbers);
  return numbers[static_cast<int>(tree.nodes.size()) - 1];
}

double slope_of(const CodeTree& tree, const CodePlace& place, std::span<const CodeValue> values,
                const TakeRead* read) {
  Numbers numbers(tree.nodes.size()), slopes(tree.nodes.size());
  compute(tree, place, values, numbers);
  double of_score = 0;
  const int last = static_cast<int>(tree.nodes.size()) - 1;
  slopes[last] = 1;
  for (int i = last; i >= 0; --i) {
    const CodeNode& node = tree.nodes[i];
    const double slope = slopes[i];
    if (slope == 0) continue;
    if (node.op == kScore) of_score += slope;
    if (node.op == kElement && read != nullptr) {
      const std::int64_t at = place_of(node, values[node.argument], numbers[node.a]);
      if (at >= 0) (*read)(node.argument, at, slope);
    }
    hand_down(node, slope, numbers, slopes);
  }
  return of_score;
}

}  // namespace attnforge
