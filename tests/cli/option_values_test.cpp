// option_values_test.cpp - what values of options are refused, and in which words.
#include "cli/options/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace attnforge::cli {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

/// "" and `text` as it is read then; else the message.
std::string refusal(const ValueRule& rule, std::string text) { return rule(text); }

TEST(OptionValues, WholeNumbersAreDecimalAndWithinBounds) {
  for (const char* good : {"0", "7", "2147483647"})
    EXPECT_THAT(refusal(whole_number(0, INT_MAX), good), IsEmpty()) << good;
  for (const char* bad : {"", "-1", "+1", "1.5", "1e3", "0x10", "2147483648", " 1", "1 ", "nan",
                          "100000000000000000000", "one"}) {
    EXPECT_THAT(refusal(whole_number(0, INT_MAX), bad),
                HasSubstr("must be a whole number from 0 to 2147483647"))
        << bad;
  }
  EXPECT_THAT(refusal(whole_number(1, 5), "0"),
              HasSubstr("\"0\" must be a whole number from 1 to 5"));
  EXPECT_THAT(refusal(whole_number(0, UINT64_MAX), "18446744073709551616"), HasSubstr("must be"));
}

TEST(OptionValues, LeadingZerosDoNotMakeANumberOctal) {
  std::string text = "010";
  EXPECT_THAT(whole_number(0, 100)(text), IsEmpty());
  EXPECT_EQ(text, "10");
}

TEST(OptionValues, SecondsAreFinite) {
  for (const char* good : {"0", "0.5", "8", "1e3"})
    EXPECT_THAT(refusal(seconds(), good), IsEmpty()) << good;
  for (const char* bad : {"", "nan", "-nan", "inf", "-1", "1e300", "1e400", "8s", "0x1p3"})
    EXPECT_THAT(refusal(seconds(), bad), HasSubstr("seconds from 0 to 1000000000")) << bad;
}

TEST(OptionValues, AListHasAName) {
  EXPECT_THAT(refusal(names(), "sm_86,sm_90"), IsEmpty());
  EXPECT_THAT(refusal(names(), ","), HasSubstr("\",\" names nothing"));
}

TEST(OptionValues, ALongValueDoesNotFillTheMessage) {
  EXPECT_LT(refusal(seconds(), std::string(100'000, '9')).size(), 200u);
  EXPECT_THAT(refusal(whole_number(0, 1), std::string(309, '9')), HasSubstr("(309 characters)"));
}

}  // namespace
}  // namespace attnforge::cli
