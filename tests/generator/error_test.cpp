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

TEST(Error, QuotedControlCharactersAreNotSentToTheTerminal) {
  const Error error(ErrorCode::kIo,
                    std::string("file \"\x1b[2J\r\x7f\0\xc2\x9b\xff\":\n\tgr\xc3\xbc\xc3\x9f", 26));
  EXPECT_STREQ(error.what(), "file \"\\x1b[2J\\r\\x7f\\x00\\xc2\\x9b\\xff\":\n gr\xc3\xbc\xc3\x9f");
}

TEST(Error, AMessageThatQuotesAWholeFileIsCutBetweenCharacters) {
  std::string file;
  for (int i = 0; i < 1'000'000; ++i) file += "\xc3\xbc";
  const std::string message = Error(ErrorCode::kIo, "x" + file).what();
  EXPECT_LT(message.size(), 8192u);
  EXPECT_THAT(message, testing::StartsWith("x\xc3\xbc"));
  EXPECT_THAT(message, testing::EndsWith("\xc3\xbc... (cut short: 2000001 bytes in all)"));
}

TEST(Error, AnAssertionThatHoldsDoesNothing) {
  EXPECT_NO_THROW(ATTNFORGE_ASSERT(1 + 1 == 2, "sums are sums"));
}

}  // namespace
}  // namespace attnforge
