// append_quantised_gpu_test.cpp - appends to caches of 8 and 4 bits on a real GPU: each bit is that
// of an append to a cache of 16 bits whose rows are quantised afterwards.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "attnforge/plan.h"
#include "generator/tensors/operands.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/memory.h"
#include "tests/support/appended_caches.h"

namespace attnforge {
namespace {

class AppendQuantisedGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!driver_problem().empty()) GTEST_SKIP() << driver_problem();
    primary_.emplace(0);
    context_.emplace(*primary_);
    device_.emplace(DeviceOptions{.ordinal = 0, .cache_path = ":memory:"});
  }

  HostTensors appended(const Problem& problem, HostTensors host, bool heads_first) {
    const Plan plan = make_plan(problem, *device_, {.policy = Policy::kEstimate});
    if (heads_first) test::exchange_caches(problem, host, false);
    const std::vector<Operand> list = operands(problem);
    std::vector<Buffer> buffers;
    std::vector<void*> addresses;
    for (const Operand& operand : list) {
      buffers.push_back(Buffer::of(operand.content(host)));
      addresses.push_back(buffers.back().data());
    }
    std::vector<std::uint64_t> words;
    Tensors tensors = bound_tensors(problem, list, addresses, host, words);
    if (heads_first) test::set_heads_first(problem, tensors);
    plan.run(tensors);
    check(driver().cuCtxSynchronize(), "wait for the append");
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].role == Operand::Role::kOutput)
        buffers[i].copy_to_host(list[i].in_host(host).data(), list[i].bytes());
    }
    if (heads_first) test::exchange_caches(problem, host, true);
    return host;
  }
  void expect_two_steps(const char* text, bool heads_first = false) {
    SCOPED_TRACE(text);
    test::expect_two_steps(parse_problem(text), 5, [&](const Problem& problem, HostTensors host) {
      return appended(problem, std::move(host), heads_first);
    });
  }

  std::optional<PrimaryContext> primary_;
  std::optional<ScopedContext> context_;
  std::optional<Device> device_;
};

TEST_F(AppendQuantisedGpu, RowsHaveTheirScales) {
  for (const char* formats : {"k=int8 v=int8", "k=int4 v=int4", "k=e4m3 v=e4m3", "k=e5m2 v=e5m2",
                              "k=int8 v=int4", "k=bf16 v=e4m3", "k=int4 v=bf16"}) {
    for (const char* scale : {"token", "group32", "group64", "group128"}) {
      for (const char* rest :
           {"batch=64 num_heads=8 seqlen=1:512 head_dim=128 page_size=16 lengths_after",
            "batch=9 num_heads=32:8 seqlen=1:300 head_dim=128 page_size=64 rope=half queries",
            "batch=5 num_heads=4:2 seqlen=3:200 head_dim=256:64 rope=interleaved rope_dim=96 "
            "queries lengths_after",
            "batch=6 num_heads=3 seqlen=40:256 head_dim=72:40 lengths=packed tokens=150 "
            "alignment=4"}) {
        expect_two_steps(
            fmt::format("append bf16 {} kv_scale={} {}", formats, scale, rest).c_str());
      }
    }
  }
}

TEST_F(AppendQuantisedGpu, RowsOfInt4HaveTheirZeroPoints) {
  for (const char* formats : {"k=int4 v=int4", "k=int4 v=bf16"}) {
    for (const char* scale : {"token", "group32", "group64", "group128"}) {
      for (const char* rest :
           {"batch=64 num_heads=8 seqlen=1:512 head_dim=128 page_size=16 lengths_after",
            "batch=9 num_heads=32:8 seqlen=1:300 head_dim=128 page_size=64 rope=half queries",
            "batch=6 num_heads=3 seqlen=40:256 head_dim=72:40 lengths=packed tokens=150 "
            "alignment=4"}) {
        expect_two_steps(
            fmt::format("append bf16 {} kv_scale={} kv_zero {}", formats, scale, rest).c_str());
      }
    }
  }
}

TEST_F(AppendQuantisedGpu, OtherScalesAreReadAndOtherSizesServed) {
  expect_two_steps(
      "append fp16 k=e5m2 v=int4 kv_scale=head batch=7 num_heads=5 seqlen=9:64 head_dim=64");
  expect_two_steps(
      "append bf16 k=int8 v=e4m3 kv_scale=tensor batch=3 num_heads=4 seqlen=3:64 head_dim=48:512 "
      "page_size=16 rope=half alignment=8");
  expect_two_steps("append bf16 k=e4m3 v=int8 batch=3 num_heads=4 seqlen=3:64 head_dim=128");
  expect_two_steps(
      "append fp16 k=int4 v=e5m2 kv_scale=group32 batch=2 num_heads=3 seqlen=33:64 "
      "head_dim=512:264 alignment=4");
  expect_two_steps(
      "append fp16 k=int4 v=int8 kv_scale=group32 batch=2 num_heads=3 seqlen=33:64 "
      "head_dim=248:8 rope=half rope_dim=24 alignment=2");
  expect_two_steps(
      "append bf16 k=int4 v=e4m3 kv_scale=group64 batch=1 num_heads=8 seqlen=3000:3100 "
      "head_dim=128 page_size=128 rope=half");
  expect_two_steps(
      "append fp16 k=int8 v=int4 kv_scale=group64 batch=2 num_heads=4 seqlen=900:901 head_dim=128",
      true);
  expect_two_steps(
      "append bf16 k=e4m3 v=e5m2 kv_scale=token batch=30 num_heads=4 seqlen=2:64 head_dim=96 "
      "page_size=16",
      true);
}

}  // namespace
}  // namespace attnforge
