// plan_run_test.cpp - runs of plans on a fake driver: what they launch, which tensors they refuse,
// and that they neither allocate nor change the thread's context.
#include "attnforge/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <thread>

#include "count_allocations.h"
#include "tests/plan/plan_fixture.h"

namespace attnforge {
namespace {

using namespace test;
using ::testing::HasSubstr;

/// What a run says of these tensors with a change that it must refuse.
template <class Change>
std::string refusal(const Plan& plan, Tensors tensors, const Change& change) {
  change(tensors);
  const Error error = error_of([&] { plan.run(tensors); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  return error.what();
}

TEST_F(PlanTest, RunBindsTheTensorsAndUsesTheStream) {
  Device device = open();
  const Plan plan = make_plan(kProblem, device);
  const Tensors tensors = tensors_of(kProblem);
  const auto stream = reinterpret_cast<CUstream>(std::uintptr_t{0x77});
  plan.run(tensors, nullptr, stream);
  EXPECT_EQ(fake_cuda().launches(), 1);
  EXPECT_EQ(fake_cuda().last_argument(), tensors.q.data);
  EXPECT_EQ(fake_cuda().last_stream(), stream);
}

TEST_F(PlanTest, RunAllocatesNothing) {
  Device device = open();
  const Plan plan = make_plan(kProblem, device);
  const Tensors tensors = tensors_of(kProblem);
  plan.run(tensors);  // the fake driver's context stack grows here
  const long before = allocations();
  for (int i = 0; i < 100; ++i) plan.run(tensors);
  EXPECT_EQ(allocations(), before);
  EXPECT_EQ(fake_cuda().launches(), 101);
}

TEST_F(PlanTest, RunLeavesTheThreadsContextAsItWas) {
  Device device = open();
  const Plan plan = make_plan(kProblem, device);
  const Tensors tensors = tensors_of(kProblem);
  std::thread([&] {
    CUcontext current = nullptr;
    plan.run(tensors);
    const CUcontext planned = fake_cuda().last_context();
    driver().cuCtxGetCurrent(&current);
    EXPECT_EQ(current, nullptr);

    driver().cuCtxPushCurrent(fake_cuda().other_context());
    plan.run(tensors);
    EXPECT_EQ(fake_cuda().last_context(), planned)
        << "a plan runs in the context that it was loaded in";
    driver().cuCtxGetCurrent(&current);
    EXPECT_EQ(current, fake_cuda().other_context());
    driver().cuCtxPopCurrent(&current);
  }).join();
}

TEST_F(PlanTest, EmptyProblemsLoadAndLaunchNothing) {
  Device device = open();
  for (const char* sizes : {"batch=0 seqlen=64", "batch=2 seqlen=0:64", "batch=0 seqlen=0"}) {
    const Problem empty = parse_problem(std::string("fwd bf16 head_dim=64 ") + sizes);
    for (const Policy policy : {Policy::kEstimate, Policy::kFirstRun, Policy::kCachedOnly}) {
      const Plan plan = make_plan(empty, device, with(policy));
      EXPECT_NO_THROW(plan.run({})) << "null pointers are fine where nothing is read or written";
    }
  }
  EXPECT_EQ(fake_cuda().loads(), 0);
  EXPECT_EQ(fake_cuda().launches(), 0);
}

TEST_F(PlanTest, NoKeysStillLaunchesTheKernelThatFillsTheOutput) {
  Device device = open();
  const Problem no_keys = parse_problem("fwd bf16 seqlen=64:0 head_dim=64 lse");
  const Plan plan = make_plan(no_keys, device);
  Tensors tensors = tensors_of(no_keys);
  tensors.k.data = tensors.v.data = nullptr;
  tensors.lse.data = reinterpret_cast<float*>(std::uintptr_t{0x50000});
  plan.run(tensors);
  EXPECT_EQ(fake_cuda().launches(), 1);
}

TEST_F(PlanTest, WrongTensorsAreNamedAndNothingIsLaunched) {
  Device device = open();
  Problem problem = kProblem;
  problem.lse = true;
  problem.batch = 2;
  const Plan plan = make_plan(problem, device);
  Tensors good = tensors_of(problem);
  good.lse.data = reinterpret_cast<float*>(std::uintptr_t{0x50000});
  const auto refused = [&](auto change) { return refusal(plan, good, change); };
  EXPECT_THAT(refused([](Tensors& t) { t.v.data = nullptr; }), HasSubstr("tensor v is null"));
  EXPECT_THAT(
      refused([](Tensors& t) { t.q.data = reinterpret_cast<void*>(std::uintptr_t{0x10002}); }),
      HasSubstr("tensor q"));
  EXPECT_THAT(refused([](Tensors& t) { t.k.stride_row += 1; }), HasSubstr("stride_row"));
  EXPECT_THAT(
      refused([](Tensors& t) { t.k.stride_row = std::numeric_limits<std::int64_t>::max(); }),
      HasSubstr("stride_row=9223372036854775807"));
  EXPECT_THAT(refused([](Tensors& t) { t.o.stride_batch += 4; }),
              HasSubstr("tensor o has stride_batch"));
  EXPECT_THAT(refused([](Tensors& t) { t.lse.data = nullptr; }), HasSubstr("lse is null"));
  EXPECT_EQ(fake_cuda().launches(), 0);
  EXPECT_NO_THROW(plan.run(good));
}

TEST_F(PlanTest, SinksMustBeThereAndAligned) {
  Device device = open();
  const Problem problem = parse_problem("fwd bf16 num_heads=4 seqlen=100 head_dim=64 sinks");
  const Plan plan = make_plan(problem, device);
  const auto run_with = [&](std::uintptr_t address) {
    Tensors tensors = tensors_of(problem);
    tensors.sinks = reinterpret_cast<const float*>(address);
    plan.run(tensors);
  };
  EXPECT_THAT(error_of([&] { run_with(0); }).what(),
              HasSubstr("sinks is null, but the problem says sinks; give it the logits of 4"));
  EXPECT_THAT(error_of([&] { run_with(0x60002); }).what(), HasSubstr("sinks starts at 0x60002"));
  EXPECT_EQ(fake_cuda().launches(), 0);
  EXPECT_NO_THROW(run_with(0x60004));
}

TEST_F(PlanTest, ABackwardRunHasLseAndGradientsOfTheRightAlignment) {
  Device device = open();
  const Problem problem = parse_problem(
      "bwd bf16 num_heads=4:2 seqlen=100:70 head_dim=64 dlse gradients=fp32");
  const Plan plan = make_plan(problem, device, with_family("bwd_naive"));
  const auto at = [](std::uintptr_t address) { return reinterpret_cast<void*>(address); };
  Tensors good = tensors_of(problem);
  good.lse.data = static_cast<float*>(at(0x60004));
  good.gradients.dout.data = at(0x70000);
  good.gradients.dq.data = at(0x80000);
  good.gradients.dk.data = at(0x90000);
  good.gradients.dv.data = at(0xa0000);
  good.gradients.dlse.data = static_cast<float*>(at(0xb0004));
  const auto refused = [&](auto change) { return refusal(plan, good, change); };
  EXPECT_THAT(refused([](Tensors& t) { t.lse.data = nullptr; }),
              HasSubstr("lse is null, but a bwd reads it"));
  EXPECT_THAT(refused([](Tensors& t) { t.gradients.dlse.data = nullptr; }),
              HasSubstr("dlse is null, but a bwd with the word dlse reads it"));
  EXPECT_THAT(refused([](Tensors& t) { t.gradients.dout.data = nullptr; }),
              HasSubstr("tensor dout is null"));
  EXPECT_THAT(refused([&](Tensors& t) { t.gradients.dk.data = at(0x90008); }),
              HasSubstr("tensor dk starts at 0x90008, which is not a multiple of 16 bytes"));
  EXPECT_THAT(refused([](Tensors& t) { t.gradients.dv.stride_row += 2; }),
              HasSubstr("tensor dv has stride_row=130 elements of 32 bits"));
  EXPECT_EQ(fake_cuda().launches(), 0);
  EXPECT_NO_THROW(plan.run(good));
  EXPECT_EQ(fake_cuda().launches(), 1);
}

TEST_F(PlanTest, TablesOfARopeMustBeThereAndReachTheLastPosition) {
  Device device = open();
  const Problem problem = parse_problem("fwd bf16 seqlen=100:70 head_dim=64 rope=half");
  const Plan plan = make_plan(problem, device);
  void* const workspace = reinterpret_cast<void*>(std::uintptr_t{0x100000});  // rotated q and k
  Tensors good = tensors_of(problem);
  good.rope.cos = reinterpret_cast<const float*>(std::uintptr_t{0x60000});
  good.rope.sin = reinterpret_cast<const float*>(std::uintptr_t{0x70000});
  good.rope.rows = 110;
  good.rope.offset = 40;
  const auto refused = [&](auto change) {
    Tensors tensors = good;
    change(tensors);
    const Error error = error_of([&] { plan.run(tensors, workspace); });
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return std::string(error.what());
  };
  EXPECT_THAT(refused([](Tensors& t) { t.rope.cos = nullptr; }),
              AllOf(HasSubstr("rope_cos is null"), HasSubstr("[rows, 32]")));
  EXPECT_THAT(refused([](Tensors& t) { t.rope.sin = nullptr; }), HasSubstr("rope_sin is null"));
  EXPECT_THAT(refused([](Tensors& t) { t.rope.sin += 2; }),
              AllOf(HasSubstr("rope_sin starts at"), HasSubstr("multiple of 16")));
  EXPECT_THAT(refused([](Tensors& t) { t.rope.rows = 109; }),
              AllOf(HasSubstr("rope_rows=109"), HasSubstr("rows 10 to 109")));
  EXPECT_THAT(refused([](Tensors& t) { t.rope.offset = 29; }),
              AllOf(HasSubstr("rope_offset=29"), HasSubstr("at least 30")));
  for (const std::int64_t offset :
       {std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min(),
        std::int64_t{1} << 62, (std::int64_t{1} << 30) - 69}) {
    EXPECT_THAT(refused([&](Tensors& t) { t.rope.offset = offset; }),
                AllOf(HasSubstr("rope_offset=" + std::to_string(offset)), HasSubstr("at least 30"),
                      HasSubstr("at most 1073741754")));
  }
  EXPECT_THAT(refused([](Tensors& t) { t.rope.rows = std::numeric_limits<std::int64_t>::min(); }),
              HasSubstr("is too few"));
  EXPECT_EQ(fake_cuda().launches(), 0);
  EXPECT_NO_THROW(plan.run(good, workspace));
  good.rope.offset = 30;
  EXPECT_NO_THROW(plan.run(good, workspace));
}

TEST_F(PlanTest, ListsOfABlockMaskMustBeThereAndAligned) {
  Device device = open();
  const Problem problem = parse_problem(
      "fwd bf16 num_heads=2 seqlen=100 head_dim=64 blocks=64 mask_heads=2 mask_bits");
  const Plan plan = make_plan(problem, device, {.family = "fwd_naive"});
  Tensors good = tensors_of(problem);
  good.block_mask = {.row_begin = reinterpret_cast<const int*>(std::uintptr_t{0x60004}),
                     .columns = reinterpret_cast<const int*>(std::uintptr_t{0x70004}),
                     .bits = reinterpret_cast<const std::uint32_t*>(std::uintptr_t{0x80010}),
                     .bit_blocks = reinterpret_cast<const int*>(std::uintptr_t{0x90004})};
  const auto refused = [&](auto change) {
    Tensors tensors = good;
    change(tensors.block_mask);
    const Error error = error_of([&] { plan.run(tensors); });
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return std::string(error.what());
  };
  EXPECT_THAT(
      refused([](BlockMaskRef& m) { m.row_begin = nullptr; }),
      AllOf(HasSubstr("block_mask.row_begin is null"), HasSubstr("blocks=64:64 mask_bits")));
  EXPECT_THAT(refused([](BlockMaskRef& m) { m.columns = nullptr; }), HasSubstr("columns is null"));
  EXPECT_THAT(refused([](BlockMaskRef& m) { m.bits = nullptr; }), HasSubstr("bits is null"));
  EXPECT_THAT(refused([](BlockMaskRef& m) { m.bit_blocks = nullptr; }), HasSubstr("bit_blocks is"));
  EXPECT_THAT(refused([](BlockMaskRef& m) { ++m.bits; }),
              AllOf(HasSubstr("bits starts at"), HasSubstr("multiple of 16 bytes")));
  EXPECT_EQ(fake_cuda().launches(), 0);
  EXPECT_NO_THROW(plan.run(good));
  const Problem without_bits = parse_problem("fwd bf16 seqlen=100 head_dim=64 blocks=64");
  Tensors rows = tensors_of(without_bits);
  rows.block_mask = {.row_begin = good.block_mask.row_begin, .columns = good.block_mask.columns};
  EXPECT_NO_THROW(make_plan(without_bits, device, {.family = "fwd_naive"}).run(rows));
}

TEST_F(PlanTest, StridesOfDimensionsOfOneElementAreNotLookedAt) {
  Device device = open();
  const Problem one = parse_problem("fwd fp16 batch=1 seqlen=64 head_dim=64");
  Tensors tensors = tensors_of(one);
  tensors.q.stride_batch = 3;  // frameworks leave anything there
  tensors.q.stride_head = 1;
  EXPECT_NO_THROW(make_plan(one, device).run(tensors));
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST_F(PlanTest, AProblemThatIsSlowForItsTensorsIsToldSoOnce) {
  Problem slow = parse_problem("fwd bf16 q=fp32 o=fp32 num_heads=16 seqlen=2048 head_dim=64");
  {
    Device device = open();
    make_plan(slow, device);
    slow.seqlen_q = slow.seqlen_kv = 2047;  // of the same bucket
    make_plan(slow, device);
    EXPECT_EQ(count(logged(), "times slower than"), 1) << logged();
    EXPECT_EQ(count(logged(), "make q, k, v and o all bf16"), 1);
  }
  Device device = open();
  make_plan(slow, device, with_family("fwd_naive"));
  EXPECT_EQ(count(logged(), "times slower than"), 1) << "who forces a family knows";
}

}  // namespace
}  // namespace attnforge
