// text_parts_test.cpp - windows and terms that are told of a mask's text see, together, the pairs
// that the whole text sees: texts are drawn of everything that joins terms, and what is asked for
// is the tree of the whole.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>

#include "generator/user_code/mask_rule.h"
#include "generator/user_code/mask_windows.h"
#include "generator/user_code/pair_terms.h"

namespace attnforge {
namespace {

constexpr std::int64_t kRows = 6, kKeys = 9;

Problem with_mask(const std::string& mask) {
  Problem p;
  p.seqlen_q = kRows;
  p.seqlen_kv = kKeys;
  p.mask = mask;
  return p;
}

bool sees_by_windows(const Problem& p, const MaskRule::Pair& pair) {
  const KeyBounds bounds = key_bounds(p);
  const std::int64_t distance = pair.k - (pair.q + kKeys - kRows);
  return (!bounds.right || distance <= *bounds.right) &&
         (!bounds.left || distance >= -*bounds.left);
}

/// The pair as the terms of both kinds see it: what is surely so, and what may be.
struct Bounds {
  std::string surely, maybe;
};
Bounds as_texts(const PairTerms& found) {
  constexpr const char* kRelations[] = {"==", "!=", "<", "<=", ">", ">="};
  std::vector<Bounds> operands;
  for (const int item : found.value) {
    if (item >= 0) {
      const PairTerm& term = found.terms.at(static_cast<std::size_t>(item));
      const std::string text = "((" + term.of_query + ") " +
                               kRelations[static_cast<int>(term.relation)] + " (" + term.of_key +
                               "))";
      operands.push_back({text, text});
      continue;
    }
    if (item == PairTerms::kUnknown) {
      operands.push_back({"0", "1"});
      continue;
    }
    const Bounds last = operands.back();
    if (item == PairTerms::kOpposite) {
      operands.back() = {"!" + last.maybe, "!" + last.surely};
      continue;
    }
    operands.pop_back();
    const std::string join = item == PairTerms::kBoth ? " && " : " || ";
    Bounds& first = operands.back();
    first = {"(" + first.surely + join + last.surely + ")",
             "(" + first.maybe + join + last.maybe + ")"};
  }
  return operands.empty() ? Bounds{"1", "1"} : operands.front();
}

void expect_same(const std::string& mask) {
  const Problem p = with_mask(mask);
  const MaskRule whole(mask, p, {});
  ASSERT_EQ(whole.unknown(), "") << mask;
  const std::string code = mask_code(p);
  const MaskRule rest(code.empty() ? "1" : code, p, {});
  ASSERT_EQ(rest.unknown(), "") << code;
  const PairTerms found = pair_terms(p);
  const Bounds texts = as_texts(found);
  const MaskRule surely(texts.surely, p, {}), maybe(texts.maybe, p, {});
  ASSERT_EQ(surely.unknown() + maybe.unknown(), "") << texts.surely;
  for (std::int64_t q = 0; q < kRows; ++q) {
    for (std::int64_t k = 0; k < kKeys; ++k) {
      const MaskRule::Pair pair{0, 0, q, k};
      const bool sees = whole.sees(pair), windows = sees_by_windows(p, pair);
      ASSERT_EQ(windows && rest.sees(pair), sees)
          << mask << " became " << code << " of q " << q << " k " << k;
      if (!windows) continue;
      ASSERT_TRUE(!sees || maybe.sees(pair))
          << mask << " became " << texts.maybe << " of q " << q << " k " << k;
      ASSERT_TRUE(!surely.sees(pair) || sees)
          << mask << " became " << texts.surely << " of q " << q << " k " << k;
      ASSERT_TRUE(!found.all() || surely.sees(pair) == maybe.sees(pair)) << mask;
    }
  }
}

/// A window of each kind beside each operator, both as it may be spelled: what binds less tightly
/// than && holds its terms together.
TEST(TextParts, AreNotCutWhereSomethingBindsLessTightly) {
  for (const char* join : {"||", "or", "&&", "and", "|", "bitor", "^", "xor", "&", "bitand",
                           "==", "!=", "not_eq", "<", "+", "-", "*"}) {
    const std::string by = std::string(" ") + join + " ";
    expect_same("k <= q && q % 2 == 0" + by + "k > 4");
    expect_same("k > 4" + by + "q % 2 == 0 && k <= q");
    expect_same("k <= q && k % 2" + by + "q and q - k < 3");
    expect_same("(k <= q" + by + "k % 3) && q - k < 4");
    expect_same("not (k <= q" + by + "q > 2) && k < 5");
    expect_same("!(k <= q && q - k < 3)" + by + "k % 3 == 0");
  }
  expect_same("k <= q && q > 2 ? k % 2 : k > 3");
  expect_same("q > 2 && k < 3 ? k <= q && k % 2 : k > q && q % 2");
  expect_same("k > q && (q > 2 ? k % 2 == 0 : k < 7)");
}

class Texts {
 public:
  explicit Texts(unsigned seed) : random_(seed) {}

  std::string text(int depth) {
    if (depth == 0 || one_of(4) == 0) return term();
    switch (one_of(8)) {
      case 0:
        return "(" + text(depth - 1) + ")";
      case 1:
        return (one_of(2) ? "!" : "not ") + ("(" + text(depth - 1) + ")");
      case 2:
        return text(depth - 1) + " ? " + text(depth - 1) + " : " + text(depth - 1);
      default:
        return text(depth - 1) + " " + join() + " " + text(depth - 1);
    }
  }

 private:
  std::size_t one_of(std::size_t count) { return random_() % count; }
  std::string term() {
    constexpr const char* kTerms[] = {
        "k <= q",      "q - k < 3",  "abs(k - q) <= 2", "k == q", "k > q - 4",
        "k % 2 == 0",  "q % 3 != 1", "k < 5",           "q",      "k <= q + seqlen_kv - seqlen_q",
        "(k + q) % 3", "-k < -q",    "q > k - 2",       "true",   "3 - 2 * k < -q"};
    return kTerms[one_of(std::size(kTerms))];
  }
  std::string join() {
    // && most of all: what it joins is taken apart.
    constexpr const char* kJoins[] = {"&&",  "&&", "&&",     "and", "||", "or", "|", "^",
                                      "xor", "&",  "bitand", "==",  "!=", "<",  "+"};
    return kJoins[one_of(std::size(kJoins))];
  }
  std::mt19937 random_;
};

TEST(TextParts, SeeTogetherWhatDrawnTextsSee) {
  Texts texts(20261126);
  for (int i = 0; i < 4000; ++i) {
    ASSERT_NO_FATAL_FAILURE(expect_same(texts.text(3)));
  }
}

/// Words that assign are no terms: what a text changes, others of its terms see.
TEST(TextParts, AreNoneOfTextsThatMayAssign) {
  for (const char* assign : {"=", "+=", "and_eq", "or_eq", "xor_eq", "|=", "<<="}) {
    const Problem p = with_mask(std::string("(q ") + assign + " 1) && k <= q");
    EXPECT_FALSE(key_bounds(p).right) << assign;
    EXPECT_EQ(mask_code(p), p.mask) << assign;
    EXPECT_FALSE(pair_terms(p).all()) << assign;
  }
}

}  // namespace
}  // namespace attnforge
