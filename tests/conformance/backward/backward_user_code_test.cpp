// backward_user_code_test.cpp - gradients through the user's texts on the GPU, against those of the
// same in C++ on the CPU.
#include <gtest/gtest.h>

#include <cmath>

#include "generator/tensors/operands.h"
#include "generator/user_code/code_operands.h"
#include "generator/user_code/user_code.h"
#include "reference/compare/gradients.h"
#include "reference/compare/outputs.h"
#include "tests/conformance/backward/backward_proof.h"
#include "tests/conformance/code_cases.h"
#include "tests/conformance/options.h"
#include "tests/conformance/proof.h"
#include "tests/conformance/random_texts.h"

namespace attnforge {
namespace {

using namespace test;

/// Of all families that serve it, `more` beside the first.
std::vector<Compiled> configs_that_serve(const Problem& problem, int more) {
  std::vector<Compiled> configs;
  for (const Family* family : families_of(Op::kBackward)) {
    for (Compiled& compiled : compile_some(*family, problem, more, kConformanceSeed))
      configs.push_back(std::move(compiled));
  }
  return configs;
}
std::vector<Compiled> some_configs(const Problem& problem) {
  std::vector<Compiled> configs = configs_that_serve(problem, random_configs());
  EXPECT_FALSE(configs.empty() && only_family().empty())
      << "no family serves " << to_string(problem);
  return configs;
}

class BackwardUserCode : public testing::TestWithParam<CodeCase> {};

TEST_P(BackwardUserCode, MatchesItsFunctionOnTheCpu) {
  const std::string unusable = gpu_problem();
  if (!unusable.empty()) GTEST_SKIP() << unusable;
  ScopedContext context(gpu_context());
  int served = 0, of_problem = 0;
  for (const char* text : GetParam().problems) {
    Problem problem = parse_problem(text);
    if (has_pages(problem)) continue;
    problem.op = Op::kBackward;
    problem.lse = false;
    add_code(problem, GetParam().texts);
    problem.deterministic = of_problem++ % 2 != 0;  // other sums of dQ
    const std::vector<Compiled> configs = some_configs(problem);
    if (configs.empty()) continue;
    const BackwardExpectation expected(problem, GetParam().functions);
    GpuProblem gpu(expected.host);
    const RunArguments run = arguments_of(problem);
    gpu.tensors.code_arguments = run.words.data();
    for (const Compiled& compiled : configs) {
      ++served;
      EXPECT_EQ(fault_of(compiled, expected, gpu), "")
          << to_string(problem) << "\n  " << to_string(compiled.candidate.config);
    }
  }
  if (served == 0) GTEST_SKIP() << "no backward family serves texts";
}

class Dargs : public testing::TestWithParam<DargsCase> {};

/// Problems whose gradients of arrays may be written whole, by a kernel of 16 bits.
bool may_be_whole(const Problem& p) {
  return p.lengths == Lengths::kFixed && !has_block_mask(p) && p.softcap == 0 &&
         p.dtype_q != DType::kFp32;
}
/// What a gradient begins with: zeros, or NaN where a run is to write.
std::vector<std::byte> before_runs(const Problem& p, const Darg& darg) {
  std::vector<float> values(static_cast<std::size_t>(darg.elements));
  for (CodePair at; darg.written && at.batch < p.batch; ++at.batch)
    for (at.head = 0; at.head < p.num_heads_q; ++at.head)
      for (at.q = 0; at.q < p.seqlen_q; ++at.q)
        for (at.k = 0; at.k < p.seqlen_kv; ++at.k)
          values.at(static_cast<std::size_t>(place_in_squares(at))) = NAN;
  std::vector<std::byte> bytes(static_cast<std::size_t>(bytes_of(darg.dtype, darg.elements)));
  format_of(darg.dtype).store(values.data(), darg.elements, bytes.data(), 0);
  return bytes;
}

/// Two runs add what the reference says twice, or write it; dq, dk and dv are right beside it: "",
/// or what is wrong.
std::string fault_with_dargs(const Compiled& compiled, const BackwardExpectation& expected,
                             GpuProblem& gpu, const RunArguments& run) {
  const Problem& problem = expected.host.problem;
  const std::vector<Darg> dargs = dargs_of(problem);
  std::vector<Buffer> gradients;
  std::vector<float*> addresses;
  for (const Darg& darg : dargs) {
    gradients.push_back(Buffer::of(std::span<const std::byte>(before_runs(problem, darg))));
    addresses.push_back(static_cast<float*>(gradients.back().data()));
  }
  Tensors words;
  words.code_arguments = run.words.data();
  std::vector<std::uint64_t> with_gradients;
  gpu.tensors.code_arguments = with_dargs_at(words, dargs, addresses, with_gradients)
                                   .code_arguments;
  std::string fault = fault_of(compiled, expected, gpu);
  for (std::size_t i = 0; fault.empty() && i < dargs.size(); ++i) {
    std::vector<float> actual = floats_of(dargs[i], gradients[i].to_host<std::byte>().data());
    for (float& x : actual) x /= dargs[i].written ? 1 : 2;
    const Comparison compared = compare_darg(problem, actual.data(), expected.reference.dargs[i],
                                             dargs[i].dtype);
    if (!compared.passed()) fault += dargs[i].name + ": " + to_string(compared) + "\n";
  }
  return fault;
}

TEST_P(Dargs, MatchTheReference) {
  const std::string unusable = gpu_problem();
  if (!unusable.empty()) GTEST_SKIP() << unusable;
  ScopedContext context(gpu_context());
  int served = 0;
  for (const char* text : dargs_problems()) {
    Problem problem = parse_problem(text);
    add_code(problem, GetParam().texts);
    problem.dargs = GetParam().dargs;
    if (problem.dargs.starts_with("whole") && !may_be_whole(problem)) continue;
    validate(problem);
    CodeFunctions functions = GetParam().functions;
    for (const Darg& darg : dargs_of(problem))
      functions.dargs.push_back({.elements = darg.elements});
    const std::vector<Compiled> configs = some_configs(problem);
    if (configs.empty()) continue;
    const BackwardExpectation expected(problem, functions);
    GpuProblem gpu(expected.host);
    const RunArguments run = arguments_of(problem);
    for (const Compiled& compiled : configs) {
      ++served;
      EXPECT_EQ(fault_with_dargs(compiled, expected, gpu, run), "")
          << to_string(problem) << "\n  " << to_string(compiled.candidate.config);
    }
  }
  if (served == 0) GTEST_SKIP() << "no backward family serves gradients of arrays";
}

/// A problem may have parts that no backward family serves.
TEST(RandomTexts, Backward) {
  const std::string unusable = gpu_problem();
  if (!unusable.empty()) GTEST_SKIP() << unusable;
  ScopedContext context(gpu_context());
  for_each_random_text(Op::kBackward, [](const Problem& problem, const CodeFunctions& functions,
                                         const RunArguments& run) {
    const std::vector<Compiled> configs = configs_that_serve(problem, 1);
    if (configs.empty()) return;
    const BackwardExpectation expected(problem, functions);
    GpuProblem gpu(expected.host);
    for (const Compiled& compiled : configs)
      EXPECT_EQ(fault_with_dargs(compiled, expected, gpu, run), "")
          << to_string(problem) << "\n  " << to_string(compiled.candidate.config);
  });
}

INSTANTIATE_TEST_SUITE_P(Texts, Dargs, testing::ValuesIn(dargs_cases()),
                         [](const auto& info) { return info.param.name; });

/// On the CPU: what the test above is measured by.
TEST(CodeCases, HaveTheDerivativesOfTheirScores) {
  const CodePair pair{.batch = 1, .head = 1, .q = 7, .k = 11, .seqlen_q = 20, .seqlen_kv = 30};
  for (const CodeCase& c : code_cases()) {
    const CodeFunctions& f = c.functions;
    ASSERT_EQ(f.score != nullptr, f.score_derivative != nullptr) << c.name;
    if (!f.score) continue;
    for (const double s : {-3.0, -0.5, 0.25, 2.0}) {
      const double step = 1e-4;
      EXPECT_NEAR(f.score_derivative(s, pair),
                  (f.score(s + step, pair) - f.score(s - step, pair)) / (2 * step), 1e-7)
          << c.name;
    }
  }
}

/// At the last pair of a problem, whose indexes are the largest: what fails says so.
void read_at_the_last_pair(const CodeFunctions& f, const char* text) {
  const Problem p = parse_problem(text);
  const CodePair last{.batch = p.batch - 1,
                      .head = p.num_heads_q - 1,
                      .q = p.seqlen_q - 1,
                      .k = p.seqlen_kv - 1,
                      .seqlen_q = p.seqlen_q,
                      .seqlen_kv = p.seqlen_kv};
  if (f.score) f.score(0.5, last);
  if (f.mask) f.mask(last);
  if (f.score_reads) f.score_reads(0.5, last, [](std::size_t, std::int64_t, double) {});
}
TEST(CodeCases, ReadNoElementAfterTheLast) {
  for (const CodeCase& c : code_cases())
    for (const char* text : c.problems) {
      SCOPED_TRACE(std::string(c.name) + ", " + text);
      read_at_the_last_pair(c.functions, text);
    }
  for (const DargsCase& c : dargs_cases())
    for (const char* text : dargs_problems()) {
      SCOPED_TRACE(std::string(c.name) + ", " + text);
      read_at_the_last_pair(c.functions, text);
    }
}

TEST(DargsCases, HaveTheDerivativesOfTheirScores) {
  const CodePair pair{.batch = 1, .head = 1, .q = 7, .k = 11, .seqlen_q = 20, .seqlen_kv = 30};
  for (const DargsCase& c : dargs_cases()) {
    const double s = 0.5, step = 1e-4;
    EXPECT_NEAR(
        c.functions.score_derivative(s, pair),
        (c.functions.score(s + step, pair) - c.functions.score(s - step, pair)) / (2 * step), 1e-7)
        << c.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Texts, BackwardUserCode, testing::ValuesIn(code_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace attnforge
