// evaluator_test.cpp - compiles of candidates by a real NVRTC, for trials that only look at them.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cache/cache.h"
#include "generator/arch.h"
#include "generator/problem/bucket.h"
#include "runtime/compile/compiler.h"
#include "tuner/evaluator.h"
#include "tuner/tensors/asked_tensors.h"

namespace attnforge {
namespace {

/// Says yes to everything, and remembers whose code it was given.
class LookingTrials : public Trials {
 public:
  explicit LookingTrials(std::map<std::string, const Compiled*>& seen) : seen_(seen) {}
  bool start() override { return true; }
  bool get_ready(const OwnCode& code) override { return ready_ = !code.empty(); }
  Measurement load(const Candidate& candidate, const Compiled& compiled, double) override {
    EXPECT_TRUE(ready_) << "it would compile the tuner's own kernels again";
    seen_[to_string(candidate.config)] = &compiled;
    return {};
  }
  Measurement prove(const Config&) override { return {}; }
  std::vector<double> sample_us(std::span<const Config> order, Sizes) override {
    return std::vector<double>(order.size(), 1);
  }
  void heat(std::span<const Config>) override {}
  double clock_mhz() override { return 0; }
  void release(const Config&) override {}
  const Loss* lost() const override { return nullptr; }

 private:
  std::map<std::string, const Compiled*>& seen_;
  bool ready_ = false;
};

/// Of its two fields only `tile` is in the source. Tile 3 does not compile.
Source render_tile(const Config& config, const Problem&) {
  const std::string tile = std::to_string(config.get("tile"));
  Source source;
  source.name = "kernel";
  source.entry = source.text = "extern \"C\" __global__ void kernel(int* p) { *p = " +
                               (tile == "3" ? std::string("nothing") : tile) + "; }\n";
  return source;
}

TEST(IsSmaller, OfOtherSizesWithTensorsThatAreNoLarger) {
  for (const char* text :
       {"fwd bf16 batch=5 num_heads=24:8 seqlen=78:367 head_dim=128 causal",
        "bwd bf16 batch=1 num_heads=64:8 seqlen=1378 head_dim=128 causal",
        "fwd bf16 batch=6 num_heads=48:1 seqlen=4:5947 head_dim=128 causal lengths=used",
        "fwd bf16 batch=3 num_heads=32:8 seqlen=1:1025 head_dim=128 lengths=used page_size=16",
        ("fwd bf16 batch=25 num_heads=28:4 seqlen=3209 head_dim=128 causal lengths=packed "
         "tokens=20000")}) {
    const Problem asked = parse_problem(text), of_bucket = bucket(asked);
    ASSERT_FALSE(asked == of_bucket) << text;
    EXPECT_TRUE(is_smaller(asked, of_bucket)) << text;
    EXPECT_FALSE(is_smaller(of_bucket, asked)) << text;
  }
  const Problem invariant = parse_problem(
      "fwd bf16 batch=2 num_heads=32:8 seqlen=1:1000 head_dim=128 batch_invariant");
  EXPECT_FALSE(is_smaller(invariant, bucket(invariant))) << "its bucket is one of all batches";
  const Problem scaled = parse_problem(
      "fwd bf16 batch=4 num_heads=32:8 seqlen=1024 head_dim=128 softmax_scale=0.1 softcap=20");
  ASSERT_FALSE(scaled == bucket(scaled));
  EXPECT_FALSE(is_smaller(scaled, bucket(scaled))) << "a final would time the same twice";
}

class EvaluatorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
  }
  Candidate candidate(int tile, int blocks) const {
    return {&family, {"fake", {{"tile", tile}, {"blocks", blocks}}}};
  }

  const Family family = [] {
    Family result;
    result.name = "fake";
    result.render = render_tile;
    return result;
  }();
  const Problem problem = parse_problem("fwd bf16 seqlen=64 head_dim=64");
  const DeviceFacts& device = typical_device("90a");
  Cache cache{":memory:"};
  std::map<std::string, const Compiled*> seen;
  std::unique_ptr<Evaluator> evaluator = make_evaluator(
      problem, device, cache, std::make_unique<LookingTrials>(seen), nullptr, 2);
};

// Of 160 backward candidates on an H200, 32 had a source of their own.
TEST_F(EvaluatorTest, EqualSourcesAreCompiledOnce) {
  std::vector<Candidate> batch;
  for (const int blocks : {1, 2, 3})
    for (const int tile : {1, 2, 3}) batch.push_back(candidate(tile, blocks));
  std::map<std::size_t, Status> done;
  const auto prepare = [&] {
    evaluator->prepare(
        batch, [] { return true; },
        [&](std::size_t index, const Measurement& measurement) {
          EXPECT_TRUE(done.emplace(index, measurement.status).second);
        });
  };
  prepare();
  ASSERT_EQ(done.size(), batch.size());
  for (std::size_t i = 0; i < batch.size(); ++i)
    EXPECT_EQ(done[i], i % 3 == 2 ? Status::kCompileError : Status::kOk) << i;
  std::set<const Compiled*> codes;
  for (const auto& [config, code] : seen) codes.insert(code);
  EXPECT_EQ(seen.size(), 6u);
  EXPECT_EQ(codes.size(), 2u);

  // Nor again later, when those that had it are gone.
  const std::map<std::string, const Compiled*> before = std::exchange(seen, {});
  for (const Candidate& each : batch) evaluator->release(each.config);
  done.clear();
  prepare();
  EXPECT_EQ(done.size(), batch.size());
  EXPECT_EQ(seen, before);
}

TEST_F(EvaluatorTest, CallerIsAskedBetweenCandidatesOfOneSource) {
  const std::vector<Candidate> batch = {candidate(1, 1), candidate(1, 2), candidate(1, 3)};
  int done = 0;
  evaluator->prepare(
      batch, [&] { return done == 0; }, [&](std::size_t, const Measurement&) { ++done; });
  EXPECT_EQ(done, 1);
}

}  // namespace
}  // namespace attnforge
