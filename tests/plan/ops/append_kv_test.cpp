// append_kv_test.cpp - append_kv() on the fake driver: what is launched, and what is refused before
// anything is.
#include "attnforge/append_kv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plan/context_scope.h"
#include "runtime/memory.h"
#include "templates/ops/append_kv/work.h"
#include "tests/plan/plan_fixture.h"
#include "tests/support/captured_graph.h"
#include "tests/support/environment.h"

namespace attnforge {
namespace {

using test::fake_cuda;
using ::testing::AllOf;
using ::testing::HasSubstr;

class AppendKvTest : public test::PlanTest {};

constexpr AppendSizes kSizes{.batch = 64,
                             .seqlen_kv = 4096,
                             .page_size = 16,
                             .num_heads_kv = 8,
                             .head_dim = 128,
                             .head_dim_v = 128};

template <class Value>
Value* at(std::uintptr_t address) {
  return reinterpret_cast<Value*>(address);
}

/// Contiguous; the fake driver never follows the addresses.
AppendTensors tensors_at(std::uintptr_t address) {
  return {.k = {at<void>(address), 1024, 1024, 128},
          .v = {at<void>(address + 0x40000), 1024, 1024, 128},
          .k_cache = {at<void>(address + 0x80000), 16 * 1024, 1024, 128},
          .v_cache = {at<void>(address + 0xc0000), 16 * 1024, 1024, 128},
          .pages = {at<int>(0x4000), 256, 20000},
          .used_kv = at<int>(0x8000)};
}

TEST_F(AppendKvTest, LaunchesOneKernelThatIsLoadedOnce) {
  Device device = open();
  AppendTensors tensors = tensors_at(0x100000);
  for (int i = 0; i < 3; ++i) append_kv(kSizes, tensors, device);
  EXPECT_EQ(fake_cuda().loads(), 1);
  EXPECT_EQ(fake_cuda().launches(), 3);
  EXPECT_EQ(fake_cuda().last_grid_x(), 64u) << "64 tokens of 256 vectors, one a thread";
  tensors.used_kv_after = at<int>(0x8000);
  AppendSizes longer = kSizes;
  longer.seqlen_new = 17;
  longer.page_size = 0;
  append_kv(longer, tensors, device);
  EXPECT_EQ(fake_cuda().loads(), 2) << "its blocks are counted";
  longer.seqlen_new = 100;
  longer.page_size = 64;
  longer.batch = 3;
  append_kv(longer, tensors, device);
  EXPECT_EQ(fake_cuda().loads(), 2) << "sizes and pages are not in its code";
  tensors.k_cache.stride_row = 1028;
  append_kv(longer, tensors, device);
  EXPECT_EQ(fake_cuda().loads(), 3) << "rows on multiples of 8 bytes";
}

TEST_F(AppendKvTest, CountersAreThoseOfTheStreamWhereTheLastBlockWritesLengths) {
  Device device = open();
  AppendTensors tensors = tensors_at(0x100000);
  AppendSizes sizes = kSizes;
  fake_cuda().watch(sizeof(AppendArgument));
  const auto counts = [&] {
    append_kv(sizes, tensors, device);
    return fake_cuda().last_argument() != nullptr;
  };
  EXPECT_FALSE(counts()) << "no lengths";
  tensors.used_kv_after = at<int>(0x8000);  // where they are read
  EXPECT_FALSE(counts()) << "a block has all of a sequence";
  sizes.seqlen_new = 17;
  EXPECT_TRUE(counts());
  sizes.seqlen_new = 1;
  tensors.used_kv_after = at<int>(0x9000);
  EXPECT_FALSE(counts()) << "nobody reads these";
  tensors.cu_seqlens = at<int>(0xa000);
  sizes.tokens = 64;
  EXPECT_TRUE(counts()) << "a sequence may have no rows";
}

TEST_F(AppendKvTest, IsCapturedWithoutARunOnceItIsPrepared) {
  Device device = open();
  AppendTensors tensors = tensors_at(0x100000);
  tensors.used_kv_after = at<int>(0x9000);
  AppendSizes sizes = kSizes;
  sizes.seqlen_new = 17;
  EXPECT_EQ(error_of([&] { prepare_append_kv(sizes, tensors, device, false); }).code(),
            ErrorCode::kNotReady);
  prepare_append_kv(sizes, tensors, device);
  EXPECT_EQ(fake_cuda().loads(), 1);
  EXPECT_EQ(fake_cuda().launches(), 0);
  const ContextScope scope(state_of(device).context);
  const Stream stream;
  const Graph graph(stream, [&](CUstream captured) {
    append_kv(sizes, tensors, device, captured, /*allow_compile=*/false);
  });
  EXPECT_EQ(fake_cuda().loads(), 1) << "it was loaded before";
  EXPECT_EQ(fake_cuda().launches(), 1);
}

TEST_F(AppendKvTest, WithoutRowsOnlyLengthsAreWritten) {
  Device device = open();
  AppendTensors tensors = tensors_at(0x100000);
  AppendSizes none = kSizes;
  none.seqlen_new = 0;
  append_kv(none, tensors, device);
  EXPECT_EQ(fake_cuda().launches(), 0);
  tensors = {.pages = tensors.pages, .used_kv = at<int>(0x8000), .used_kv_after = at<int>(0x9000)};
  append_kv(none, tensors, device);
  EXPECT_EQ(fake_cuda().launches(), 1);
  EXPECT_EQ(fake_cuda().last_grid_x(), 1u);
  AppendSizes nowhere = kSizes;
  nowhere.seqlen_kv = 0;
  append_kv(nowhere, tensors, device);
  EXPECT_EQ(fake_cuda().launches(), 2);
  EXPECT_EQ(fake_cuda().last_grid_x(), 1u) << "rows that have nowhere to go are not even read";
  none.batch = 0;
  append_kv(none, {}, device);
  EXPECT_EQ(fake_cuda().launches(), 2);
}

TEST_F(AppendKvTest, SaysWhatIsWrongBeforeALaunch) {
  Device device = open();
  const auto refused = [&](auto&& change) {
    AppendSizes sizes = kSizes;
    AppendTensors tensors = tensors_at(0x100000);
    change(sizes, tensors);
    const Error error = error_of([&] { append_kv(sizes, tensors, device); });
    EXPECT_TRUE(error.code() == ErrorCode::kInvalidArgument ||
                error.code() == ErrorCode::kInvalidProblem);
    return std::string(error.what());
  };
  using S = AppendSizes&;
  using T = AppendTensors&;
  EXPECT_THAT(refused([](S s, T) { s.head_dim = 60; }), HasSubstr("head_dim=60"));
  EXPECT_THAT(refused([](S s, T) { s.head_dim_v = 520; }), HasSubstr("head_dim_v=520"));
  EXPECT_THAT(refused([](S s, T) { s.page_size = 12; }), HasSubstr("page_size=12"));
  EXPECT_THAT(refused([](S s, T) { s.batch = -1; }), HasSubstr("batch=-1"));
  EXPECT_THAT(refused([](S s, T) { s.seqlen_kv = -2; }), HasSubstr("seqlen_kv=-2"));
  EXPECT_THAT(refused([](S s, T) { s.batch = s.seqlen_new = 1 << 20; }), HasSubstr("rows"));
  EXPECT_THAT(refused([](S s, T) { s.num_heads_q = 8; }), HasSubstr("queries needs rope"));
  EXPECT_THAT(refused([](S s, T) { s.rope_dim = 8; }), HasSubstr("rope_dim=8"));
  EXPECT_THAT(refused([](S, T t) { t.k.data = nullptr; }), HasSubstr("tensor k is null"));
  EXPECT_THAT(refused([](S, T t) { t.v_cache.data = nullptr; }), HasSubstr("v_cache is null"));
  EXPECT_THAT(refused([](S, T t) { t.v.data = at<void>(0x1001); }),
              HasSubstr("multiple of 2 bytes"));
  EXPECT_THAT(refused([](S, T t) { t.used_kv = at<int>(0x8002); }), HasSubstr("lengths.kv starts"));
  EXPECT_THAT(refused([](S, T t) { t.used_kv_after = at<int>(0x8004); }), HasSubstr("overlaps"));
  EXPECT_THAT(refused([](S, T t) { t.pages.table = nullptr; }), HasSubstr("pages.table is null"));
  EXPECT_THAT(refused([](S, T t) { t.pages.num_pages = -1; }), HasSubstr("num_pages=-1"));

  const auto with_rope = [](S s, T t) {
    s.rope = Rope::kHalf;
    t.rope = {at<float>(0x200000), at<float>(0x300000), 5000, 0};
  };
  EXPECT_THAT(refused([&](S s, T t) { with_rope(s, t), s.rope_dim = 136; }),
              HasSubstr("rope_dim=136 must be at most head_dim=128"));
  EXPECT_THAT(refused([&](S s, T t) { with_rope(s, t), t.rope.sin = nullptr; }),
              HasSubstr("rope_sin is null"));
  EXPECT_THAT(refused([&](S s, T t) { with_rope(s, t), t.rope.offset = 905; }),
              AllOf(HasSubstr("rope_rows=5000"), HasSubstr("to 5000 of")));
  EXPECT_THAT(refused([&](S s, T t) { with_rope(s, t), s.num_heads_q = 32, t.q = t.k; }),
              HasSubstr("rotated queries go, is null"));
  EXPECT_EQ(fake_cuda().launches(), 0);
}

TEST_F(AppendKvTest, IsNotReadyWhereCompilingIsForbidden) {
  Device device = open();
  const AppendTensors tensors = tensors_at(0x100000);
  EXPECT_EQ(error_of([&] { append_kv(kSizes, tensors, device, nullptr, false); }).code(),
            ErrorCode::kNotReady);
  append_kv(kSizes, tensors, device);
  Device later = open();
  append_kv(kSizes, tensors, later, nullptr, false);  // from the database
  EXPECT_EQ(fake_cuda().launches(), 2);
}

TEST_F(AppendKvTest, APlanLetsAnAppendBeCapturedWithoutAFirstRun) {
  Device device = open();
  // Of other sizes: their kernel is one.
  make_plan(parse_problem("append num_heads=2 seqlen=1:64 head_dim=128 lengths_after"), device);
  make_plan(parse_problem("append num_heads=2 seqlen=5:64 head_dim=128 lengths_after"), device);
  const int loads = fake_cuda().loads();
  const ContextScope context(state_of(device).context);
  const Stream stream;
  AppendTensors tensors = tensors_at(0x100000);
  tensors.used_kv_after = at<int>(0x8000);
  AppendSizes more = kSizes;
  more.seqlen_new = 2;
  const Graph graph(stream, [&](CUstream captured) {
    append_kv(kSizes, tensors, device, captured, false);
    append_kv(more, tensors, device, captured, false);
  });
  EXPECT_EQ(fake_cuda().loads(), loads);
  EXPECT_EQ(fake_cuda().launches(), 2);
}

TEST_F(AppendKvTest, HeadsOfQAndHeadsOfKAreAnyNumbers) {
  Device device = open();
  AppendTensors tensors = tensors_at(0x100000);
  tensors.q = tensors.rotated_q = {at<void>(0x200000), 640, 640, 128};
  tensors.rope = {at<float>(0x300000), at<float>(0x380000), 4096, 0};
  AppendSizes sizes = kSizes;
  sizes.rope = Rope::kHalf;
  for (const int heads : {5, 3, 9}) {
    sizes.num_heads_q = heads;
    append_kv(sizes, tensors, device);
  }
  EXPECT_EQ(fake_cuda().launches(), 3);
}

TEST(AppendWork, FillsAGpuOnceWithAsLittleAThreadAsThatTakes) {
  const AppendShape llama{kBf16, 128, 128, kNoRope, 0};
  const auto work = [&](std::int64_t tokens) { return append_work(llama, tokens, 8, 0, 132); };
  EXPECT_EQ(work(64).depth_log2, 0);
  EXPECT_EQ(work(64).strips_end[kMovedQ], 8);
  EXPECT_EQ(work(64).blocks, 64u) << "64 tokens of 8 warps, a vector a thread";
  EXPECT_EQ(work(1024).depth_log2, 1);
  EXPECT_EQ(work(1024).blocks, 512u) << "4 warps each";
  EXPECT_EQ(work(4096).depth_log2, 2);
  EXPECT_EQ(work(4096).blocks, 512u) << "a warp each, which moves k and v";
  EXPECT_EQ(work(0).blocks, 1u) << "lengths are written all the same";
  EXPECT_EQ(work(std::int64_t{1} << 30).blocks, 1u << 27);
  EXPECT_EQ(work(6000).blocks, 1500u) << "2 warps each: 750 blocks are a GPU and a bit";
  const AppendShape rotated{kBf16, 128, 128, kRopeHalf, 128};
  EXPECT_EQ(append_work(rotated, 64, 8, 32, 132).strips_end[kMovedQ], 7) << "a block has 8 warps";
  EXPECT_EQ(append_work(rotated, 64, 8, 32, 132).blocks, 64u);
  EXPECT_EQ(append_work(rotated, 4096, 8, 32, 132).blocks, 2048u);
  EXPECT_EQ(append_grid(128), 128u);
  EXPECT_EQ(append_grid(200'000), 8192u);
}

// ---- ATTNFORGE_CHECK_INPUTS ----

constexpr AppendSizes kSmall{.batch = 3, .tokens = 20, .seqlen_kv = 64, .page_size = 16};

TEST_F(AppendKvTest, LooksAtLengthsAndTablesWhereTheEnvironmentAsksForIt) {
  const test::ScopedEnvironment scope(
      std::map<std::string, std::string>{{"ATTNFORGE_CHECK_INPUTS", "1"}});
  Device device = open();
  // The fake driver's device memory is the host's.
  std::vector<int> used = {15, 64, 30}, ends = {0, 2, 2, 19};
  std::vector<int> table = {3, 7, -1, -1, 55, 0, 1, 2, 4, 55, 5, 6, 8, -1, 55};
  AppendTensors tensors = tensors_at(0x100000);
  tensors.used_kv = used.data();
  tensors.cu_seqlens = ends.data();
  tensors.pages = {table.data(), 5, 12};
  append_kv(kSmall, tensors, device);
  EXPECT_EQ(fake_cuda().launches(), 1);
  used[2] = 50;
  const auto append = [&] { append_kv(kSmall, tensors, device); };
  EXPECT_THAT(std::string(error_of(append).what()), HasSubstr("used_kv[2] is 50"));
  used[2] = 30;
  table[12] = 7;
  EXPECT_THAT(std::string(error_of(append).what()), HasSubstr("[2, 2] is page 7"));
  EXPECT_EQ(fake_cuda().launches(), 1);
  const ContextScope context(state_of(device).context);
  const Stream stream;
  const Graph graph(stream, [&](CUstream captured) {
    append_kv(kSmall, tensors, device, captured);  // nothing can be read back
  });
  EXPECT_EQ(fake_cuda().launches(), 2) << "captured as it is";
}

}  // namespace
}  // namespace attnforge
