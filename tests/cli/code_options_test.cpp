// code_options_test.cpp - --score, --mask and --arg: what they make of a problem and of its inputs.
#include "cli/parts/user_code.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <span>

#include "attnforge/error.h"
#include "cli/files/npy.h"
#include "tests/cli/temporary_folder.h"

namespace attnforge::cli {
namespace {

using testing::HasSubstr;

class CodeOptionsTest : public testing::Test {
 protected:
  template <class Value>
  std::string file(const char* name, const char* descr, const std::vector<Value>& values) {
    const std::int64_t shape[] = {static_cast<std::int64_t>(values.size())};
    write_npy(folder_.file(name), descr, shape, std::as_bytes(std::span(values)));
    return folder_.file(name);
  }
  static Problem made(const char* more, const CodeOptions& options) {
    std::string text = std::string("fwd bf16 num_heads=4 seqlen=64 ") + more;
    add_texts(text, options);
    return with_arguments(parse_problem(text), options);
  }
  static std::string refusal(const char* more, const CodeOptions& options) {
    try {
      const Problem problem = made(more, options);
      HostTensors host = random_host_tensors(problem, 1);
      set_code_arrays(problem, options, host);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was refused";
  }

  TemporaryFolder folder_;
};

TEST_F(CodeOptionsTest, NumbersAndArraysAreDeclaredByTheirValues) {
  const std::string slope = file<float>("slope.npy", "<f4", {1, 2, 3, 4});
  const Problem problem = made("", {.score = "s + slope[head] * scale",
                                    .mask = "k <= q + ahead || k < first[0]",
                                    .args = {"slope=" + slope, "scale=0.5", "ahead=-3",
                                             "first=" + file<int>("first.npy", "<i4", {7})}});
  EXPECT_EQ(problem.args, "float* slope[4], float scale = 0.5, int ahead = -3, int* first[1]");
  EXPECT_EQ(problem.mask, "k <= q + ahead || k < first[0]");
  EXPECT_EQ(made("", {.score = "s + bias[head]", .args = {"bias=random"}}).args, "float* bias");
}

TEST_F(CodeOptionsTest, ArgsOfTheProblemBelongToTextsOfOptions) {
  const Problem problem = made("args=\"float* slope[num_heads_q], int window = 9\" causal",
                               {.score = "s + slope[head] * (k - q)", .args = {"slope=random"}});
  EXPECT_EQ(problem,
            parse_problem("fwd bf16 num_heads=4 seqlen=64 causal score=\"s + slope[head] * "
                          "(k - q)\" args=\"float* slope[num_heads_q], int window = 9\""));
  EXPECT_EQ(made("args=\"int n = 3\"", {.mask = "k \n<= q + n", .args = {"m=4"}}).args,
            "int n = 3, int m = 4");
  EXPECT_THAT(refusal("args=\"int n\"", {}), HasSubstr("there is neither"));
}

TEST_F(CodeOptionsTest, FilesTakeThePlaceOfMadeUpArrays) {
  const CodeOptions options{.score = "s + a[0] + b[0]",
                            .args = {"b=" + file<float>("b.npy", "<f4", {8, 9}),
                                     "a=" + file<float>("a.npy", "<f4", {5, 6, 7, 10})}};
  // One declared before, one by its file.
  const Problem problem = made("args=\"float* a[num_heads_q], int n = 2\" score=\"s\"",
                               {.args = options.args});
  EXPECT_EQ(problem.args, "float* a[num_heads_q], int n = 2, float* b[2]");
  HostTensors host = random_host_tensors(problem, 1);
  const std::vector<std::uint64_t> begins = host.code_words;
  set_code_arrays(problem, options, host);
  EXPECT_EQ(host.code_words, begins);
  const auto element = [&](std::size_t argument, std::size_t i) {
    float value = 0;
    std::memcpy(&value, host.code_arrays.data() + begins[argument] + i * sizeof(value),
                sizeof(value));
    return value;
  };
  EXPECT_EQ(element(0, 0), 5);
  EXPECT_EQ(element(0, 2), 7);
  EXPECT_EQ(element(2, 1), 9);
  const std::vector<std::uint64_t> words = code_words_at(
      problem, host, reinterpret_cast<const void*>(std::uintptr_t{0x1000}));
  EXPECT_EQ(words[0], 0x1000 + begins[0]);
  EXPECT_EQ(words[1], begins[1]) << "a number";
  EXPECT_EQ(words[2], 0x1000 + begins[2]);
}

TEST_F(CodeOptionsTest, WhatCannotBeIsRefused) {
  EXPECT_THAT(refusal("", {.mask = "k <= q", .args = {"window"}}),
              HasSubstr("--arg window must be NAME=VALUE"));
  EXPECT_THAT(refusal("", {.mask = "k <= q", .args = {"window=wide"}}),
              HasSubstr("must be a number, an .npy file, or `random`"));
  EXPECT_THAT(refusal("mask=\"k < q\"", {.mask = "k <= q"}),
              HasSubstr("says mask=\"k < q\" already; leave out --mask"));
  EXPECT_THAT(refusal("", {.args = {"n=3"}}), HasSubstr("there is neither"));
  EXPECT_THAT(refusal("mask=\"k < n\" args=\"int n\"", {.args = {"n=3"}}),
              HasSubstr("names it already, as a number"));
  EXPECT_THAT(refusal("", {.mask = "k <= (q"}), HasSubstr("does not close"));
  EXPECT_THAT(refusal("", {.mask = "a[q] > 0", .args = {"a=" + folder_.file("none.npy")}}),
              HasSubstr("none.npy"));
  const std::string wide = file<double>("wide.npy", "<f8", {1});
  EXPECT_THAT(refusal("", {.mask = "a[q] > 0", .args = {"a=" + wide}}), HasSubstr("<f8"));
  const std::string ints = file<int>("ints.npy", "<i4", {1});
  EXPECT_THAT(refusal("mask=\"a[0] > k\" args=\"float* a[1]\"", {.args = {"a=" + ints}}),
              HasSubstr("elements of type int, and args=\"float* a[1]\" says float* a"));
  const std::string many = file<float>("many.npy", "<f4", std::vector<float>(1000, 1.0f));
  EXPECT_THAT(refusal("mask=\"a[0] > k\" args=\"float* a[1]\"", {.args = {"a=" + many}}),
              HasSubstr("a: its file has 1000 elements, and args=\"float* a[1]\" says 1"));
  const std::string few = file<float>("few.npy", "<f4", {1, 2, 3});
  EXPECT_THAT(
      refusal("score=\"s + a[head]\" args=\"float* a[num_heads_q]\"", {.args = {"a=" + few}}),
      HasSubstr("has 3 elements, and args=\"float* a[num_heads_q]\" says 4"))
      << "a head would take what is made up";
}

}  // namespace
}  // namespace attnforge::cli
