// error_test.cpp - error codes have names of their own, and a broken promise is an Error.
#include "attnforge/error.h"

#include <set>

#include "tests/generator/expect_error.h"

namespace attnforge {
namespace {

TEST(Error, EveryCodeHasItsOwnName) {
  std::set<std::string_view> names;
  int count = 0;
  for (int code = 0; code <= static_cast<int>(ErrorCode::kInternal); ++code, ++count) {
    names.insert(to_string(static_cast<ErrorCode>(code)));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(count));
  EXPECT_FALSE(names.count("unknown"));
  EXPECT_EQ(to_string(ErrorCode::kInvalidProblem), "invalid_problem");
}

TEST(Error, AnAssertionSaysWhatWhyAndWhereWithoutFolders) {
  const int stages = 1;
  const std::string message = error_message(
      ErrorCode::kInternal, [&] { ATTNFORGE_ASSERT(stages > 1, "a ring has two stages"); });
  EXPECT_THAT(message, testing::HasSubstr("a ring has two stages"));
  EXPECT_THAT(message, testing::HasSubstr("stages > 1"));
  EXPECT_THAT(message, testing::HasSubstr(" error_test.cpp:"));
}

TEST(Error, AnAssertionThatHoldsDoesNothing) {
  EXPECT_NO_THROW(ATTNFORGE_ASSERT(1 + 1 == 2, "sums are sums"));
}

}  // namespace
}  // namespace attnforge
