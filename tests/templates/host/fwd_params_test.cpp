// fwd_params_test.cpp - the argument of forward kernels: what comes from the problem, and where the
// parts are that come with a run.
#include "templates/host/fwd_params.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstring>

#include "attnforge/error.h"
#include "templates/host/argument.h"
#include "templates/parts/rope/host.h"
#include "templates/parts/rope/params.h"
#include "tests/support/argument_fields.h"

namespace attnforge {
namespace {

TEST(FwdParams, SizesAndScale) {
  const FwdParams p = fwd_params(
      parse_problem("fwd bf16 batch=2 num_heads=8:4 seqlen=100:200 head_dim=64:32 softcap=30"));
  EXPECT_EQ(p.batch, 2);
  EXPECT_EQ(p.num_heads_q, 8);
  EXPECT_EQ(p.num_heads_kv, 4);
  EXPECT_EQ(p.seqlen_q, 100);
  EXPECT_EQ(p.seqlen_kv, 200);
  EXPECT_EQ(p.softmax_scale, 0.125f);
  EXPECT_EQ(p.softcap_to_x, p.softmax_scale / 30.0f);
  EXPECT_EQ(p.q.data, nullptr);
}

TEST(FwdParams, WindowsThatAreOpenOrWiderThanAnythingAreOpen) {
  const auto windows = [](const std::string& options) {
    const FwdParams p = fwd_params(
        parse_problem("fwd bf16 batch=1 num_heads=1 seqlen=8 head_dim=64 " + options));
    return std::pair(p.window_left, p.window_right);
  };
  EXPECT_EQ(windows(""), std::pair(kOpenWindow, kOpenWindow));
  EXPECT_EQ(windows("causal"), std::pair(kOpenWindow, 0));
  EXPECT_EQ(windows("causal window_left=0"), std::pair(0, 0));
  EXPECT_EQ(windows("window_left=3 window_right=5"), std::pair(3, 5));
  EXPECT_EQ(windows("window_left=1073741824"), std::pair(kOpenWindow, kOpenWindow));
}

/// Parts of all sizes and alignments, as no kernel has them.
struct Mixed {
  FwdParams fwd;
  int tiles;
  float* scratch;
  char flag;
  TensorMap map;
  int* counters;
  RopeParams rope;
};

TEST(Argument, PartsLieWhereTheCompilerPutsTheMembers) {
  const Problem problem = parse_problem("fwd fp16 seqlen=8:20 head_dim=64 rope=half");
  LaunchStep step;
  Argument argument = Argument::of<Mixed>(step);
  argument.fwd(problem)
      .value(77)
      .scratch(4096)
      .value('x')
      .tensor_map({}, {.rows = 20, .heads = 1, .batch = 1})
      .counters();
  add_rope(argument, problem).done();
  ASSERT_EQ(step.params.size(), sizeof(Mixed));
  ASSERT_EQ(step.args.size(), 5u);
  EXPECT_EQ(test::argument_fault(step), "");
  EXPECT_EQ(test::parts_of<FwdArgument>(step).at(0).first, offsetof(Mixed, fwd));
  EXPECT_EQ(test::parts_of<ScratchArgument>(step).at(0).first, offsetof(Mixed, scratch));
  EXPECT_EQ(test::planned_at<std::size_t>(step, offsetof(Mixed, scratch)), 4096u);
  EXPECT_EQ(test::parts_of<TensorMapSpec>(step).at(0).first, offsetof(Mixed, map));
  EXPECT_EQ(test::parts_of<CountersArgument>(step).at(0).first, offsetof(Mixed, counters));
  EXPECT_EQ(test::places_of(own_argument<bind_rope>(), step).at(0), offsetof(Mixed, rope));
  EXPECT_EQ(test::planned_at<TensorMapSizes>(step, offsetof(Mixed, map)).rows, 20);
  Mixed planned;
  std::memcpy(&planned, step.params.data(), sizeof(planned));
  EXPECT_EQ(planned.fwd.seqlen_kv, 20);
  EXPECT_EQ(planned.tiles, 77);
  EXPECT_EQ(planned.flag, 'x');
  EXPECT_EQ(planned.rope.q_offset, 12);
}

TEST(Argument, WithoutARopeNothingOfItIsBound) {
  struct WithRope {
    FwdParams fwd;
    RopeParams rope;
  };
  const Problem problem = parse_problem("fwd fp16 seqlen=8 head_dim=64");
  LaunchStep step;
  Argument argument = Argument::of<WithRope>(step);
  add_rope(argument.fwd(problem), problem).done();
  EXPECT_EQ(step.params.size(), sizeof(WithRope));
  EXPECT_EQ(step.args.size(), 1u);
}

TEST(Argument, OfAnotherSizeThanTheStructIsAMistake) {
  LaunchStep step;
  Argument argument = Argument::of<FwdTiledParams>(step);
  argument.fwd(parse_problem("fwd fp16 seqlen=8 head_dim=64"));
  EXPECT_THROW(argument.done(), Error);
  argument.value(TileOrder{});
  EXPECT_NO_THROW(argument.done());
  EXPECT_THROW(argument.value(1), Error);
}

}  // namespace
}  // namespace attnforge
