// code_tree_test.cpp - texts computed on the CPU give what the same text gives in C++, and their
// derivatives what differences of values say.
#include "generator/user_code/code_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "generator/user_code/code_value.h"

namespace attnforge {
namespace {

constexpr float kSlope[] = {0.5f, 0.25f};
constexpr int kDocument[] = {0, 0, 1, 1, 1, 2};
constexpr std::uint16_t kHalf[] = {0x3800, 0xbc00, 0x0001, 0x7c00};  // 0.5, -1, 2^-24, infinity
constexpr std::uint16_t kBf16[] = {0x3f00, 0xc040, 0x4110};          // 0.5, -3, 9
constexpr bool kSeen[] = {true, false, true, true, false, true};
constexpr double kScale = 1.5;
constexpr int kWindow = 3;

CodeTree tree_of(const std::string& text, CodeText kind = CodeText::kScore) {
  return code_tree(text, kind,
                   code_arguments("float* slope[2], int* document[6], fp16* halves[4], bf16* "
                                  "narrow[3], bool* seen[6], float scale = 1.5, int window = 3"));
}
std::vector<CodeValue> values() {
  const auto bytes = [](const auto& array) { return std::as_bytes(std::span(array)); };
  return {{0, bytes(kSlope)}, {0, bytes(kDocument)}, {0, bytes(kHalf)}, {0, bytes(kBf16)},
          {0, bytes(kSeen)},  {kScale, {}},          {kWindow, {}}};
}

// What texts call, as functions of doubles.
using std::abs;
double expf(double x) { return std::exp(x); }
double tanhf(double x) { return std::tanh(x); }
double rsqrtf(double x) { return 1 / std::sqrt(x); }
double fabsf(double x) { return std::abs(x); }
double fmaxf(double x, double y) { return std::max(x, y); }
double powf(double x, double y) { return std::pow(x, y); }
double fmaf(double x, double y, double z) { return x * y + z; }
double erf(double x) { return std::erf(x); }
double floorf(double x) { return std::floor(x); }
template <class T>
T max(T x, T y) {
  return x < y ? y : x;
}
constexpr const auto& slope = kSlope;
constexpr const auto& document = kDocument;
constexpr const auto& seen = kSeen;
constexpr double scale = kScale;
constexpr int window = kWindow;

struct Text {
  std::string text;
  std::function<double(double, int, int, int, int, int, int)> value;
};
#define SAME_AS_IN_CPP(expression)                                                        \
  Text {                                                                                  \
#expression,                                                                            \
        [](double s, int batch, int head, int q, int k, int seqlen_q, int seqlen_kv) {      \
          (void)s, (void)batch, (void)head, (void)q, (void)k, (void)seqlen_q, (void)seqlen_kv; \
          return static_cast<double>(expression);                                           \
        } \
  }

TEST(CodeTree, ComputesWhatTheSameTextComputesInCpp) {
  const Text texts[] = {
      SAME_AS_IN_CPP(s + slope[head] * (k - q)),
      SAME_AS_IN_CPP(s * 0.25f - 1 / 2 + 1 / 2.0f),
      SAME_AS_IN_CPP(tanhf(s / 30) * 30 + expf(-s * s) * rsqrtf(1 + fabsf(s))),
      SAME_AS_IN_CPP(k < q ? s * scale : s - scale),
      SAME_AS_IN_CPP(k <= q && document[q] == document[k] ? s : -1e30f),
      SAME_AS_IN_CPP(k <= q || (seen[k] && s > 0) ? max(k, q) : fmaxf(s, 0.5f)),
      SAME_AS_IN_CPP((not(k bitand 1) and (q xor 2) not_eq k) or batch),
      SAME_AS_IN_CPP((q bitor 1) + compl k),
      SAME_AS_IN_CPP(k - q < window ? (int)(s * 3) : static_cast<int>(s) + float(q) / 2),
      SAME_AS_IN_CPP((float)k / (q + 1) + int(2.75f) + bool(k)),
      SAME_AS_IN_CPP(powf(fabsf(s) + 1, 0.5f * head) + fmaf(s, 2, k) + erf(s) + floorf(s)),
      SAME_AS_IN_CPP(seqlen_kv - seqlen_q + 10 - 3 - 2 * 4 % 3),
      SAME_AS_IN_CPP(s < 0   ? k
                     : s > 1 ? q
                             : k * 100 - q),
      SAME_AS_IN_CPP(-k + +q - -s),
      SAME_AS_IN_CPP(((k > q) == (head > 0)) | (((k << 1) & 6) ^ (q >> 1))),
  };
  const std::vector<CodeValue> arguments = values();
  for (const Text& each : texts) {
    const CodeTree tree = tree_of(each.text);
    ASSERT_EQ(tree.unknown, "") << each.text;
    for (const double s : {-1.75, 0.25, 1.5})
      for (int q = 0; q < 6; ++q)
        for (int k = 0; k < 6; ++k)
          EXPECT_NEAR(value_of(tree, {s, k % 2, q % 2, q, k, 6, 9}, arguments),
                      each.value(s, k % 2, q % 2, q, k, 6, 9), 1e-6)
              << each.text << " of s " << s << " q " << q << " k " << k;
  }
}

/// -0 of floats is another number than 0: what is divided by it says so.
TEST(CodeTree, HasIntsWithoutANegativeZero) {
  for (const char* text : {"-batch", "q * -1", "max(-k, 0 * q)", "min(-k, k)", "-seen[1]",
                           "-3 * (k > q)", "0 / -5", "-(k - q)", "k ? 1 : -k", "-abs(q)"}) {
    const double value = value_of(tree_of(text), {}, values());
    EXPECT_EQ(value, 0) << text;
    EXPECT_FALSE(std::signbit(value)) << text;
    EXPECT_GT(value_of(tree_of("1 / float(" + std::string(text) + ")"), {}, values()), 0) << text;
  }
  EXPECT_LT(value_of(tree_of("1 / -float(k)"), {}, values()), 0) << "floats have one";
}

TEST(CodeTree, ShiftsWithinThe32BitsOfAnInt) {
  const auto value = [](const char* text) { return value_of(tree_of(text), {.k = 5}, values()); };
  EXPECT_EQ(value("1 << 31"), -2147483648.0);
  EXPECT_EQ(value("(1 << 31) < 0"), 1);
  EXPECT_EQ(value("1 << 31 >> 31"), -1);
  EXPECT_EQ(value("~(1 << 31)"), 2147483647.0);
  EXPECT_EQ(value("k << 30"), 1 << 30);
  EXPECT_EQ(value("(k << 29) + (-k << 2)"), -1610612736.0 - 20);
  EXPECT_EQ(value("(1 << 31 | k) & 7"), 5);
}

TEST(CodeTree, ReadsElementsOfEveryTypeAndNothingOutside) {
  const std::vector<CodeValue> arguments = values();
  const auto value = [&](const char* text) { return value_of(tree_of(text), {}, arguments); };
  EXPECT_EQ(value("halves[0]"), 0.5);
  EXPECT_EQ(value("halves[1] + halves[2]"), -1 + std::ldexp(1, -24));
  EXPECT_TRUE(std::isinf(value("halves[3]")));
  EXPECT_EQ(value("narrow[0] + narrow[1] * narrow[2]"), 0.5 - 27);
  EXPECT_EQ(value("document[5] + seen[0] + seen[1]"), 3);
  EXPECT_EQ(value("halves[4] + document[-1] + slope[1 << 30] + seen[2147483647]"), 0);
}

/// Of every function, and of what joins them: against differences.
TEST(CodeTree, HasTheDerivativesOfItsFunctions) {
  const std::vector<CodeValue> arguments = values();
  for (const char* text : {"expf(s)",
                           "exp2f(s)",
                           "expm1(s)",
                           "logf(s)",
                           "log2f(s)",
                           "log10f(s)",
                           "log1pf(s)",
                           "sqrtf(s)",
                           "rsqrtf(s)",
                           "cbrtf(s)",
                           "sinf(s)",
                           "cosf(s)",
                           "tanf(s)",
                           "atanf(s)",
                           "sinhf(s)",
                           "coshf(s)",
                           "tanhf(s)",
                           "erff(s)",
                           "powf(s, 2.5f)",
                           "powf(1.5f, s)",
                           "pow(s, s)",
                           "s * s - s / (1 + s)",
                           "2 / s",
                           "-s",
                           "fabsf(-s)",
                           "abs(s)",
                           "float(s) * 3",
                           "fmaf(s, s, s)",
                           "fmaxf(s, 0.1f) + fminf(s, 0.1f)",
                           "max(s, 2.0f) * min(3.0f, s)",
                           "k < 1 ? s * s : 1",
                           "floorf(s) + ceilf(s) + truncf(s) + roundf(s) + rintf(s)",
                           "(s > 0.5f) * 7 + int(s)",
                           "tanhf(s * slope[0]) * expf(-s * s)"}) {
    const CodeTree tree = tree_of(text);
    ASSERT_EQ(tree.unknown, "") << text;
    for (const double s : {0.3, 0.7, 1.4}) {
      constexpr double kStep = 1e-5;
      const auto value = [&](double at) { return value_of(tree, {.s = at}, arguments); };
      const double difference = (value(s + kStep) - value(s - kStep)) / (2 * kStep);
      EXPECT_NEAR(slope_of(tree, {.s = s}, arguments), difference, 1e-7 * (1 + abs(difference)))
          << text << " at " << s;
    }
  }
}

TEST(CodeTree, TellsWhatEachReadDoesToTheValue) {
  const std::vector<CodeValue> arguments = values();
  const CodeTree tree = tree_of(
      "k < 2 ? s * slope[head] + narrow[q] * slope[1] : s + halves[document[5]] + slope[9]");
  struct Read {
    std::size_t argument;
    std::int64_t element;
    double slope;
    bool operator==(const Read&) const = default;
  };
  const auto reads = [&](int k) {
    std::vector<Read> all;
    const TakeRead take = [&](std::size_t argument, std::int64_t element, double slope) {
      all.push_back({argument, element, slope});
    };
    slope_of(tree, {.s = 3, .q = 2, .k = k}, arguments, &take);
    return all;
  };
  EXPECT_THAT(reads(0),
              testing::UnorderedElementsAre(Read{0, 0, 3}, Read{3, 2, 0.25}, Read{0, 1, 9}));
  EXPECT_THAT(reads(4), testing::UnorderedElementsAre(Read{2, 2, 1}))
      << "an index has no derivative, and what is not there none either";
}

TEST(CodeTree, SaysWhichTokenItDoesNotKnowAndWhere) {
  struct Case {
    const char *text, *unknown;
    std::size_t at;
  };
  for (const Case& c : {Case{"s + sinpif(s)", "it calls sinpif", 4},
                        {"s + expf(s, 2)", "it calls expf", 4},
                        {"[&] { return s; }()", "it has \"[\"", 0},
                        {"s + *slope", "it has \"*\"", 4},
                        {"s + slope", "it ends too early", 9},
                        {"s += 1", "it has \"+\"", 2},
                        {"(unsigned)k < 3", "it has \"unsigned\"", 1},
                        {"static_cast<long>(k)", "it has \"long\"", 12},
                        {"s * 0.5F + 1u", "it has \"1u\"", 11},
                        {"s, 1", "it has \",\"", 1},
                        {"s / 2 % 3", "it has bits or a rest of a float", 6},
                        {"batch.x", "it has \".\"", 5}}) {
    const CodeTree tree = tree_of(c.text);
    EXPECT_EQ(tree.unknown, c.unknown) << c.text;
    EXPECT_EQ(tree.unknown_at, c.at) << c.text;
  }
  EXPECT_EQ(tree_of("s > 0", CodeText::kMask).unknown, "it has \"s\"") << "a mask has no score";
}

/// The terms that && joins, each with its operation.
TEST(CodeTree, HoldsWhatItDoesNotKnowInOneTerm) {
  const auto terms = [](const std::string& text) {
    const CodeTree tree = tree_of(text);
    std::string all;
    for (const int term : terms_of(tree, text)) {
      const CodeNode& node = tree[term];
      all += text.substr(node.begin, node.end - node.begin);
      all += node.op == CodeOp::kOpaque    ? " (opaque); "
             : node.op == CodeOp::kUnknown ? " (unknown); "
                                           : "; ";
    }
    return all;
  };
  EXPECT_EQ(terms("k <= q && [&] { return k && q; }() && (k > 3 || long(q))"),
            "k <= q; [&] { return k && q; }() (opaque); k > 3 || long(q); ");
  EXPECT_EQ(terms("(later(k, q)) && (k < 3 && q<int>(3) q) && std::max(k, q)"),
            "later(k, q) (unknown); k < 3; q<int>(3) q (opaque); std::max(k, q) (opaque); ");
  EXPECT_EQ(terms("k < 3 && q, k"), "k < 3 && q, k (opaque); ") << "&& binds more tightly";
  EXPECT_EQ(terms("k < 3 and q"), "k < 3 and q; ") << "&& alone";
  EXPECT_FALSE(tree_of("(q = k) && k < 3").unknown.empty());
  EXPECT_TRUE(tree_of("(q = k) && k < 3").assigns);
  EXPECT_FALSE(tree_of("later == 3 && k <= q && k != 2 && k >= 1").assigns);
}

/// As long as a text may be: no recursion that goes with its length.
TEST(CodeTree, ComputesTheLongestTexts) {
  std::string sum = "s", alternating = "s";
  while (sum.size() + 4 <= kMostCodeBytes) sum += " + k";
  while (alternating.size() + 8 <= kMostCodeBytes) alternating += "*1+k%7/3";
  EXPECT_EQ(value_of(tree_of(sum), {.s = 1, .k = 2}, values()),
            1 + 2 * static_cast<double>((sum.size() - 1) / 4));
  EXPECT_EQ(tree_of(alternating).unknown, "");
}

}  // namespace
}  // namespace attnforge
