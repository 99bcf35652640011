// text_functions_test.cpp - the reference on texts of the user's, read as trees: the same as on
// functions, or on the options that they spell.
#include "plan/tools/text_functions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "attnforge/check.h"
#include "attnforge/code_texts.h"
#include "attnforge/error.h"
#include "generator/user_code/user_code.h"
#include "tests/support/error_of.h"

namespace attnforge {
namespace {

using testing::AllOf;
using testing::HasSubstr;

HostTensors solved(const Problem& problem) {
  HostTensors host = random_host_tensors(problem, 3);
  solve_on_cpu(problem, host);
  return host;
}

/// Problems whose texts say what another's words say.
TEST(TextFunctions, AreTheOptionsThatTheySpell) {
  for (const auto& [text, words] : {
           std::pair("mask=\"k <= q\"", "causal"),
           {"mask=\"q - k < 9 and (k <= q)\"", "causal window_left=8"},
           {"score=\"3 * tanhf(s / 3)\"", "softcap=3"},
           {"score=\"s * half\" args=\"float half = 0.5\" softmax_scale=0.5", "softmax_scale=0.25"},
       }) {
    const std::string sizes = "fwd bf16 batch=2 num_heads=4:2 seqlen=40 head_dim=32 lse ";
    const Problem with_text = parse_problem(sizes + text);
    const HostTensors of_text = solved(with_text), of_words = solved(parse_problem(sizes + words));
    EXPECT_EQ(of_text.o, of_words.o) << text;
    EXPECT_EQ(of_text.lse, of_words.lse) << text;
    EXPECT_TRUE(check_output(with_text, of_text).ok) << text;
  }
}

/// Positions and lengths are those of each sequence.
TEST(TextFunctions, SeeSequencesOfTheirOwnLengths) {
  for (const char* lengths : {"lengths=packed", "lengths=used", "lengths=used page_size=16"}) {
    const std::string sizes = std::string(
                                  "fwd fp16 batch=3 num_heads=2 seqlen=50:70 head_dim=32 "
                                  "lse ") +
                              lengths;
    const HostTensors of_text = solved(
        parse_problem(sizes + " mask=\"k <= q + seqlen_kv - seqlen_q\""));
    const HostTensors of_words = solved(parse_problem(sizes + " causal"));
    EXPECT_EQ(of_text.o, of_words.o) << lengths;
  }
}

TEST(TextFunctions, ReadTheArraysOfARun) {
  Problem problem = parse_problem("fwd fp32 batch=2 num_heads=4 seqlen=30 head_dim=16");
  add_code(problem, documents());
  HostTensors host = random_host_tensors(problem, 3);
  const std::vector<CodeArgument> arguments = code_arguments(problem.args);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    for (int at = 0; at < 60; ++at) {
      const int document = at % 30 / 10 + (at >= 30 ? 7 : 0);
      std::memcpy(&host.code_arrays[host.code_words[i] + static_cast<std::size_t>(at) * 4],
                  &document, 4);
    }
  }
  solve_on_cpu(problem, host);
  Problem same = problem;
  same.args.clear();
  same.mask = "q / 10 == k / 10";
  HostTensors expected = random_host_tensors(same, 3);
  solve_on_cpu(same, expected);
  EXPECT_EQ(host.o, expected.o);
}

HostTensors solved_backward(const Problem& problem) {
  HostTensors host = random_host_tensors(problem, 1), of_forward = host;
  solve_on_cpu(forward_of(problem), of_forward);
  host.o = of_forward.o;
  host.lse = of_forward.lse;
  solve_on_cpu(problem, host);
  return host;
}

TEST(TextFunctions, HaveTheGradientsOfTheOptionsThatTheySpell) {
  const std::string sizes = "bwd fp32 batch=2 num_heads=4:2 seqlen=40 head_dim=32 ";
  const Problem with_text = parse_problem(sizes + "score=\"2 * tanhf(s * 0.5f)\" mask=\"k <= q\"");
  const HostTensors of_text = solved_backward(with_text),
                    of_words = solved_backward(parse_problem(sizes + "softcap=2 causal"));
  EXPECT_EQ(of_text.dq, of_words.dq);
  EXPECT_EQ(of_text.dk, of_words.dk);
  EXPECT_EQ(of_text.dv, of_words.dv);
  EXPECT_TRUE(check_output(with_text, of_text).ok);
}

/// The gradient of what all scores are multiplied with is that of the scale; of what a head adds,
/// zero, since weights of a row sum up to 1.
TEST(TextFunctions, AddToTheGradientsOfArrays) {
  const Problem problem = parse_problem(
      "bwd fp32 batch=1 num_heads=2 seqlen=20 head_dim=16 score=\"s * factor[head] + bias[head] * "
      "1.5f\" args=\"float* factor[num_heads_q], float* bias[2]\" dargs=\"bias, factor\"");
  HostTensors host = solved_backward(problem);
  EXPECT_NEAR(host.dargs[0], 0, 1e-5);
  EXPECT_NEAR(host.dargs[1], 0, 1e-5);
  const auto floats = [](const std::vector<std::byte>& bytes) {
    std::vector<float> values(bytes.size() / 4);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  // Of the sum of q dq: what all scores of the head are scaled by.
  const std::vector<float> q = floats(host.q), dq = floats(host.dq);
  for (std::size_t head = 0; head < 2; ++head) {
    double expected = 0;
    for (std::size_t row = 0; row < 20; ++row)
      for (std::size_t d = 0; d < 16; ++d)
        expected += double{q[(row * 2 + head) * 16 + d]} * dq[(row * 2 + head) * 16 + d];
    float factor = 0;
    std::memcpy(&factor, &host.code_arrays[host.code_words[0] + head * 4], 4);
    EXPECT_NEAR(host.dargs[64 + head] * factor, expected, 1e-4 * (1 + std::abs(expected)));
  }
  EXPECT_TRUE(check_output(problem, host).ok);
  host.dargs[65] += 1;
  const CheckReport wrong = check_output(problem, host);
  EXPECT_FALSE(wrong.ok);
  EXPECT_EQ(wrong.tensor, "dfactor");
  EXPECT_EQ(wrong.worst.row, 1);
}

TEST(TextFunctions, SayWhatOnlyACompilerUnderstands) {
  Problem problem = parse_problem("fwd bf16 num_heads=2 seqlen=8 head_dim=16");
  problem.score = "s +\n  sinpif(s)";
  HostTensors host = random_host_tensors(problem, 3);
  const Error error = error_of([&] { solve_on_cpu(problem, host); });
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("score text: it calls sinpif, at line 2, column 3"),
                                  HasSubstr("fwd_naive")));
}

TEST(TextFunctions, RefuseArraysThatAreNotThere) {
  Problem problem = parse_problem("fwd bf16 num_heads=2 seqlen=8 head_dim=16");
  add_code(problem, alibi());
  for (const std::uint64_t begin :
       {std::uint64_t{256}, ~std::uint64_t{0}, std::uint64_t{1} << 40}) {
    HostTensors host = random_host_tensors(problem, 3);
    host.code_words[0] = begin;
    const Error error = error_of([&] { solve_on_cpu(problem, host); });
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << begin;
    EXPECT_THAT(error.what(), HasSubstr("code_arrays")) << begin;
  }
}

}  // namespace
}  // namespace attnforge
