// arch_test.cpp - the table of archs, names, typical GPUs, residency and device classes.
#include "generator/arch.h"

#include <algorithm>

#include "tests/generator/expect_error.h"

namespace attnforge {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Arch, KnownOnesAscend) {
  EXPECT_THAT(known_archs(), ElementsAre("80", "86", "89", "90a", "100a", "103a", "120a"));
  EXPECT_TRUE(std::is_sorted(archs().begin(), archs().end(),
                             [](const Arch& a, const Arch& b) { return a.sm < b.sm; }));
}

TEST(Arch, LimitsAgreeWithThemselves) {
  for (const Arch& arch : archs()) {
    SCOPED_TRACE(arch.name);
    EXPECT_EQ(arch.smem_per_block_bytes + 1024, arch.smem_per_sm_bytes);
    EXPECT_EQ(arch.registers_per_sm, 65536);
    EXPECT_EQ(arch.max_threads_per_sm % 512, 0);
    EXPECT_TRUE(arch.cp_async);
    EXPECT_EQ(arch.tma, arch.sm >= 90);
    EXPECT_EQ(arch.wgmma, arch.sm == 90);
    EXPECT_GT(arch.mma_fma_per_clock_per_sm, 0);
    EXPECT_GT(arch.fp32_fma_per_clock_per_sm, 0);
  }
  EXPECT_EQ(arch_named("80").smem_per_block_bytes, 166912);
  EXPECT_EQ(arch_named("89").smem_per_block_bytes, 101376);
  EXPECT_EQ(arch_named("90").smem_per_block_bytes, 232448);
}

TEST(Arch, IsFoundByAnyUsualSpelling) {
  for (const char* name : {"90", "90a", "sm90", "sm90a", "sm_90", "sm_90a"}) {
    EXPECT_EQ(arch_named(name).name, "90a") << name;
  }
  EXPECT_EQ(arch_named("sm_86").sm, 86);
  EXPECT_EQ(arch_named("120").name, "120a");
}

TEST(Arch, IsFoundByTheNameOfAGpu) {
  const std::pair<const char*, int> gpus[] = {{"H100", 90},
                                              {"h200", 90},
                                              {"NVIDIA H100 80GB HBM3", 90},
                                              {"A100", 80},
                                              {"A10G", 86},
                                              {"4090", 89},
                                              {"RTX 4060 Ti", 89},
                                              {"L40S", 89},
                                              {"L4", 89},
                                              {"RTX A6000", 86},
                                              {"NVIDIA GeForce RTX 3090", 86},
                                              {"B200", 100},
                                              {"GB300", 103},
                                              {"5090", 120},
                                              {"RTX PRO 6000", 120}};
  for (const auto& [name, sm] : gpus) EXPECT_EQ(arch_named(name).sm, sm) << name;
  for (const DeviceFacts& each :
       {typical_device("80"), typical_device("90a"), typical_device("103"), typical_device("120a")})
    EXPECT_EQ(arch_named(each.name), each.arch);
  for (const char* name : {"H1000", "40900", "409", "L400", "A1", "MI300", "90b"})
    EXPECT_THROW(arch_named(name), Error) << name;
}

TEST(Arch, AnOlderOneIsSaidToBeOlder) {
  for (const char* name : {"sm_75", "75", "sm70", "T4", "V100", "RTX 2080"}) {
    EXPECT_THAT(error_message(ErrorCode::kInvalidArgument, [&] { arch_named(name); }),
                HasSubstr("is older than sm_80"))
        << name;
  }
}

TEST(Arch, AnUnknownNameListsTheKnownOnes) {
  for (const char* name : {"", "sm", "75", "sm_86a", "h300", "9"}) {
    const std::string message = error_message(ErrorCode::kInvalidArgument,
                                              [&] { arch_named(name); });
    EXPECT_THAT(message, HasSubstr("\"" + std::string(name) + "\""));
    EXPECT_THAT(message, HasSubstr("sm_80, sm_86, sm_89, sm_90a, sm_100a, sm_103a, sm_120a"));
    EXPECT_THROW(typical_device(name), Error);
  }
}

TEST(Arch, ByComputeCapability) {
  for (const Arch& arch : archs()) EXPECT_EQ(arch_for_sm(arch.sm), &arch);
  EXPECT_EQ(arch_for_sm(87), arch_for_sm(86));
  EXPECT_EQ(arch_for_sm(75), nullptr);
  EXPECT_EQ(arch_for_sm(0), nullptr);
  // Code for 100a does not run on 103, nor that for 120a on 121.
  EXPECT_EQ(arch_for_sm(103)->name, "103a");
  EXPECT_EQ(arch_for_sm(121), nullptr);
}

TEST(TypicalDevice, IsOneOfEachArchAndNotPresent) {
  for (const Arch& arch : archs()) {
    const DeviceFacts& facts = typical_device(arch.name);
    SCOPED_TRACE(facts.name);
    EXPECT_EQ(facts.arch, arch);
    EXPECT_EQ(facts.ordinal, -1);
    EXPECT_EQ(facts.uuid, "");
    EXPECT_GE(facts.num_sms, 82);
    EXPECT_GE(facts.l2_bytes, 6 << 20);
    EXPECT_GE(facts.memory_bytes, std::int64_t{20} << 30);
  }
  const DeviceFacts& h200 = typical_device("sm_90a");
  EXPECT_EQ(h200.name, "NVIDIA H200");
  EXPECT_EQ(h200.num_sms, 132);
  EXPECT_EQ(h200.l2_bytes, 62914560);
  EXPECT_EQ(h200.memory_bytes, std::int64_t{143771} << 20);
}

TEST(BlocksPerSm, RegistersAreGivenToWarpsInUnitsOf256) {
  const Arch& sm90 = arch_named("90a");
  EXPECT_EQ(blocks_per_sm(sm90, 255, 128, 0), 2);
  EXPECT_EQ(blocks_per_sm(sm90, 168, 128, 0), 3);
  EXPECT_EQ(blocks_per_sm(sm90, 169, 128, 0), 2);  // rounds to 176: 2 warps in each partition
  EXPECT_EQ(blocks_per_sm(sm90, 128, 128, 0), 4);
  EXPECT_EQ(blocks_per_sm(sm90, 128, 256, 0), 2);
  EXPECT_EQ(blocks_per_sm(sm90, 32, 128, 0), 16);
}

TEST(BlocksPerSm, APartitionHoldsWholeWarps) {
  // 168 registers: 3 warps in each of 4 partitions, 12 in all, not the 12.19 of one large file.
  EXPECT_EQ(blocks_per_sm(arch_named("80"), 168, 32, 0), 12);
  // 80 registers: 6.4 warps in a partition, so 24 and not 25 in an SM.
  EXPECT_EQ(blocks_per_sm(arch_named("80"), 80, 32, 0), 24);
}

TEST(BlocksPerSm, EachBlockCostsAKibibyteOfSharedMemoryMore) {
  EXPECT_EQ(blocks_per_sm(arch_named("80"), 32, 128, 166912), 1);
  EXPECT_EQ(blocks_per_sm(arch_named("80"), 32, 128, 166913), 0);
  EXPECT_EQ(blocks_per_sm(arch_named("80"), 32, 128, 81 * 1024), 2);
  EXPECT_EQ(blocks_per_sm(arch_named("80"), 32, 128, 81 * 1024 + 1), 1);
  EXPECT_EQ(blocks_per_sm(arch_named("86"), 32, 128, 49 * 1024), 2);
  EXPECT_EQ(blocks_per_sm(arch_named("90a"), 32, 128, 113 * 1024), 2);
}

TEST(BlocksPerSm, ThreadsAndBlocksAreLimitedToo) {
  EXPECT_EQ(blocks_per_sm(arch_named("80"), 16, 1024, 0), 2);
  EXPECT_EQ(blocks_per_sm(arch_named("86"), 16, 1024, 0), 1);
  EXPECT_EQ(blocks_per_sm(arch_named("80"), 16, 32, 0), 32);
  EXPECT_EQ(blocks_per_sm(arch_named("86"), 16, 32, 0), 16);
  EXPECT_EQ(blocks_per_sm(arch_named("89"), 16, 32, 0), 24);
  EXPECT_EQ(blocks_per_sm(arch_named("80"), 16, 33, 0), 32);  // two warps: 2048 / 64
  EXPECT_EQ(blocks_per_sm(arch_named("80"), 0, 128, 0), 16);
}

TEST(BlocksPerSm, WhatCannotRunHasNone) {
  const Arch& arch = arch_named("80");
  EXPECT_EQ(blocks_per_sm(arch, 32, 0, 0), 0);
  EXPECT_EQ(blocks_per_sm(arch, 32, 1025, 0), 0);
  EXPECT_EQ(blocks_per_sm(arch, 256, 32, 0), 0);
  EXPECT_EQ(blocks_per_sm(arch, 255, 1024, 0), 0);
  EXPECT_EQ(blocks_per_sm(arch, 32, 32, -1), 0);
}

TEST(DeviceClass, IsReadableAndFreeOfTheSingleCard) {
  DeviceFacts facts = typical_device("90a");
  const std::string text = "NVIDIA H200 sm_90a sms=132 memory_clock_mhz=3201 l2_bytes=62914560";
  EXPECT_EQ(device_class(facts), text);
  facts.uuid = "GPU-1234";
  facts.ordinal = 3;
  facts.driver_version = 13000;
  facts.sm_clock_mhz = 1755;
  EXPECT_EQ(device_class(facts), text);
  facts.mig_profile = "1g.18gb";
  EXPECT_EQ(device_class(facts), text + " mig=1g.18gb");
  facts.num_sms = 16;
  EXPECT_THAT(device_class(facts), HasSubstr(" sms=16 "));
}

}  // namespace
}  // namespace attnforge
