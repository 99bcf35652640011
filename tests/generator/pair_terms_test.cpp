// pair_terms_test.cpp - terms of a mask's text that are told of many pairs at once: nothing is
// taken for one that may read what the text does not.
#include "generator/user_code/pair_terms.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace attnforge {
namespace {

/// "of_query relation of_key; " of what && joins, else in brackets, and "..." where there are other
/// terms.
std::string terms(const std::string& mask, const std::string& args = "") {
  Problem p;
  p.seqlen_q = p.seqlen_kv = 64;
  p.mask = mask;
  p.args = args;
  const PairTerms found = pair_terms(p);
  constexpr const char* kRelations[] = {"==", "!=", "<", "<=", ">", ">="};
  std::vector<std::string> operands;
  for (const int item : found.value) {
    if (item == PairTerms::kUnknown) {
      operands.emplace_back("...");
    } else if (item >= 0) {
      const PairTerm& term = found.terms.at(static_cast<std::size_t>(item));
      operands.push_back(term.of_query + " " + kRelations[static_cast<int>(term.relation)] + " " +
                         term.of_key);
    } else if (item == PairTerms::kOpposite) {
      operands.back() = "!(" + operands.back() + ")";
    } else {
      const std::string last = operands.back();
      operands.pop_back();
      operands.back() += item == PairTerms::kBoth ? "; " + last : " | " + last;
      if (item == PairTerms::kEither) operands.back() = "(" + operands.back() + ")";
    }
  }
  EXPECT_LE(operands.size(), 1u);
  if (operands.empty()) return "";
  const std::string& text = operands.front();
  return text.ends_with("...") ? text : text + "; ";
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
  EXPECT_EQ(terms("(q + k) % 3 == 0 && (q * k) % 5"), "...; ...");
  EXPECT_EQ(terms("q % 2 == 0 && (k * q) % 5 != 1"), "q % 2 == 0; ...");
}

TEST(PairTerms, MayBeJoinedInAnyWay) {
  constexpr const char* kArgs = "int* a, int n";
  EXPECT_EQ(terms("q < 5 || k < 3"), "(q < 5 | 3 > k); ");
  EXPECT_EQ(terms("k <= q or k < n", kArgs), "(q >= k | n > k); ");
  EXPECT_EQ(terms("k < n || a[q * 64 + k - n]", kArgs), "(n > k | ...); ");
  EXPECT_EQ(terms("k % 2 && (k < 3 || !(k < q || q == 9))"),
            "true == bool(k % 2); (3 > k | !((q > k | q == 9))); ");
  EXPECT_EQ(terms("k <= q && (q % 2 == 0 || k == 0)"), "(q % 2 == 0 | 0 == k); ");
}

TEST(PairTerms, AreMadeOfWindowsThatOthersAreJoinedWith) {
  EXPECT_EQ(terms("k < 4 || q - k < 1024"), "(4 > k | q + (-1023) <= k); ");
  EXPECT_EQ(terms("k - q == 3 || q == 1"), "(q + (3) >= k; q + (3) <= k | q == 1); ");
  EXPECT_EQ(terms("q == 0 || abs(k - q) <= 64 + seqlen_q"),
            "(q == 0 | q + (1) * seqlen_q + (64) >= k; q + (-1) * seqlen_q + (-64) <= k); ");
  EXPECT_EQ(terms("q == 0 || q - k < 3 * seqlen_q"), "(q == 0 | ...); ") << "an int might overflow";
  EXPECT_EQ(terms("q == 0 || q - 2 * k < 3"), "(q == 0 | ...); ");
}

TEST(PairTerms, AreMadeOfWindowsThatARunSays) {
  constexpr const char* kArgs = "int window, int sink, float f, int* a";
  constexpr const char* kClamped = "min(max(window, -1073741824), 1073741824)";
  EXPECT_EQ(terms("k <= q && q - k < window", kArgs),
            std::string("q + (1) + (-1) * ") + kClamped + " <= k; ");
  EXPECT_EQ(terms("k < sink || abs(q - k) <= window", kArgs),
            std::string("(sink > k | q + (-1) * ") + kClamped + " <= k; q + (1) * " + kClamped +
                " >= k); ");
  EXPECT_EQ(terms("q - k < window + sink", kArgs), "...");
  EXPECT_EQ(terms("q - k < 2 * window", kArgs), "...");
  EXPECT_EQ(terms("q - k < f", kArgs), "...");
  EXPECT_EQ(terms("q - k < a[batch]", kArgs), "...");
}

TEST(PairTerms, AreNotMoreThanAStepHasMemoryFor) {
  std::string text = "(q + k) % 2", deep = "k == q * 2";
  for (int i = 0; i < 5000; ++i) text += "||k<q", deep += "||!q";
  Problem p;
  p.mask = text.substr(0, 16000);
  EXPECT_LE(pair_terms(p).terms.size(), 24u);
  p.mask = "k<2";
  for (int i = 0; i < 100; ++i) p.mask += "||k==q+" + std::to_string(i);
  const PairTerms found = pair_terms(p);
  EXPECT_GT(found.terms.size(), 10u);
  EXPECT_LE(found.terms.size(), 24u);
  EXPECT_FALSE(found.all());
}

TEST(PairTerms, AreNotWhatIsDecidedAnotherWay) {
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
  // What is of positions alone bounds no index of a sequence.
  EXPECT_EQ(terms("k <= q || k < a[batch]", kArgs), "(q >= k | a[batch] > k); ");
  EXPECT_EQ(terms("k % 2 || k < a[batch * head]", kArgs),
            "(true == bool(k % 2) | a[batch * head] > k); ");
  EXPECT_EQ(terms("k <= q + seqlen_kv - seqlen_q || k < a[batch]", kArgs),
            "(q + seqlen_kv - seqlen_q >= k | a[batch] > k); ");
  EXPECT_EQ(terms("seqlen_q < 3 || k < a[batch]", kArgs), "(seqlen_q < 3 | ...); ");
  EXPECT_EQ(terms("batch < 3 && k < a[batch]", kArgs), "batch < 3; ...");
  EXPECT_EQ(terms("q < n || k < a[batch]", kArgs), "(q < n | ...); ");
  EXPECT_EQ(terms("k <= 2 * q || k < a[q]", kArgs), "(2 * q >= k | ...); ");
  EXPECT_EQ(terms("k <= 2 * q || k < a[batch - 1]", kArgs), "(2 * q >= k | ...); ");
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
