// driver_test.cpp - what is said when there is no driver; runs on any machine.
#include "runtime/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "attnforge/error.h"

namespace attnforge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Driver, MissingLibraryIsNamedWithAdvice) {
  Driver functions;
  EXPECT_THAT(
      open_driver("libcuda-of-nobody.so.1", functions),
      AllOf(HasSubstr("no NVIDIA driver"), HasSubstr("libcuda-of-nobody.so.1 could not be opened"),
            HasSubstr("install the NVIDIA driver")));
}

TEST(Driver, OtherLibraryIsRefused) {
  Driver functions;
  EXPECT_THAT(
      open_driver("libc.so.6", functions),
      AllOf(HasSubstr("libc.so.6 is not a CUDA 12 driver"), HasSubstr("update the NVIDIA driver")));
  EXPECT_EQ(functions.cuInit, nullptr);
}

TEST(Driver, OldDriverIsRefusedByTheFunctionThatItLacks) {
  setenv("FAKE_DRIVER_LACKS", "cuLibraryLoadData", 1);
  Driver functions;
  EXPECT_THAT(open_driver(FAKE_DRIVER, functions),
              AllOf(HasSubstr("lacks cuLibraryLoadData; "), HasSubstr("update the NVIDIA driver")));
  unsetenv("FAKE_DRIVER_LACKS");
}

TEST(Driver, FunctionsOfLaterDriversAreOptional) {
  setenv("FAKE_DRIVER_LACKS", "cuFuncLoad", 1);
  Driver functions;
  EXPECT_EQ(open_driver(FAKE_DRIVER, functions), "");
  EXPECT_EQ(functions.cuFuncLoad, nullptr);
  EXPECT_NE(functions.cuFuncGetParamInfo, nullptr);
  EXPECT_EQ(functions.cuInit(0), CUDA_ERROR_NO_DEVICE);
  unsetenv("FAKE_DRIVER_LACKS");
}

TEST(Driver, ProblemAndThrowAgree) {
  if (driver_problem().empty()) {
    EXPECT_NE(driver().cuLaunchKernelEx, nullptr);
    EXPECT_GE(driver_version(), 12000);
    return;
  }
  EXPECT_EQ(driver_version(), 0);
  try {
    driver();
    FAIL() << "no exception";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNoDriver);
    EXPECT_EQ(error.what(), driver_problem());
    EXPECT_THAT(error.what(), ::testing::AnyOf(HasSubstr("install"), HasSubstr("check nvidia-smi"),
                                               HasSubstr("driver")));
  }
}

TEST(Check, NamesWhatFailedAndWhatToDo) {
  EXPECT_NO_THROW(check(CUDA_SUCCESS, "launch k"));
  try {
    check(CUDA_ERROR_ILLEGAL_ADDRESS, "launch k");
    FAIL() << "no exception";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCuda);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("launch k: "), HasSubstr("(700)"), HasSubstr("restarted")));
  }
}

}  // namespace
}  // namespace attnforge
