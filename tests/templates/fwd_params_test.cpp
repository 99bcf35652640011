// fwd_params_test.cpp - the argument of forward kernels: what comes from the problem and what from
// the tensors.
#include "templates/host/fwd_params.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "attnforge/error.h"

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
  EXPECT_EQ(p.softcap, 30.0f);
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

TEST(BindFwd, FillsPointersAndKeepsWhatFollows) {
  struct Longer {
    FwdParams fwd;
    int extra[4];
  };
  Longer planned{};
  planned.fwd = fwd_params(parse_problem("fwd fp16 batch=1 num_heads=1 seqlen=8 head_dim=64 lse"));
  planned.extra[3] = 77;
  LaunchStep step;
  step.params.resize(sizeof(planned));
  std::memcpy(step.params.data(), &planned, sizeof(planned));

  float memory[5];
  const Tensors tensors{.q = {&memory[0], 1, 2, 3},
                        .k = {&memory[1], 4, 5, 6},
                        .v = {&memory[2], 7, 8, 9},
                        .o = {&memory[3], 10, 11, 12},
                        .lse = &memory[4],
                        .lse_stride_batch = 13,
                        .lse_stride_head = 14};
  std::vector<std::byte> out(sizeof(planned));
  bind_fwd(step, tensors, nullptr, out);
  Longer bound;
  std::memcpy(&bound, out.data(), sizeof(bound));
  EXPECT_EQ(bound.extra[3], 77);
  EXPECT_EQ(bound.fwd.seqlen_q, 8);
  EXPECT_EQ(bound.fwd.q.data, &memory[0]);
  EXPECT_EQ(bound.fwd.k.data, &memory[1]);
  EXPECT_EQ(bound.fwd.v.stride_batch, 7);
  EXPECT_EQ(bound.fwd.v.stride_row, 8);
  EXPECT_EQ(bound.fwd.v.stride_head, 9);
  EXPECT_EQ(bound.fwd.o.data, &memory[3]);
  EXPECT_EQ(bound.fwd.lse, &memory[4]);
  EXPECT_EQ(bound.fwd.lse_stride_batch, 13);
  EXPECT_EQ(bound.fwd.lse_stride_head, 14);
}

TEST(BindFwd, PutsRowsOfRopesTablesBesideTheRest) {
  struct WithRope {
    FwdParams fwd;
    int extra;
    RopeParams rope;
  };
  WithRope planned{};
  planned.fwd = fwd_params(parse_problem("fwd fp16 seqlen=8:20 head_dim=64 rope=half"));
  planned.extra = 77;
  LaunchStep step;
  step.params.resize(sizeof(planned));
  std::memcpy(step.params.data(), &planned, sizeof(planned));
  const float tables[2] = {};
  Tensors tensors;
  tensors.rope_cos = &tables[0];
  tensors.rope_sin = &tables[1];
  tensors.rope_rows = 1000;
  tensors.rope_offset = 100;
  tensors.rope_query_shift = -5;
  std::vector<std::byte> out(sizeof(planned));
  bind_fwd_rope(step, tensors, nullptr, out, offsetof(WithRope, rope));
  WithRope bound;
  std::memcpy(&bound, out.data(), sizeof(bound));
  EXPECT_EQ(bound.extra, 77);
  EXPECT_EQ(bound.rope.cos, &tables[0]);
  EXPECT_EQ(bound.rope.sin, &tables[1]);
  EXPECT_EQ(bound.rope.k_offset, 100);
  EXPECT_EQ(bound.rope.q_offset, 100 + 20 - 8 - 5) << "the last query stands at the last key";
  EXPECT_THROW(bind_fwd_rope(step, tensors, nullptr, out, sizeof(planned) - 8), Error);
}

TEST(BindFwd, RefusesAStepOfAnotherKindOfArgument) {
  LaunchStep step;
  step.params.resize(8);
  std::vector<std::byte> out(8);
  EXPECT_THROW(bind_fwd(step, Tensors{}, nullptr, out), Error);
}

}  // namespace
}  // namespace attnforge
