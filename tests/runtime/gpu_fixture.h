// gpu_fixture.h - a GPU test's context: GPU 0, skipped only on a machine without a usable driver.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "runtime/device.h"
#include "runtime/driver.h"

namespace attnforge {

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!driver_problem().empty()) GTEST_SKIP() << driver_problem();
    facts_ = device_facts(0);
    primary_ = std::make_unique<PrimaryContext>(0);
    context_ = std::make_unique<ScopedContext>(*primary_);
  }

  DeviceFacts facts_;
  std::unique_ptr<PrimaryContext> primary_;
  std::unique_ptr<ScopedContext> context_;
};

}  // namespace attnforge
