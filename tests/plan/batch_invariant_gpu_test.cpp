// batch_invariant_gpu_test.cpp - with the word batch_invariant a sequence has the same bits alone
// and among others, on a real GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "attnforge/device_memory.h"
#include "attnforge/host_tensors.h"
#include "attnforge/plan.h"
#include "runtime/driver.h"

namespace attnforge {
namespace {

/// The b-th of `count` equal parts.
template <class Value>
std::vector<Value> part_of(const std::vector<Value>& all, std::size_t b, std::size_t count) {
  const std::size_t size = all.size() / count;
  return {all.begin() + static_cast<std::ptrdiff_t>(b * size),
          all.begin() + static_cast<std::ptrdiff_t>((b + 1) * size)};
}

/// Sequence b of `all`, which has `batch` of them, alone. Pools of pages stay whole.
HostTensors alone(const Problem& one, const HostTensors& all, std::size_t b, std::size_t batch) {
  HostTensors host = allocate_host_tensors(one);
  host.q = part_of(all.q, b, batch);
  host.k = has_pages(one) ? all.k : part_of(all.k, b, batch);
  host.v = has_pages(one) ? all.v : part_of(all.v, b, batch);
  if (has_pages(one)) host.page_table = part_of(all.page_table, b, batch);
  if (one.lengths == Lengths::kUsed) {
    host.lengths_q = {all.lengths_q[b]};
    host.lengths_kv = {all.lengths_kv[b]};
  }
  return host;
}

std::vector<std::byte> output_of(Device& device, const Problem& problem, const HostTensors& host,
                                 std::string& config) {
  const Plan plan = make_plan(problem, device);
  config = plan.config();
  const DeviceTensors memory = upload_tensors(device, plan, host);
  plan.run(memory.tensors, memory.workspace.data());
  HostTensors out = allocate_host_tensors(problem);
  download_outputs(memory, problem, out);
  return out.o;
}

TEST(BatchInvariantGpu, ASequenceHasTheSameBitsAloneAndAmongOthers) {
  if (!driver_problem().empty()) GTEST_SKIP() << driver_problem();
  Device device({.ordinal = 0, .cache_path = ":memory:"});
  for (const char* text : {
           "fwd bf16 num_heads=32:8 seqlen=1:5000 head_dim=128 lengths=used batch_invariant",
           "fwd bf16 num_heads=32:8 seqlen=1:5000 head_dim=128 lengths=used page_size=16 "
           "batch_invariant causal",
           "fwd fp16 num_heads=8:1 seqlen=4:9000 head_dim=64 lengths=used page_size=128 "
           "batch_invariant causal softcap=30",
           "fwd bf16 num_heads=16:1 seqlen=1:8192 head_dim=128 batch_invariant",
           "fwd bf16 num_heads=8:2 seqlen=300:2000 head_dim=128 batch_invariant causal",
       }) {
    SCOPED_TRACE(text);
    constexpr std::size_t kBatch = 40;
    const Problem many = parse_problem(std::string(text) + " batch=40");
    const Problem one = parse_problem(std::string(text) + " batch=1");
    const HostTensors all = random_host_tensors(many, 3);
    std::string config, config_of_one;
    const std::vector<std::byte> together = output_of(device, many, all, config);
    for (const std::size_t b : {std::size_t{0}, std::size_t{17}, kBatch - 1}) {
      const std::vector<std::byte> apart = output_of(device, one, alone(one, all, b, kBatch),
                                                     config_of_one);
      EXPECT_EQ(config_of_one, config);
      EXPECT_TRUE(apart == part_of(together, b, kBatch)) << "sequence " << b;
    }
  }
}

}  // namespace
}  // namespace attnforge
