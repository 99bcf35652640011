// log.cpp - log levels and their names.
#include "runtime/log.h"

#include <cstdlib>
#include <utility>

#include "attnforge/printable.h"
#include "generator/text/enum_names.h"
#include "generator/text/throw_error.h"

namespace attnforge {
namespace {

constexpr std::string_view kLevels[] = {"debug", "info", "warning", "error", "off"};

}  // namespace

std::optional<LogLevel> parse_log_level(std::string_view word) {
  return named_in<LogLevel>(kLevels, word);
}

LogLevel log_level_from_environment() {
  const char* word = secure_getenv("ATTNFORGE_LOG");
  if (word == nullptr || *word == '\0') return LogLevel::kWarning;
  if (const std::optional<LogLevel> level = parse_log_level(word)) return *level;
  throw_error(ErrorCode::kInvalidArgument,
              "ATTNFORGE_LOG={}: it is debug, info, warning, error or off; or unset it", word);
}

Logger::Logger(LogFunction sink, LogLevel level) : sink_(std::move(sink)), level_(level) {}

void Logger::log(LogLevel level, std::string_view message) const noexcept {
  if (enabled(level)) pass_on(level, message);
}

void Logger::announce(std::string_view message) const noexcept {
  if (sink_) pass_on(LogLevel::kInfo, message);
}

void Logger::pass_on(LogLevel level, std::string_view message) const noexcept {
  try {
    sink_(level, printable_lines(message));
  } catch (...) {
    // Documented: a log line must not fail the work that it reports on.
  }
}

}  // namespace attnforge
