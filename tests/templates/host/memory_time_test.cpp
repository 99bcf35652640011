// memory_time_test.cpp - what rounds of blocks that read keys cost, in a batch and in the others of
// its bucket.
#include "templates/host/memory_time.h"

#include <gtest/gtest.h>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "templates/registry.h"

namespace attnforge {
namespace {

TEST(LateReaders, AreThoseOfALastRoundThatIsNotFull) {
  const DeviceFacts& device = typical_device("90a");
  ASSERT_EQ(device.num_sms, 132);
  EXPECT_EQ(late_readers(100, device), 1) << "all at once";
  EXPECT_EQ(late_readers(132, device), 1);
  EXPECT_EQ(late_readers(264, device), 1);
  EXPECT_NEAR(late_readers(136, device), (1 + 1.0 / 3) * 132 / 136, 1e-9)
      << "few have more of it each";
  EXPECT_NEAR(late_readers(198, device), 1, 1e-9) << "half a round keeps the memory busy";
}

TEST(SpreadOfBatches, IsMoreThanOneWhereSmallerBatchesEndUnevenly) {
  const DeviceFacts& device = typical_device("90a");
  const Problem decode = parse_problem(
      "fwd bf16 batch=24 num_heads=32:8 seqlen=1:8192 head_dim=128");
  EXPECT_GT(spread_of_batches(decode, 24 * 8, device), 1.02) << "17 of them are 136 blocks";
  const auto spread = [&](const char* words) {
    return spread_of_batches(parse_problem(words), 24 * 8, device);
  };
  EXPECT_EQ(spread("fwd bf16 batch=24 num_heads=32:8 seqlen=1:8192 head_dim=128 lengths=used"), 1);
  EXPECT_EQ(spread("fwd bf16 batch=24 num_heads=32:8 seqlen=1:8192 head_dim=128 batch_invariant"),
            1);
  EXPECT_EQ(spread("fwd bf16 batch=24 num_heads=32:8 seqlen=2048 head_dim=128"), 1) << "many rows";
  for (const Candidate& each : candidates(*find_family("fwd_wgmma_sm90a"), decode, device)) {
    if (each.config.get("grid") == 3) {
      EXPECT_EQ(each.spread, 1) << "shares are even in each batch";
    }
  }
}

}  // namespace
}  // namespace attnforge
