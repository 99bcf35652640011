// log_test.cpp - levels, the environment, sinks that misbehave.
#include "runtime/log.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "attnforge/error.h"

namespace attnforge {
namespace {

TEST(LogLevel, HasAWord) {
  EXPECT_EQ(parse_log_level("debug"), LogLevel::kDebug);
  EXPECT_EQ(parse_log_level("info"), LogLevel::kInfo);
  EXPECT_EQ(parse_log_level("warning"), LogLevel::kWarning);
  EXPECT_EQ(parse_log_level("error"), LogLevel::kError);
  EXPECT_EQ(parse_log_level("off"), LogLevel::kOff);
  EXPECT_EQ(parse_log_level("verbose"), std::nullopt);
  EXPECT_EQ(parse_log_level(""), std::nullopt);
}

TEST(LogLevel, EnvironmentDecidesAndWarningIsTheDefault) {
  setenv("ATTNFORGE_LOG", "debug", 1);
  EXPECT_EQ(log_level_from_environment(), LogLevel::kDebug);
  setenv("ATTNFORGE_LOG", "", 1);
  EXPECT_EQ(log_level_from_environment(), LogLevel::kWarning);
  unsetenv("ATTNFORGE_LOG");
  EXPECT_EQ(log_level_from_environment(), LogLevel::kWarning);
}

TEST(LogLevel, AWordThatIsNoLevelIsAnErrorAndNotAGuess) {
  for (const char* word : {"loud", "WARNING", "2", " info"}) {
    setenv("ATTNFORGE_LOG", word, 1);
    try {
      log_level_from_environment();
      ADD_FAILURE() << word;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find("debug, info, warning, error or off"),
                std::string::npos);
    }
  }
  unsetenv("ATTNFORGE_LOG");
}

TEST(Logger, PassesOnItsLevelAndAbove) {
  std::vector<std::pair<LogLevel, std::string>> lines;
  const auto sink = [&](LogLevel level, std::string_view message) {
    lines.emplace_back(level, message);
  };
  const Logger logger(sink, LogLevel::kInfo);
  logger.debug("hidden");
  logger.info("i");
  logger.warning("w");
  logger.error("e");
  EXPECT_EQ(lines,
            (std::vector<std::pair<LogLevel, std::string>>{
                {LogLevel::kInfo, "i"}, {LogLevel::kWarning, "w"}, {LogLevel::kError, "e"}}));
  EXPECT_FALSE(logger.enabled(LogLevel::kDebug));
  EXPECT_TRUE(logger.enabled(LogLevel::kError));
}

TEST(Logger, TextsOfFilesCannotSteerATerminal) {
  std::string line;
  const Logger logger([&](LogLevel, std::string_view message) { line = message; }, LogLevel::kInfo);
  logger.warning("path \x1b[2J\n  next");
  EXPECT_EQ(line, "path \\x1b[2J\n  next");
}

TEST(Logger, OffPassesNothingOn) {
  int calls = 0;
  const Logger logger([&](LogLevel, std::string_view) { ++calls; }, LogLevel::kOff);
  logger.error("e");
  logger.log(LogLevel::kOff, "o");
  EXPECT_EQ(calls, 0);
}

TEST(Logger, WithoutSinkNothingIsEnabled) {
  EXPECT_FALSE(Logger().enabled(LogLevel::kError));
  EXPECT_FALSE(Logger(LogFunction(), LogLevel::kDebug).enabled(LogLevel::kError));
}

TEST(Logger, ThrowingSinkDoesNotReachTheCaller) {
  int calls = 0;
  const Logger logger(
      [&](LogLevel, std::string_view) {
        ++calls;
        throw std::runtime_error("sink is full");
      },
      LogLevel::kDebug);
  logger.error("e");
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace attnforge
