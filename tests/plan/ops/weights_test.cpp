// weights_test.cpp - attention_weights() and key_mass() on the fake driver: what is launched, and
// what is refused before anything is.
#include "attnforge/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "plan/context_scope.h"
#include "tests/plan/plan_fixture.h"
#include "tests/support/captured_graph.h"

namespace attnforge {
namespace {

using test::fake_cuda;
using ::testing::HasSubstr;

class WeightsTest : public test::PlanTest {};

template <class Value>
Value* at(std::uintptr_t address) {
  return reinterpret_cast<Value*>(address);
}

/// The fake driver never follows the addresses.
Tensors tensors_of(const Problem& problem) {
  Tensors tensors = contiguous_tensors(problem);
  tensors.q.data = at<void>(0x10000);
  tensors.k.data = at<void>(0x20000);
  tensors.lse.data = at<float>(0x30000);
  return tensors;
}

const Tensor kWeights{at<void>(0x40000), 1 << 20, 512, 1 << 16};
const Rows kMass{at<float>(0x50000), 1 << 12, 1 << 9};
const Problem kProblem = parse_problem(
    "fwd bf16 batch=2 num_heads=4:2 seqlen=300 head_dim=64 causal softcap=30");

TEST_F(WeightsTest, LaunchABlockForEachTileAndLoadEachKernelOnce) {
  Device device = open();
  const Tensors tensors = tensors_of(kProblem);
  attention_weights(kProblem, tensors, {.count = 65}, kWeights, device);
  EXPECT_EQ(fake_cuda().last_grid_x(), 2u * 4 * 2 * 5) << "tiles of 64 rows and 64 keys";
  attention_weights(kProblem, tensors, {at<int>(0x60000), 1}, kWeights, device);
  EXPECT_EQ(fake_cuda().last_grid_x(), 2u * 4 * 5);
  EXPECT_EQ(fake_cuda().loads(), 1);
  for (int i = 0; i < 2; ++i) key_mass(kProblem, tensors, kMass, device);
  EXPECT_EQ(fake_cuda().last_grid_x(), 2u * 4 * 5);
  EXPECT_EQ(fake_cuda().loads(), 2);
  Problem windowed = kProblem;  // of another size and mask, with the output of another run
  windowed.causal = false;
  windowed.window_left = 9;
  windowed.sinks = windowed.lse = true;
  windowed.head_dim_v = 128;
  windowed.seqlen_q = 299;
  Tensors with_sinks = tensors_of(windowed);
  key_mass(windowed, with_sinks, kMass, device);
  EXPECT_EQ(fake_cuda().launches(), 5);
}

TEST_F(WeightsTest, WithoutKeysOrRowsDoNothing) {
  Device device = open();
  Problem none = kProblem;
  none.seqlen_kv = 0;
  attention_weights(none, {}, {.count = 1}, {}, device);
  key_mass(none, {}, {}, device);
  attention_weights(kProblem, {}, {}, {}, device);
  none = kProblem;
  none.batch = 0;
  key_mass(none, {}, {}, device);
  EXPECT_EQ(fake_cuda().launches(), 0);
  none = kProblem;
  none.seqlen_q = 0;  // nobody gives a key anything
  key_mass(none, {.q = {}, .k = tensors_of(kProblem).k}, kMass, device);
  EXPECT_EQ(fake_cuda().launches(), 1);
}

TEST_F(WeightsTest, SayWhatIsWrongBeforeALaunch) {
  Device device = open();
  const auto refused = [&](const Problem& problem, const Tensors& tensors, const Rows& mass) {
    return std::string(error_of([&] { key_mass(problem, tensors, mass, device); }).what());
  };
  const auto of = [](const char* words) { return parse_problem(words); };
  const Tensors good = tensors_of(kProblem);
  EXPECT_THAT(refused(of("bwd bf16 seqlen=8"), good, kMass), HasSubstr("not of bwd"));
  EXPECT_THAT(refused(of("fwd q=bf16 o=bf16 k=int8 v=int8 kv_scale=token seqlen=8"), good, kMass),
              HasSubstr("q is bf16 and k is int8"));
  EXPECT_THAT(refused(of("fwd e4m3 seqlen=8"), good, kMass), HasSubstr("not e4m3"));
  EXPECT_THAT(refused(of("fwd bf16 seqlen=8 rope=half"), good, kMass),
              HasSubstr("rotate both first"));
  Tensors no_lse = good, no_k = good;
  no_lse.lse.data = nullptr;
  no_k.k.data = nullptr;
  EXPECT_THAT(refused(kProblem, no_lse, kMass), HasSubstr("lse is null"));
  EXPECT_THAT(refused(kProblem, no_k, kMass), HasSubstr("tensor k is null"));
  EXPECT_THAT(refused(kProblem, good, {}), HasSubstr("mass is null"));
  EXPECT_THAT(refused(of("fwd bf16 batch=2 num_heads=4:2 seqlen=300 lengths=packed"),
                      tensors_of(kProblem), kMass),
              HasSubstr("lengths"));
  EXPECT_THAT(
      error_of([&] { attention_weights(kProblem, good, {.count = -1}, kWeights, device); }).what(),
      HasSubstr("-1 rows"));
  EXPECT_THAT(error_of([&] {
                attention_weights(kProblem, good, {.count = std::int64_t{1} << 40}, kWeights,
                                  device);
              }).what(),
              HasSubstr("more thread blocks than a grid can have"));
  EXPECT_EQ(fake_cuda().launches(), 0);
}

TEST_F(WeightsTest, AreCapturedAfterAFirstCallAndNotReadyBefore) {
  Device device = open();
  const Tensors tensors = tensors_of(kProblem);
  EXPECT_EQ(error_of([&] { key_mass(kProblem, tensors, kMass, device, nullptr, false); }).code(),
            ErrorCode::kNotReady);
  key_mass(kProblem, tensors, kMass, device);
  const ContextScope scope(state_of(device).context);
  const Stream stream;
  const Graph graph(stream, [&](CUstream captured) {
    key_mass(kProblem, tensors, kMass, device, captured, false);
  });
  Device later = open();
  key_mass(kProblem, tensors, kMass, later, nullptr, false);  // from the database
  EXPECT_EQ(fake_cuda().launches(), 3);
}

}  // namespace
}  // namespace attnforge
