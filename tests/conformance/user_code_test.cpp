// user_code_test.cpp - the user's texts on the GPU, each against the same in C++ on the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "attnforge/code_texts.h"
#include "generator/user_code.h"
#include "reference/compare.h"
#include "reference/sequences.h"
#include "runtime/memory.h"
#include "templates/registry.h"
#include "tests/conformance/gpu.h"
#include "tests/conformance/proof.h"

namespace attnforge {
namespace {

using namespace test;

struct CodeCase {
  const char* name;
  CodeTexts texts;
  CodeFunctions functions;
  std::vector<const char*> problems;
};
void PrintTo(const CodeCase& c, std::ostream* out) { *out << c.name; }

// Arguments of all cases: arrays and numbers by the names that the texts use.
constexpr int kReach = 5, kWindow = 40;
float slope_of(std::int64_t head) { return 0.5f / static_cast<float>(1 + head); }
float bias_of(std::int64_t head, std::int64_t at) {
  return 0.25f * static_cast<float>((head * 7 + at * 3) % 9 - 4);
}
int document_of(std::int64_t batch, std::int64_t at) {
  return static_cast<int>((at + 13 * batch) / 37);
}
int prefix_of(std::int64_t batch) { return static_cast<int>(9 + 20 * batch); }

/// A run's words, and the memory that they point to.
struct RunArguments {
  std::vector<Buffer> arrays;
  std::vector<std::uint64_t> words;

  template <class T>
  void add_array(const std::vector<T>& values) {
    arrays.push_back(Buffer::of(std::as_bytes(std::span(values))));
    words.push_back(reinterpret_cast<std::uintptr_t>(arrays.back().data()));
  }
};

/// By the names in problem.args, in their order there.
RunArguments arguments_of(const Problem& p) {
  RunArguments run;
  for (const CodeArgument& argument : code_arguments(p.args)) {
    if (argument.name == "slope") {
      std::vector<float> values;
      for (std::int64_t h = 0; h < p.num_heads_q; ++h) values.push_back(slope_of(h));
      run.add_array(values);
    } else if (argument.name == "relative_bias") {
      std::vector<float> values;
      for (std::int64_t h = 0; h < p.num_heads_q; ++h)
        for (int at = 0; at <= 2 * kReach; ++at) values.push_back(bias_of(h, at));
      run.add_array(values);
    } else if (argument.name == "prefix") {
      std::vector<int> values;
      for (std::int64_t b = 0; b < p.batch; ++b) values.push_back(prefix_of(b));
      run.add_array(values);
    } else if (argument.name == "document_q" || argument.name == "document_kv") {
      const std::int64_t length = argument.name == "document_q" ? p.seqlen_q : p.seqlen_kv;
      std::vector<int> values;
      for (std::int64_t b = 0; b < p.batch; ++b)
        for (std::int64_t i = 0; i < length; ++i) values.push_back(document_of(b, i));
      run.add_array(values);
    } else if (argument.name == "window") {
      run.words.push_back(kWindow | std::uint64_t{0xdeadbeef} << 32);  // upper half: anything
    } else if (argument.name == "factor") {
      run.words.push_back(std::bit_cast<std::uint32_t>(1.5f));
    } else {
      ADD_FAILURE() << "no argument " << argument.name;
    }
  }
  return run;
}

const std::vector<const char*> kUsual = {
    "fwd bf16 batch=2 num_heads=4:2 seqlen=300 head_dim=128 causal lse",
    "fwd fp16 batch=2 num_heads=4 seqlen=77:333 head_dim=64 lse",
    "fwd bf16 batch=2 num_heads=8:1 seqlen=5:200 head_dim=128 lse",
    "fwd fp32 batch=2 num_heads=2 seqlen=70:130 head_dim=64 lse",
    "fwd bf16 batch=3 num_heads=4 seqlen=200 head_dim=64 lengths=packed lse",
    "fwd bf16 batch=3 num_heads=2 seqlen=150:333 head_dim=72 window_left=100 lengths=used",
    "fwd fp16 batch=6 num_heads=4:2 seqlen=5:200 head_dim=64 lengths=used page_size=16 lse",
};

const std::vector<CodeCase>& cases() {
  static const std::vector<CodeCase> kCases = {
      {"Alibi",
       alibi(),
       {[](double s, const CodePair& p) { return s + slope_of(p.head) * double(p.k - p.q); }, {}},
       kUsual},
      {"RelativeBias",
       relative_bias(kReach),
       {[](double s, const CodePair& p) {
          return s + bias_of(p.head, std::clamp<std::int64_t>(p.k - p.q, -kReach, kReach) + kReach);
        },
        {}},
       kUsual},
      {"TanhCap",
       tanh_cap(2),
       {[](double s, const CodePair&) { return 2 * std::tanh(s / 2); }, {}},
       kUsual},
      {"TanhCapFarAway",
       tanh_cap(50),
       {[](double s, const CodePair&) { return 50 * std::tanh(s / 50); }, {}},
       kUsual},
      {"Documents",
       documents(),
       {{},
        [](const CodePair& p) { return document_of(p.batch, p.q) == document_of(p.batch, p.k); }},
       {kUsual.begin(), kUsual.begin() + 4}},
      {"PrefixLm",
       prefix_lm(),
       {{},
        [](const CodePair& p) {
          return p.k <= p.q + p.seqlen_kv - p.seqlen_q || p.k < prefix_of(p.batch);
        }},
       kUsual},
      {"DilatedWindow",
       dilated_window(60, 3),
       {{}, [](const CodePair& p) { return std::abs(p.k - p.q) <= 60 && (p.k - p.q) % 3 == 0; }},
       kUsual},
      {"NothingIsSeenByOddQueries",
       {.mask = "q % 2 == 0"},
       {{}, [](const CodePair& p) { return p.q % 2 == 0; }},
       kUsual},
      {"Numbers",
       {.score = "s * factor", .mask = "q - k < window", .args = "float factor, int window"},
       {[](double s, const CodePair&) { return s * 1.5; },
        [](const CodePair& p) { return p.q - p.k < kWindow; }},
       kUsual},
      {"AfterTheSoftCap",
       {.score = "s + 0.125f * float(head) * (k % 4)"},
       {[](double s, const CodePair& p) { return s + 0.125 * double(p.head * (p.k % 4)); }, {}},
       {"fwd bf16 batch=1 num_heads=4 seqlen=200 head_dim=128 softcap=3 lse causal",
        "fwd bf16 batch=1 num_heads=4 seqlen=200 head_dim=64 softcap=30"}},
  };
  return kCases;
}

class UserCodeConformance : public testing::TestWithParam<CodeCase> {};

TEST_P(UserCodeConformance, MatchesItsFunctionOnTheCpu) {
  const std::string unusable = gpu_problem();
  if (!unusable.empty()) GTEST_SKIP() << unusable;
  ScopedContext context(gpu_context());
  for (const char* text : GetParam().problems) {
    Problem problem = parse_problem(text);
    add_code(problem, GetParam().texts);
    HostProblem host = make_host_problem(problem, kConformanceSeed);
    const Reference reference = reference_attention(problem, host.tensors(),
                                                    all_rows(sequences_of(problem, host.tensors())),
                                                    GetParam().functions);
    GpuProblem gpu(host);
    const RunArguments run = arguments_of(problem);
    gpu.tensors.code_arguments = run.words.data();
    int families = 0;
    for (const Family* family : registry()) {
      for (const Compiled& compiled : compile_some(*family, problem, 3, kConformanceSeed)) {
        ++families;
        ASSERT_EQ(compiled.failure, "") << text;
        const Loaded loaded(compiled);
        HostProblem after = after_run(loaded, gpu, host);
        const Verdict verdict = compare(problem, after.tensors(), reference);
        EXPECT_TRUE(verdict.passed()) << to_string(compiled.candidate.config) << "\n"
                                      << to_string(problem) << "\n"
                                      << to_string(verdict);
        EXPECT_EQ(after.trespass(), "") << to_string(compiled.candidate.config);
      }
    }
    EXPECT_GE(families, 2) << "a product and the oracle: " << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Texts, UserCodeConformance, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace attnforge
