// The evaluator on a real GPU: right kernels pass, each kind of fault is found, times are times.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "attnforge/error.h"
#include "runtime/compile/compiler.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "templates/registry.h"
#include "tests/tuner/faulty_family.h"
#include "tuner/evaluator.h"
#include "tuner/search/stopping.h"
#include "tuner/search/tune.h"
#include "tuner/tensors/problem_tensors.h"
#include "tuner/timer.h"
#include "tuner/trials/gpu_trials.h"

namespace attnforge {
namespace {

using testing::FaultKind;
using testing::faulty_candidate;

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device_count() == 0) GTEST_SKIP() << "no GPU: " << driver_problem();
    if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
    primary = std::make_unique<PrimaryContext>(0);
    scope = std::make_unique<ScopedContext>(*primary);
    device = device_facts(0);
  }

  std::unique_ptr<Evaluator> evaluator_for(const Problem& problem) {
    return make_evaluator(problem, device, cache, make_gpu_trials(problem, device, {}), nullptr, 2);
  }

  /// Prepares and proves one candidate.
  Measurement try_out(const Problem& problem, const Candidate& candidate) {
    const auto evaluator = evaluator_for(problem);
    return try_out(*evaluator, candidate);
  }
  static Measurement try_out(Evaluator& evaluator, const Candidate& candidate) {
    Measurement result;
    evaluator.prepare(
        std::span(&candidate, 1), [] { return true; },
        [&](std::size_t, const Measurement& prepared) { result = prepared; });
    return result.status == Status::kOk ? evaluator.prove(candidate.config) : result;
  }
  Candidate naive(const Problem& problem) const {
    return candidates(*find_family("fwd_naive"), problem, device).front();
  }

  template <FaultKind kKind>
  void expect_found(Status status, const char* detail) {
    const auto evaluator = evaluator_for(small);
    const Measurement result = try_out(*evaluator, faulty_candidate<kKind>(small, device));
    EXPECT_EQ(result.status, status) << to_string(result.status) << ": " << result.detail;
    EXPECT_NE(result.detail.find(detail), std::string::npos) << result.detail;
    EXPECT_EQ(evaluator->lost(), nullptr);
    // The next candidate meets a clean GPU.
    const Measurement next = try_out(*evaluator, naive(small));
    EXPECT_EQ(next.status, Status::kOk) << next.detail;
  }

  std::unique_ptr<PrimaryContext> primary;
  std::unique_ptr<ScopedContext> scope;
  DeviceFacts device;
  Cache cache{":memory:"};
  const Problem small = parse_problem(
      "fwd bf16 batch=2 num_heads=4:2 seqlen=77:133 head_dim=64 causal lse");
};

TEST_F(GpuTest, RightKernelsPassWhateverTheProblem) {
  for (const char* text : {
           "fwd bf16 batch=2 num_heads=4:2 seqlen=77:133 head_dim=64 causal lse",
           "fwd fp16 num_heads=3 seqlen=200 head_dim=40 layout=bhsd softcap=20 lse",
           "fwd fp32 num_heads=2 seqlen=65 head_dim=72:48 lse",
           "fwd bf16 batch=2 num_heads=8:2 seqlen=100 head_dim=128 layout=packed_qkv causal",
           "fwd bf16 num_heads=2 seqlen=90:60 head_dim=64 causal lse",
           "fwd bf16 num_heads=2 seqlen=128 head_dim=64 alignment=2 window_left=17 "
           "window_right=5 lse",
           "fwd bf16 num_heads=2 seqlen=1 head_dim=64 lse",
           "fwd bf16 num_heads=2 seqlen=40:0 head_dim=64 lse",
           "fwd bf16 num_heads=2 seqlen=0:40 head_dim=64",
           "fwd bf16 num_heads=2 seqlen=90:60 head_dim=64 causal lse rope=half",
           // Large enough for sampled rows.
           "fwd bf16 batch=3 num_heads=16:4 seqlen=2048 head_dim=128 lse window_left=200 "
           "rope=interleaved rope_dim=64",
           "fwd bf16 batch=3 num_heads=16:4 seqlen=2048 head_dim=128 causal lse",
           "fwd fp16 batch=2 num_heads=8 seqlen=4096 head_dim=64 layout=bhsd window_left=300 "
           "window_right=40 lse",
           "fwd bf16 batch=300 num_heads=32:8 seqlen=1:512 head_dim=128 lse",
       }) {
    SCOPED_TRACE(text);
    const Problem problem = parse_problem(text);
    const Measurement result = try_out(problem, naive(problem));
    EXPECT_EQ(result.status, Status::kOk) << result.detail;
    EXPECT_TRUE(std::isfinite(result.max_error));
  }
}

TEST_F(GpuTest, MergesAreRightInEachConfig) {
  std::vector<std::string> texts = {
      "merge fp32 o=bf16 batch=2 num_heads=4 seqlen=5 head_dim=128 lse parts=2",
      "merge fp32 num_heads=3 seqlen=7 head_dim=64 lse parts=3",
      "merge bf16 batch=2 num_heads=2 seqlen=3 head_dim=72 parts=5 alignment=2",
      "merge fp16 batch=3 num_heads=8 head_dim=512 lse parts=9",
      "merge fp16 o=fp32 num_heads=2 seqlen=33 head_dim=8 parts=17 alignment=4",
      "merge fp32 o=fp16 num_heads=5 seqlen=2 head_dim=200 lse parts=32",
      "merge bf16 num_heads=16 seqlen=1024 head_dim=128 lse parts=1",  // sampled rows
  };
  std::mt19937 random(7);
  const auto drawn = [&](int least, int most) {
    return least + static_cast<int>(random() % static_cast<unsigned>(most - least + 1));
  };
  const char* const dtypes[] = {"fp32", "fp16", "bf16"};
  for (int i = 0; i < 20; ++i)
    texts.push_back(fmt::format(
        "merge {} o={} batch={} num_heads={} seqlen={} head_dim={} parts={} alignment={}{}",
        dtypes[drawn(0, 2)], dtypes[drawn(0, 2)], drawn(1, 9), drawn(1, 9), drawn(1, 70),
        8 * drawn(1, 64), drawn(1, 32), 4 << drawn(0, 2), i % 2 == 0 ? " lse" : ""));
  for (const std::string& text : texts) {
    const Problem problem = parse_problem(text);
    const auto all = candidates(registry(), problem, device);
    EXPECT_EQ(all.size(), 4u) << text;
    for (const Candidate& candidate : all) {
      SCOPED_TRACE(text + "\n  " + to_string(candidate.config));
      const Measurement result = try_out(problem, candidate);
      EXPECT_EQ(result.status, Status::kOk) << result.detail;
    }
  }
}

TEST_F(GpuTest, AppendsAreRightInEachConfig) {
  std::vector<std::string> texts = {
      "append bf16 batch=64 num_heads=32:8 seqlen=1:64 head_dim=128 page_size=16 rope=half queries "
      "lengths_after",
      "append fp16 batch=4 num_heads=8:2 seqlen=5:100 head_dim=128 rope=interleaved rope_dim=64 "
      "queries "
      "alignment=2",
      "append fp16 batch=9 num_heads=2 seqlen=40:300 head_dim=72:40 lengths=packed tokens=90 "
      "rope=half "
      "alignment=8 lengths_after",
      "append fp32 batch=2 num_heads=3 seqlen=2:64 head_dim=512:256 rope=half alignment=4",
      "append bf16 num_heads=8 seqlen=3000:3100 head_dim=128 page_size=128 lengths=packed "
      "lengths_after",
  };
  std::mt19937 random(7);
  const auto drawn = [&](int least, int most) {
    return least + static_cast<int>(random() % static_cast<unsigned>(most - least + 1));
  };
  const char* const dtypes[] = {"fp32", "fp16", "bf16"};
  const char* const ropes[] = {"", " rope=half queries", " rope=interleaved"};
  for (int i = 0; i < 20; ++i)
    texts.push_back(fmt::format(
        "append {} batch={} num_heads={} seqlen={}:{} head_dim={}:{} alignment={}{}{}{}",
        dtypes[drawn(0, 2)], drawn(1, 20), drawn(1, 9), drawn(1, 30), drawn(1, 90),
        8 * drawn(1, 32), 8 * drawn(1, 32), 4 << drawn(0, 2), ropes[drawn(0, 2)],
        drawn(0, 1) ? fmt::format(" page_size={}", 8 * drawn(1, 4)) : "",
        i % 2 == 0 ? " lengths_after" : ""));
  for (const std::string& text : texts) {
    const Problem problem = parse_problem(text);
    for (const Candidate& candidate : candidates(registry(), problem, device)) {
      SCOPED_TRACE(text + "\n  " + to_string(candidate.config));
      const Measurement result = try_out(problem, candidate);
      EXPECT_EQ(result.status, Status::kOk) << result.detail;
    }
  }
}

TEST_F(GpuTest, ElementPastTheEndIsFound) {
  expect_found<FaultKind::kPastEnd>(Status::kWrongResult, "before or past o");
}
TEST_F(GpuTest, ElementBeforeTheStartIsFound) {
  expect_found<FaultKind::kBeforeStart>(Status::kWrongResult, "before or past o");
}
TEST_F(GpuTest, ElementPastTheEndOfLseIsFound) {
  expect_found<FaultKind::kPastEndOfLse>(Status::kWrongResult, "before or past lse");
}
TEST_F(GpuTest, UnwrittenElementIsFound) {
  expect_found<FaultKind::kUnwritten>(Status::kWrongResult, "1 elements of o were not written");
}
TEST_F(GpuTest, UnwrittenLseIsFound) {
  expect_found<FaultKind::kUnwrittenLse>(Status::kWrongResult,
                                         "1 elements of lse were not written");
}
TEST_F(GpuTest, WrongNumberIsFound) {
  expect_found<FaultKind::kWrong>(Status::kWrongResult, "wrong in query rows");
}
TEST_F(GpuTest, WrongLseIsFound) {
  expect_found<FaultKind::kWrongLse>(Status::kWrongResult, "wrong in query rows");
}
TEST_F(GpuTest, NanIsFound) {
  expect_found<FaultKind::kNan>(Status::kWrongResult, "1 elements of o are NaN");
}
TEST_F(GpuTest, ChangedInputIsFoundAndPutRight) {
  expect_found<FaultKind::kInputChanged>(Status::kWrongResult, "of inputs were changed");
}
TEST_F(GpuTest, CounterThatIsNotPutBackIsFound) {
  expect_found<FaultKind::kSecondRun>(Status::kWrongResult, "wrong in query rows");
}
TEST_F(GpuTest, OtherBitsInASecondRunAreFound) {
  expect_found<FaultKind::kOtherBits>(Status::kWrongResult, "has other bits");
}
TEST_F(GpuTest, SyntaxErrorIsACompileError) {
  expect_found<FaultKind::kSyntax>(Status::kCompileError, "error");
}
TEST_F(GpuTest, TooMuchSharedMemoryIsALaunchError) {
  expect_found<FaultKind::kSharedMemory>(Status::kLaunchError, "");
}

// Faults that end the process's context are tried in a process of their own.
using GpuDeathTest = GpuTest;

TEST_F(GpuDeathTest, KernelWithoutEndIsGivenUp) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        {
          const auto evaluator = evaluator_for(small);
          const Measurement result = try_out(*evaluator,
                                             faulty_candidate<FaultKind::kSlow>(small, device));
          const Loss* loss = evaluator->lost();
          if (result.status != Status::kTimedOut || loss == nullptr ||
              loss->config.rfind("slow ", 0) != 0)
            std::_Exit(1);
        }
        std::_Exit(0);  // destruction did not wait for the kernel
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(GpuDeathTest, IllegalAddressIsBlamedOnItsKernel) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        const auto evaluator = evaluator_for(small);
        const Measurement result = try_out(*evaluator,
                                           faulty_candidate<FaultKind::kIllegal>(small, device));
        const Loss* loss = evaluator->lost();
        const bool right = result.status == Status::kLaunchError && loss != nullptr &&
                           loss->config.rfind("illegal ", 0) == 0;
        std::_Exit(right ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(GpuTest, InputsAreStandardNormal) {
  const Problem problem = parse_problem("fwd fp32 num_heads=8 seqlen=1024 head_dim=64");
  const Instruments instruments(device.arch);
  const Stream stream;
  ProblemTensors tensors(problem, 7, instruments, stream.get());
  stream.synchronize();
  std::vector<float> values(8 * 1024 * 64), other(values.size());
  check(
      driver().cuMemcpyDtoH(values.data(), reinterpret_cast<CUdeviceptr>(tensors.tensors().q.data),
                            values.size() * 4),
      "q");
  check(driver().cuMemcpyDtoH(other.data(), reinterpret_cast<CUdeviceptr>(tensors.tensors().k.data),
                              other.size() * 4),
        "k");
  double sum = 0, squares = 0, cubes = 0, fourths = 0, together = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double x = values[i];
    sum += x, squares += x * x, cubes += x * x * x, fourths += x * x * x * x,
        together += x * other[i];
    ASSERT_LE(std::abs(x), kLargestNormal);
  }
  const auto n = static_cast<double>(values.size());
  EXPECT_NEAR(sum / n, 0, 0.01);
  EXPECT_NEAR(squares / n, 1, 0.01);
  EXPECT_NEAR(cubes / n, 0, 0.03);
  EXPECT_NEAR(fourths / n, 3, 0.08);
  EXPECT_NEAR(together / n, 0, 0.01) << "q and k are independent";
}

TEST_F(GpuTest, TimerSeesTheTimeOfAKernelAndTheClock) {
  const Instruments instruments(device.arch);
  Timer timer(device, instruments);
  // A gate that nobody opens holds the stream for its limit, and for one look at the host's memory
  // and the step of the GPU's timer beyond.
  SharedWord closed, expired;
  const auto time_of_gate_us = [&](double limit_us) {
    const auto limit_ns = static_cast<unsigned long long>(1e3 * limit_us);
    const Timer::Samples samples = timer.sample(
        40,
        [&](std::size_t) {
          instruments.gate({closed.address(), expired.address(), limit_ns, 1}, timer.stream());
          return true;
        },
        5);
    EXPECT_FALSE(samples.timed_out);
    EXPECT_EQ(samples.time_us.size(), 40u);
    return median(samples.time_us);
  };
  // What a time holds beside the kernel (docs/MEASURING.md): it differs from GPU to GPU, but not
  // from kernel to kernel.
  const double offset_us = time_of_gate_us(0);
  RecordProperty("offset_us", std::to_string(offset_us));
  std::printf("a gate of no time is timed at %.2f us\n", offset_us);
  EXPECT_GT(offset_us, 0);
  EXPECT_LT(offset_us, 12);
  for (double limit_us : {20.0, 500.0})
    EXPECT_NEAR(time_of_gate_us(limit_us) - offset_us, limit_us, 2 + 0.02 * limit_us);
  EXPECT_GT(timer.clock_mhz(), 150);
  EXPECT_LT(timer.clock_mhz(), 1.1 * device.sm_clock_mhz);
}

TEST_F(GpuTest, CandidatesTakeTurnsWithOneWorkspaceThatGrows) {
  const Family& family = *find_family("fwd_materialized");
  const std::vector<Candidate> all = candidates(family, small, device);
  const auto workspace_bytes = [&](const Candidate& candidate) {
    return family.launch(candidate.config, small, device).workspace_bytes;
  };
  const auto [little, much] = std::minmax_element(all.begin(), all.end(),
                                                  [&](const Candidate& a, const Candidate& b) {
                                                    return workspace_bytes(a) < workspace_bytes(b);
                                                  });
  ASSERT_LT(workspace_bytes(*little), workspace_bytes(*much));
  const auto evaluator = evaluator_for(small);
  EXPECT_EQ(try_out(*evaluator, *little).status, Status::kOk);
  EXPECT_EQ(try_out(*evaluator, *much).status, Status::kOk);  // the workspace moves
  const std::vector<Config> turns = {little->config, much->config, little->config, much->config};
  for (const double time_us : evaluator->sample_us(turns, Sizes::kBucket)) EXPECT_GT(time_us, 1);
  EXPECT_EQ(evaluator->lost(), nullptr);
  EXPECT_EQ(evaluator->prove(little->config).status, Status::kOk);
}

// A quarter of the work, in the memory of the bucket, which is right as before afterwards.
TEST_F(GpuTest, SamplesOfWhatWasAskedForAreOfItsSizes) {
  for (const char* more : {"", " lengths=used page_size=16", " lengths=packed"}) {
    SCOPED_TRACE(more);
    const std::string words = std::string(" num_heads=8 head_dim=64 lse") + more;
    const Problem large = parse_problem("fwd bf16 batch=4 seqlen=1024" + words);
    const Problem asked = parse_problem("fwd bf16 batch=4 seqlen=500" + words);
    const auto evaluator = make_evaluator(
        large, device, cache, make_gpu_trials(large, device, {.asked = asked}), nullptr, 2);
    const Candidate candidate = naive(large);
    ASSERT_EQ(try_out(*evaluator, candidate).status, Status::kOk);
    const std::vector<Config> turns(9, candidate.config);
    EXPECT_LT(median(evaluator->sample_us(turns, Sizes::kAsked)),
              0.5 * median(evaluator->sample_us(turns, Sizes::kBucket)));
    EXPECT_EQ(evaluator->lost(), nullptr);
    EXPECT_EQ(evaluator->prove(candidate.config).status, Status::kOk);
  }
}

TEST_F(GpuTest, SamplesOfOneKernelAgree) {
  const auto evaluator = evaluator_for(small);
  const Candidate candidate = naive(small);
  ASSERT_EQ(try_out(*evaluator, candidate).status, Status::kOk);
  evaluator->heat(std::span(&candidate.config, 1));
  const std::vector<double> samples = evaluator->sample_us(
      std::vector<Config>(30, candidate.config), Sizes::kBucket);
  ASSERT_EQ(samples.size(), 30u);
  for (double sample : samples) EXPECT_GT(sample, 1);
  EXPECT_LT(relative_iqr(samples), 0.25);
}

TEST_F(GpuTest, TunesASmallProblemEndToEnd) {
  const std::vector<Candidate> all = candidates(*find_family("fwd_naive"), small, device);
  TuneOptions options;
  options.rigor = Rigor::kQuick;
  TuneEnvironment environment;
  environment.driver = "driver";
  environment.nvrtc = nvrtc_facts().version_text();
  TuneResult result;
  {
    const auto evaluator = evaluator_for(small);
    result = tune_problem(small, device, cache, *evaluator, all, options, environment);
  }
  EXPECT_NE(result.winner, "");
  EXPECT_GT(result.winner_us, 0);
  EXPECT_EQ(result.failed, 0);
  EXPECT_EQ(result.tried, static_cast<int>(all.size()));
  EXPECT_TRUE(result.complete);
  const Source source = all.front().family->render(parse_config(result.winner), small);
  EXPECT_TRUE(cache.get_cubin(digest(source), device.arch.name, environment.nvrtc))
      << "plans find the winner's code";

  const auto evaluator = evaluator_for(small);
  EXPECT_EQ(tune_problem(small, device, cache, *evaluator, all, options, environment).winner,
            result.winner);
}

}  // namespace
}  // namespace attnforge
