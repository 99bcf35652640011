// random_texts_test.cpp - what the generator knows of texts that nobody chose, pair by pair beside
// what their trees mean. A failure names the seed that draws its text again.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "generator/shape.h"
#include "generator/user_code/code_tree.h"
#include "generator/user_code/code_value.h"
#include "generator/user_code/mask_windows.h"
#include "generator/user_code/pair_terms.h"
#include "generator/user_code/user_code.h"
#include "tests/support/any_text.h"
#include "tests/support/random_choices.h"

namespace attnforge {
namespace {

using namespace test;

/// A score, and the pair that has it.
struct Scored {
  double s;
  CodePair pair;
};

struct Drawn {
  RandomChoices choices;
  AnyText text;
  Problem problem;

  explicit Drawn(std::uint64_t seed)
      : choices(seed),
        text(any_text(choices)),
        problem(any_problem_for_text(choices, seed % 2 == 0 ? Op::kForward : Op::kBackward)) {
    set_text(problem, text);
  }
  std::int64_t below(std::int64_t end) { return choices.between(0, end - 1); }
  Scored any_scored() {
    CodePair at{.seqlen_q = problem.seqlen_q, .seqlen_kv = problem.seqlen_kv};
    if (problem.lengths != Lengths::kFixed) {
      at.seqlen_q = 1 + below(at.seqlen_q);
      at.seqlen_kv = 1 + below(at.seqlen_kv);
    }
    at.batch = below(problem.batch), at.head = below(problem.num_heads_q);
    at.q = below(at.seqlen_q), at.k = below(at.seqlen_kv);
    return {static_cast<double>(choices.between(-300, 300)) / 128, at};
  }
  /// Another query that has the same key, of a head that shares it.
  Scored any_beside(const CodePair& pair) {
    Scored other = any_scored();
    const std::int64_t group = problem.num_heads_q / problem.num_heads_kv,
                       head = pair.head / group * group + below(group), q = below(pair.seqlen_q);
    other.pair = pair;
    other.pair.head = head, other.pair.q = q;
    return other;
  }
};

/// Calls check(drawn) for each problem that has pairs.
void for_each_drawn(const std::function<void(Drawn&)>& check) {
  constexpr std::uint64_t kDrawn = 2000;
  for (std::uint64_t seed = 1; seed <= kDrawn && !testing::Test::HasFailure(); ++seed) {
    Drawn drawn(seed);
    const Problem& p = drawn.problem;
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, to_string(p)));
    ASSERT_NO_THROW(validate(p));
    ASSERT_EQ(parse_problem(to_string(p)), p);
    if (p.batch > 0 && p.seqlen_q > 0 && p.seqlen_kv > 0) check(drawn);
  }
}
constexpr int kPairs = 60;

/// A text as the generator reads it.
struct ReadText {
  std::vector<CodeArgument> arguments;
  CodeTree tree;
  std::vector<CodeValue> values{};

  ReadText(const std::string& text, CodeText kind, const Problem& p)
      : arguments(code_arguments(p.args)), tree(code_tree(text, kind, arguments)) {
    static std::map<std::string, std::vector<std::byte>> bytes;
    for (const CodeArgument& argument : arguments) {
      std::vector<std::byte>& own = bytes[argument.name];
      if (own.empty()) own = text_argument(argument.name).bytes();
      values.push_back({argument.value, own});
    }
    EXPECT_EQ(tree.unknown, "") << text;
  }
  static CodePlace place(const Scored& of) {
    const CodePair& at = of.pair;
    return {of.s, at.batch, at.head, at.q, at.k, at.seqlen_q, at.seqlen_kv};
  }
  double value(const Scored& of) const { return value_of(tree, place(of), values); }
};

TEST(RandomTexts, MeanOnTheCpuWhatTheirTreesSay) {
  const auto expect_same = [](double got, double wanted) {
    EXPECT_NEAR(got, wanted, 1e-11 * (1 + std::abs(wanted)));
  };
  for_each_drawn([&](Drawn& drawn) {
    if (!drawn.text.score) return;
    const ReadText read(drawn.problem.score, CodeText::kScore, drawn.problem);
    for (int i = 0; i < kPairs; ++i) {
      const Scored of = drawn.any_scored();
      std::map<std::pair<std::string, std::int64_t>, double> got, wanted;
      const TakeRead take = [&](std::size_t argument, std::int64_t element, double slope) {
        got[{read.arguments[argument].name, element}] += slope;
      };
      drawn.text.for_each_read(of.s, of.pair, [&](const TextRead& at, double slope) {
        wanted[{at.argument->name, at.element}] += slope;
      });
      const TextDual score = drawn.text.score_of(of.s, of.pair);
      expect_same(read.value(of), score.value);
      expect_same(slope_of(read.tree, ReadText::place(of), read.values, &take), score.slope);
      for (const auto& [element, slope] : wanted) expect_same(got[element], slope);
      EXPECT_LE(got.size(), wanted.size());
    }
  });
}

/// What the verdicts of terms make of the text; nothing: they do not say.
std::optional<bool> joined(const PairTerms& terms, const std::vector<bool>& verdicts) {
  std::vector<std::optional<bool>> operands;
  for (const int item : terms.value) {
    if (item == PairTerms::kUnknown || item >= 0) {
      operands.push_back(item < 0 ? std::nullopt : std::optional(bool{verdicts[item]}));
      continue;
    }
    const std::optional<bool> last = operands.back();
    if (item == PairTerms::kOpposite) {
      if (last) operands.back() = !*last;
      continue;
    }
    operands.pop_back();
    std::optional<bool>& first = operands.back();
    const bool decides = item == PairTerms::kEither;  // whatever the other is
    if (first == decides || last == decides)
      first = decides;
    else if (!first || !last)
      first.reset();
  }
  return operands.back();
}

TEST(RandomTexts, AreSeenThroughWindowsAndTheTermsOfWhatTheseLeave) {
  int windows = 0, terms = 0, decided = 0;
  for_each_drawn([&](Drawn& drawn) {
    const Problem& p = drawn.problem;
    if (!drawn.text.mask) return;
    const MaskTerms left = mask_terms(p);
    const ReadText rest(left.code.empty() ? "1" : left.code, CodeText::kMask, p);
    const PairTerms found = pair_terms(p);
    std::vector<std::array<ReadText, 2>> sides;
    for (const PairTerm& term : found.terms) {
      EXPECT_FALSE(names(term.of_query, "k") || names(term.of_key, "q"));
      sides.push_back(
          {ReadText(term.of_query, CodeText::kMask, p), ReadText(term.of_key, CodeText::kMask, p)});
    }
    windows += left.code != p.mask, terms += !sides.empty();
    for (int i = 0; i < kPairs; ++i) {
      const Scored of = drawn.any_scored();
      const CodePair& at = of.pair;
      const std::int64_t apart = at.k - (at.q + at.seqlen_kv - at.seqlen_q);
      const auto within = [&](std::optional<std::int64_t> to_left,
                              std::optional<std::int64_t> right) {
        return apart >= -to_left.value_or(1 << 20) && apart <= right.value_or(1 << 20);
      };
      const Window own = effective_window(p);
      const bool seen = rest.value(of) != 0;
      ASSERT_EQ(within(left.bounds.left, left.bounds.right) && seen,
                within(own.left < 0 ? 1 << 20 : own.left, own.right < 0 ? 1 << 20 : own.right) &&
                    drawn.text.sees(at))
          << at.q << " " << at.k;
      if (sides.empty()) continue;
      std::vector<bool> verdicts;
      for (std::size_t t = 0; t < sides.size(); ++t) {
        const double x = sides[t][0].value(of), y = sides[t][1].value(of);
        const bool all[] = {x == y, x != y, x<y, x <= y, x> y, x >= y};
        verdicts.push_back(all[static_cast<int>(found.terms[t].relation)]);
      }
      const std::optional<bool> verdict = joined(found, verdicts);
      decided += verdict.has_value();
      ASSERT_EQ(verdict.value_or(seen), seen) << at.q << " " << at.k;
      ASSERT_TRUE(verdict || !found.all());
    }
  });
  EXPECT_GT(windows, 10);
  EXPECT_GT(terms, 50);
  EXPECT_GT(decided, 1000);
}

std::vector<TextRead> reads_of(const Drawn& drawn, const Scored& of, bool all = false) {
  std::vector<TextRead> reads;
  drawn.text.for_each_read(of.s, of.pair, [&](const TextRead& read, double) {
    if (all || read.argument->has_gradient()) reads.push_back(read);
  });
  return reads;
}
/// Of the element that is read by rows.
TextRead row_of(const Drawn& drawn, Scored of, std::int64_t q) {
  of.pair.q = q;
  for (const TextRead& read : reads_of(drawn, of))
    if (read.argument->aligned) return read;
  return {};
}
double added(const Drawn& drawn, const Scored& of) {
  return drawn.text.score_of(of.s, of.pair).value - of.s;
}
bool same(double a, double b) { return std::abs(a - b) < 1e-12; }

/// What may be known of a problem's score, and what that promises of a pair with a score and of
/// another beside it.
struct Fact {
  const char* name;
  bool (*known)(const Problem& p);
  bool (*holds)(const Drawn& drawn, const Scored& of, Scored beside);
};
const Fact kFacts[] = {
    {"adds_to_score", [](const Problem& p) { return adds_to_score(p.score); },
     [](const Drawn& d, const Scored& of, Scored beside) {
       beside.pair = of.pair;
       return d.text.score_of(of.s, of.pair).slope == 1 && same(added(d, of), added(d, beside));
     }},
    {"adds_term_of_key", adds_term_of_key,
     [](const Drawn& d, const Scored& of, Scored beside) {
       return !d.text.score->is("s") && same(added(d, of), added(d, beside));
     }},
    {"cap_of", [](const Problem& p) { return cap_of(p.score) != 0; },
     [](const Drawn& d, const Scored& of, Scored) {
       const double cap = cap_of(d.problem.score);
       return same(d.text.score_of(of.s, of.pair).value, cap * std::tanh(of.s / cap));
     }},
    {"dargs_without_query", dargs_without_query,
     [](const Drawn& d, const Scored& of, Scored beside) {
       beside.pair.head = of.pair.head;
       const auto reads = reads_of(d, of);
       return reads == reads_of(d, beside) && reads.size() <= kMostReadsAtOnce;
     }},
    {"adds_rows_alone", adds_rows_alone,
     [](const Drawn& d, const Scored& of, Scored) {
       const auto reads = reads_of(d, of);
       return d.text.score_of(of.s, of.pair).slope == 1 && reads.size() == 1 &&
              reads[0].argument->aligned;
     }},
    {"adds_element", adds_element,
     [](const Drawn& d, const Scored& of, Scored) {
       bool is_one = false;
       d.text.for_each_read(of.s, of.pair, [&](const TextRead& read, double slope) {
         is_one |= read.argument->aligned && slope == 1;
       });
       return is_one;
     }},
    {"reads_even_rows", reads_even_rows,
     [](const Drawn& d, const Scored& of, Scored) {
       const auto step = [&](std::int64_t q) {
         return row_of(d, of, q + 1).element - row_of(d, of, q).element;
       };
       return step(of.pair.q) == step(0);
     }},
    {"no reads_by_key",  // by texts that make all their reads for each pair
     [](const Problem& p) {
       return !p.args.empty() && p.score.find_first_of("?&|") == p.score.npos &&
              !reads_by_key(p.score, code_arguments(p.args));
     },
     [](const Drawn& d, const Scored& of, Scored) {
       Scored other = of;
       other.pair.k = of.pair.seqlen_kv - 1 - of.pair.k;
       return reads_of(d, of, true) == reads_of(d, other, true);
     }},
};

TEST(RandomTexts, HaveTheFactsThatTheirScoresAreReadFor) {
  std::map<std::string, int> known;
  for_each_drawn([&](Drawn& drawn) {
    for (const Fact& fact : kFacts) {
      if (!drawn.text.score || !fact.known(drawn.problem)) continue;
      ++known[fact.name];
      for (int i = 0; i < kPairs; ++i) {
        const Scored of = drawn.any_scored();
        ASSERT_TRUE(fact.holds(drawn, of, drawn.any_beside(of.pair)))
            << fact.name << " of q " << of.pair.q << " and k " << of.pair.k;
      }
    }
  });
  for (const Fact& fact : kFacts) EXPECT_GE(known[fact.name], 8) << fact.name << " is drawn";
}

}  // namespace
}  // namespace attnforge
