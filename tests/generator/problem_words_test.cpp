// problem_words_test.cpp - the table of words says what parse_problem() does.
#include "attnforge/problem_words.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "attnforge/problem.h"
#include "generator/problem_fields.h"
#include "tests/generator/expect_error.h"

namespace attnforge {
namespace {

using testing::HasSubstr;
using testing::Not;

const ProblemWord& word_named(std::string_view name) {
  for (const ProblemWord& word : problem_words()) {
    if (word.name == name) return word;
  }
  ADD_FAILURE() << name;
  return problem_words().front();
}

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
  for (const IntegerField& field : integer_fields()) EXPECT_TRUE(names.count(field.name));
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
  for (const IntegerField& field : integer_fields()) {
    const ProblemWord& word = word_named(field.name);
    EXPECT_EQ(word.allowed, field.allowed);
    if (is_number(word.fallback))
      EXPECT_EQ(word.fallback, std::to_string(field.get(Problem{}))) << word.name;
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
  for (const char* text : {"fwd dropout=0.1", "fwd x", "fwd alibi", "fwd dilation=2"}) {
    EXPECT_THAT(said(text), Not(HasSubstr("did you mean"))) << text;
    EXPECT_THAT(said(text), HasSubstr("attnforge help problem")) << text;
  }
}

}  // namespace
}  // namespace attnforge
