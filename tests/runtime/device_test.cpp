// device_test.cpp - the parts of device facts that hold on any machine.
#include "runtime/device.h"

#include <gtest/gtest.h>

#include "attnforge/error.h"
#include "generator/arch.h"
#include "runtime/driver.h"

namespace attnforge {
namespace {

TEST(Device, MigProfileIsReadFromTheName) {
  EXPECT_EQ(mig_profile("NVIDIA H200 MIG 1g.18gb"), "1g.18gb");
  EXPECT_EQ(mig_profile("NVIDIA A100-SXM4-40GB MIG 3g.20gb"), "3g.20gb");
  EXPECT_EQ(mig_profile("NVIDIA H200"), "");
  EXPECT_EQ(mig_profile(""), "");
}

TEST(Device, EnumerationNeverThrowsAndFillsEveryFact) {
  const std::vector<DeviceFacts> devices = enumerate_devices();
  EXPECT_EQ(devices.empty(), !driver_problem().empty());
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const DeviceFacts& facts = devices[i];
    EXPECT_EQ(facts.ordinal, static_cast<int>(i));
    EXPECT_FALSE(facts.name.empty());
    EXPECT_EQ(facts.uuid.size(), std::string("GPU-00000000-0000-0000-0000-000000000000").size())
        << facts.uuid;
    EXPECT_GT(facts.arch.sm, 0);
    EXPECT_GT(facts.num_sms, 0);
    EXPECT_GT(facts.l2_bytes, 0);
    EXPECT_GT(facts.memory_bytes, 0);
    EXPECT_GT(facts.sm_clock_mhz, 0);
    EXPECT_GT(facts.memory_clock_mhz, 0);
    EXPECT_GT(facts.memory_bus_bits, 0);
    EXPECT_GE(facts.driver_version, 12000);
  }
}

TEST(Device, BadOrdinalIsRefused) {
  const ErrorCode expected = driver_problem().empty() ? ErrorCode::kInvalidArgument
                                                      : ErrorCode::kNoDriver;
  for (int ordinal : {-1, 4096}) {
    try {
      device_facts(ordinal);
      FAIL() << "no exception";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), expected) << error.what();
    }
    EXPECT_THROW(PrimaryContext{ordinal}, Error);
  }
}

}  // namespace
}  // namespace attnforge
