// pair_terms_test.cpp - terms of a mask's text that are told of many pairs at once: nothing is
// taken for one that may read what the text does not.
#include "generator/user_code/pair_terms.h"

#include <gtest/gtest.h>

#include <string>

namespace attnforge {
namespace {

/// "of_query relation of_key; ..." and "..." where there are other terms.
std::string terms(const std::string& mask, const std::string& args = "") {
  Problem p;
  p.seqlen_q = p.seqlen_kv = 64;
  p.mask = mask;
  p.args = args;
  const PairTerms found = pair_terms(p);
  constexpr const char* kRelations[] = {"==", "!=", "<", "<=", ">", ">="};
  std::string text;
  for (const PairTerm& term : found.terms)
    text += term.of_query + " " + kRelations[static_cast<int>(term.relation)] + " " + term.of_key +
            "; ";
  return text + (found.all ? "" : "...");
}

TEST(PairTerms, CompareSomethingOfTheQueryWithSomethingOfTheKey) {
  constexpr const char* kArgs = "int* a, int* b, float* w, int n";
  EXPECT_EQ(terms("a[q] == b[k]", kArgs), "a[q] == b[k]; ");
  EXPECT_EQ(terms("b[k] <= a[q]", kArgs), "a[q] >= b[k]; ") << "the query comes first";
  EXPECT_EQ(terms("b[k] > a[q]", kArgs), "a[q] < b[k]; ");
  EXPECT_EQ(terms("(a[batch * seqlen_q + q] != b[k])", kArgs), "a[batch * seqlen_q + q] != b[k]; ");
  EXPECT_EQ(terms("k <= q && a[q] == a[k]", kArgs), "a[q] == a[k]; ") << "a window was here";
  EXPECT_EQ(terms("q / n == k / n", kArgs), "q / n == k / n; ");
  EXPECT_EQ(terms("k % 2 == 0"), "0 == k % 2; ");
  EXPECT_EQ(terms("k < 7 + q % 3 && q % 5 < 3"), "7 + q % 3 > k; q % 5 < 3; ");
  EXPECT_EQ(terms("w[k]", kArgs), "true == bool(w[k]); ");
  EXPECT_EQ(terms("!b[q]", kArgs), "bool(!b[q]) == true; ");
  EXPECT_EQ(terms("k <= q"), "") << "nothing is left to ask";
}

TEST(PairTerms, AreNotWhatNamesBothOnOneSide) {
  EXPECT_EQ(terms("(q + k) % 3 == 0"), "...");
  EXPECT_EQ(terms("abs(q * 2 - k) < 5"), "...");
  EXPECT_EQ(terms("q % 2 == 0 && (k * q) % 5 != 1"), "q % 2 == 0; ...");
}

TEST(PairTerms, AreNotWhatIsDecidedAnotherWay) {
  EXPECT_EQ(terms("q < 5 || k < 3"), "...");
  EXPECT_EQ(terms("q < 5 ? k < 3 : k > 7"), "...");
  EXPECT_EQ(terms("(q == 1) == (k == 1)"), "(q == 1) == (k == 1); ");
  EXPECT_EQ(terms("q == k % 7 == 1"), "...") << "two comparisons";
  EXPECT_EQ(terms("(q & 3) == k"), "...") << "bits may be cheap to tell, and are left alone";
  EXPECT_EQ(terms("q << 1 == k"), "...");
  EXPECT_EQ(terms("[&] { return q == 2 * k; }()"), "...");
}

TEST(PairTerms, ReadArraysOnlyWhereNoOtherTermCanBoundTheIndex) {
  constexpr const char* kArgs = "int* a, int* b, int n";
  EXPECT_EQ(terms("k < n && a[k] == a[q]", kArgs), "n > k; ...") << "a may have n elements";
  EXPECT_EQ(terms("a[k - 1] == a[q]", kArgs), "...");
  EXPECT_EQ(terms("a[b[k]] == a[q]", kArgs), "...");
  EXPECT_EQ(terms("a[k / 2] == a[q]", kArgs), "...");
  EXPECT_EQ(terms("*(a + k) == a[q]", kArgs), "...");
  EXPECT_EQ(terms("a[q] == a[k] && b[k] == 1", kArgs), "a[q] == a[k]; ...");
}

TEST(PairTerms, SayWhichArraysHoldLabels) {
  const auto holds = [](const std::string& mask, const std::string& score = "") {
    Problem p;
    p.mask = mask;
    p.score = score;
    p.args = "int* a, int* b, float* bias";
    return holds_labels(p, "a");
  };
  EXPECT_TRUE(holds("a[q] == a[k] && k <= q"));
  EXPECT_TRUE(holds("a[batch * seqlen_q + q] == b[k]"));
  EXPECT_FALSE(holds("a[q] <= a[k]"));
  EXPECT_FALSE(holds("a[q] == a[k]", "s + bias[a[k]]")) << "it is a place in another array";
  EXPECT_FALSE(holds("b[a[q]] == b[k]"));
  EXPECT_FALSE(holds("a[q] + 1 == a[k]"));
  EXPECT_FALSE(holds("k <= q"));
}

}  // namespace
}  // namespace attnforge
