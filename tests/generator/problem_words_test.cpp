// problem_words_test.cpp - the table of words says what parse_problem() does.
#include "attnforge/problem_words.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "attnforge/problem.h"
#include "generator/problem/fields.h"
#include "generator/text/words.h"
#include "tests/generator/expect_error.h"

namespace attnforge {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("-0123456789") == text.npos;
}

TEST(ProblemWords, EveryFieldHasAWord) {
  std::set<std::string_view> names;
  for (const ProblemWord& word : problem_words()) {
    EXPECT_TRUE(names.insert(word.name).second) << word.name << " is there twice";
    EXPECT_FALSE(word.meaning.empty()) << word.name;
    EXPECT_FALSE(word.fallback.empty()) << word.name;
  }
}

TEST(ProblemWords, OtherNamesMeanOneWordAndValuesHaveARange) {
  std::set<std::string_view> others;
  for (const ProblemField& field : problem_fields()) {
    std::string_view rest = field.other_names;
    for (std::string_view other = next_word(rest); !other.empty(); other = next_word(rest)) {
      EXPECT_TRUE(others.insert(other).second) << other << " is there twice";
      EXPECT_EQ(find_field(other), nullptr) << other << " is a word itself";
    }
    const FieldValue& value = field.value;
    const bool has_range = value.ok != nullptr || value.number_ok != nullptr ||
                           !value.choices.empty();
    EXPECT_EQ(has_range, value.get != nullptr || value.number != nullptr) << field.name();
  }
}

TEST(ProblemWords, AValueIsWhatHoldsInTheProblem) {
  const Problem p = parse_problem(
      "fwd bf16 seqlen=64 head_dim=96 causal window_left=7 softcap=2.5 rope=half score=\"s + 1\"");
  const auto value = [&](std::string_view name) { return value_of_word(p, name); };
  EXPECT_EQ(value("window_left"), ProblemWordValue(std::int64_t{7}));
  EXPECT_EQ(value("window_right"), ProblemWordValue(std::int64_t{-1}));
  EXPECT_EQ(value("causal"), ProblemWordValue(std::int64_t{1}));
  EXPECT_EQ(value("softcap"), ProblemWordValue(2.5));
  EXPECT_EQ(value("rope"), ProblemWordValue("half"));
  EXPECT_EQ(value("rope_dim"), ProblemWordValue(std::int64_t{96})) << "0 in the problem: all";
  EXPECT_EQ(value("score"), ProblemWordValue("s + 1"));
  for (const ProblemWord& word : problem_words())
    if (word.has_column) EXPECT_NO_THROW(value(word.name)) << word.name;
  for (const char* const name : {"seqlen", "bf16", "ropes", ""}) {
    EXPECT_THAT(error_message(ErrorCode::kInvalidArgument, [&] { value(name); }),
                HasSubstr("is no word with a value of its own"));
  }
}

TEST(ProblemWords, EveryWordIsRead) {
  for (const ProblemWord& word : problem_words()) {
    const bool has_value = word.form.find('=') != word.form.npos;
    EXPECT_EQ(has_value, !word.allowed.empty()) << word.name;
    const std::string text = fmt::format("fwd {}{}", word.name, has_value ? "=?" : "");
    // Without a value the problem may still lack another word; it is never the word that is wrong.
    std::string said;
    try {
      parse_problem(text);
    } catch (const Error& error) {
      said = error.what();
    }
    EXPECT_THAT(said, Not(HasSubstr("unknown word"))) << text;
  }
}

TEST(ProblemWords, DefaultsAreThoseOfAProblem) {
  for (const ProblemField& field : problem_fields()) {
    if (field.value.kind == FieldKind::kInteger && is_number(field.word.fallback)) {
      EXPECT_EQ(field.word.fallback, std::to_string(field.value.get(Problem{}))) << field.name();
    }
  }
  for (const ProblemWord& word : problem_words()) {
    // A default that is a value may be written out.
    if (!is_number(word.fallback) && word.name != "layout") continue;
    EXPECT_EQ(parse_problem(fmt::format("fwd {}={}", word.name, word.fallback)),
              parse_problem("fwd"))
        << word.name;
  }
  EXPECT_EQ(parse_problem("fwd bf16 lengths=fixed rope=none"), parse_problem("fwd"));
}

TEST(ProblemWords, DidYouMeanHelpsOrIsSilent) {
  const auto said = [](const char* text) {
    return error_message(ErrorCode::kInvalidProblem, [&] { parse_problem(text); });
  };
  EXPECT_THAT(said("fwd window=128"), HasSubstr("did you mean \"window_left=\"?"));
  EXPECT_THAT(said("fwd heads=8"), HasSubstr("did you mean \"num_heads=\"?"));
  EXPECT_THAT(said("fwd is_causal"), HasSubstr("did you mean \"causal\"?"));
  EXPECT_THAT(said("fwd bfloat16"), HasSubstr("did you mean \"bf16\"?"));
  EXPECT_THAT(said("fwd num_kv_heads=8"), HasSubstr("did you mean \"num_heads_kv=\"?"));
  EXPECT_THAT(said("fwd softmax_cap=30"), HasSubstr("did you mean \"softcap=\"?"));
  EXPECT_THAT(said("fwd page=16"), HasSubstr("did you mean \"page_size=\"?"));
  EXPECT_THAT(said("fwd fp8"), HasSubstr("did you mean \"e4m3\"?"));
  EXPECT_THAT(said("fwd wndow=128"), HasSubstr("did you mean \"window_left=\"?"));
  for (const char* text : {"fwd dropout=0.1", "fwd x", "fwd alibi", "fwd dilation=2", "fwd fp4"}) {
    EXPECT_THAT(said(text), Not(HasSubstr("did you mean"))) << text;
    EXPECT_THAT(said(text), HasSubstr("attnforge help problem")) << text;
  }
}

TEST(ProblemWords, AllUnknownWordsAreNamedAtOnce) {
  const auto said = [](const std::string& text) {
    return error_message(ErrorCode::kInvalidProblem, [&] { parse_problem(text); });
  };
  EXPECT_THAT(said("fwd casual batch=two windw_left=5 hed_dim=72 zzz=1"),
              EndsWith("4 unknown words; attnforge help problem has every word:\n"
                       "\"casual\"; did you mean \"causal\"?\n"
                       "\"windw_left=5\"; did you mean \"window_left=5\"?\n"
                       "\"hed_dim=72\"; did you mean \"head_dim=72\"?\n"
                       "\"zzz=1\""));
  std::string many = "fwd";
  for (int i = 0; i < 1000; ++i) many += fmt::format(" w{}", i);
  EXPECT_THAT(said(many), AllOf(HasSubstr("1000 unknown words"), EndsWith("and 992 more")));
}

}  // namespace
}  // namespace attnforge
