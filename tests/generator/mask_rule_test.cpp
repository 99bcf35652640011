// mask_rule_test.cpp - mask texts asked on the CPU answer as C++ does, and what is not known is
// named instead of guessed.
#include "generator/user_code/mask_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>

namespace attnforge {
namespace {

using Pair = MaskRule::Pair;

constexpr int kDocuments[] = {0, 0, 0, 1, 1, 2, 2, 2, 2};
constexpr float kReach[] = {1.5f, 4.0f};
constexpr bool kOdd[] = {false, true, false, true, false, true, false, true, false};

Problem problem_of(std::string mask) {
  Problem p;
  p.batch = 2;
  p.num_heads_q = p.num_heads_kv = 2;
  p.seqlen_q = 7;
  p.seqlen_kv = 9;
  p.mask = std::move(mask);
  p.args =
      "int* document[seqlen_kv], float* reach[2], bool* odd, int window = 3, float scale = 0.5, "
      "fp16* narrow";
  return p;
}

MaskRule rule_of(const std::string& text) {
  static const std::vector<std::span<const std::byte>> kArrays = {
      std::as_bytes(std::span(kDocuments)),
      std::as_bytes(std::span(kReach)),
      std::as_bytes(std::span(kOdd)),
      {},
      {},
      {}};
  return {text, problem_of(text), kArrays};
}

#define SAME_AS_IN_CPP(expression)                                                                  \
  {                                                                                                 \
#expression, [](int batch, int head, int q, int k, int seqlen_q, int seqlen_kv) -> bool {         \
      (void)batch, (void)head, (void)q, (void)k, (void)seqlen_q, (void)seqlen_kv;                 \
      return static_cast<bool>(expression);                                                       \
    } \
  }

using std::abs;
using std::max;
using std::min;
constexpr const auto& document = kDocuments;
constexpr const auto& reach = kReach;
constexpr const auto& odd = kOdd;
constexpr int window = 3;
constexpr float scale = 0.5f;

struct Text {
  std::string text;
  std::function<bool(int, int, int, int, int, int)> sees;
};

TEST(MaskRule, SeesWhatTheSameTextSeesInCpp) {
  const Text texts[] = {
      SAME_AS_IN_CPP(k <= q),
      SAME_AS_IN_CPP(k <= q + seqlen_kv - seqlen_q || k < 2 + batch),
      SAME_AS_IN_CPP(abs(k - q) <= 4 && (k - q) % 2 == 0),
      SAME_AS_IN_CPP(document[q] == document[k]),
      SAME_AS_IN_CPP(q - k < window && !(k & 1)),
      SAME_AS_IN_CPP(q - k < reach[head] * 1.5f),
      SAME_AS_IN_CPP(odd[k] ? k < q : k > q),
      SAME_AS_IN_CPP(k / 2 == q / 2 || k / 2.0f == scale * q),
      SAME_AS_IN_CPP(min(k, 4) + max(q, 3) * 2 > 10 - head),
      SAME_AS_IN_CPP((k << 1 | head) > (q ^ 2) && ~k < -1),
      SAME_AS_IN_CPP((k - q - 1 < 0) == (batch > 0)),
      SAME_AS_IN_CPP(not(k == q) and (k >= q or q % 3 != 1)),
      SAME_AS_IN_CPP(k > 5   ? true
                     : q > 3 ? k % 2
                             : false),
      SAME_AS_IN_CPP(int(k * 0.3f) == q / 4 || -k + +q == 3),
      SAME_AS_IN_CPP(k >> 1 >= 1e0f + q * .25 && bool(k)),
      SAME_AS_IN_CPP(abs((k - 3) * (q - 3)) / 2 != 1),
  };
  for (const Text& each : texts) {
    const MaskRule rule = rule_of(each.text);
    ASSERT_EQ(rule.unknown(), "") << each.text;
    for (int batch = 0; batch < 2; ++batch)
      for (int head = 0; head < 2; ++head)
        for (int q = 0; q < 7; ++q)
          for (int k = 0; k < 9; ++k)
            ASSERT_EQ(rule.sees({batch, head, q, k}), each.sees(batch, head, q, k, 7, 9))
                << each.text << " of q " << q << " k " << k;
  }
}

std::string repeated(std::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(MaskRule, NamesWhatOnlyACompilerKnows) {
  struct Case {
    std::string text, why;
  };
  for (const Case& c :
       {Case{"sinpif(k) < q", "it calls sinpif"},
        {"[&] { return k < q; }()", "it has \"[\""},
        {"k = q", "it has \"=\""},
        {"k <<= 1", "it has \"<\""},
        {"k++ < q", "it has \"+\""},
        {"k--q", "it has \"-\""},
        {"k <", "it ends too early"},
        {"k < q)", "it has \")\""},
        {"k < 0x10", "it has \"0x10\""},
        {"k < 010", "it has \"010\""},
        {"k < later", "it has \"later\""},
        {"narrow[k] > 0", "it reads narrow, whose elements are not given"},
        {"reach[0] % 2 == 0", "it has bits or a rest of a float"},
        {"document", "it ends too early"},
        {std::string(100, '(') + "k" + std::string(100, ')'), "it is nested too deep"},
        {repeated("!", 100) + "k", "it is nested too deep"},
        {repeated("- ", 100) + "k", "it is nested too deep"},
        {repeated("k > 5 ? q : ", 100) + "k", "it is nested too deep"}}) {
    EXPECT_EQ(rule_of(c.text).unknown(), c.why) << c.text;
  }
  EXPECT_EQ(MaskRule("document[k] == 1", problem_of("document[k] == 1"), {}).unknown(),
            "it reads document, whose elements are not given");
}

/// Whatever a text says, nothing is read outside of an array, and nothing is divided by 0.
TEST(MaskRule, HasNoUndefinedBehaviour) {
  for (const char* text :
       {"document[k * 1000] || document[-k] || document[1 / (k - k)]",
        "k / (q - q) == 0 && k % (q - q) == 0", "(k << q * 100) > k >> -5",
        "(2147483647 * 2147483647 * k) % 7 | 1 << 40", "int(1e30f * k) & int(0.0f / (k - k))"}) {
    const MaskRule rule = rule_of(text);
    ASSERT_EQ(rule.unknown(), "") << text;
    for (int k = 0; k < 9; ++k) rule.sees({0, 0, 3, k});
  }
}

}  // namespace
}  // namespace attnforge
