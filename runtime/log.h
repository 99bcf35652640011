// log.h - the log: a level from the environment in front of the caller's function. Without one,
// nothing is written anywhere.
#pragma once

#include <optional>
#include <string_view>

#include "attnforge/device.h"

namespace attnforge {

/// Of "debug", "info", "warning", "error" and "off"; nullopt for any other word.
std::optional<LogLevel> parse_log_level(std::string_view word);

/// $ATTNFORGE_LOG; kWarning when it is unset or empty. Throws Error(kInvalidArgument) if it is not
/// a level.
LogLevel log_level_from_environment();

/// Passes messages of its level or above on to `sink`, printable (printable.h): names and texts of
/// files and databases are in them. Thread-safe if the sink is. Never throws: what the sink throws
/// is dropped, for a log line must not fail a plan.
class Logger {
 public:
  Logger() = default;  // drops everything
  explicit Logger(LogFunction sink, LogLevel level = log_level_from_environment());

  /// Ask before building a costly message.
  bool enabled(LogLevel level) const { return sink_ && level >= level_ && level != LogLevel::kOff; }
  void log(LogLevel level, std::string_view message) const noexcept;
  void debug(std::string_view message) const noexcept { log(LogLevel::kDebug, message); }
  void info(std::string_view message) const noexcept { log(LogLevel::kInfo, message); }
  void warning(std::string_view message) const noexcept { log(LogLevel::kWarning, message); }
  void error(std::string_view message) const noexcept { log(LogLevel::kError, message); }
  /// At level info, but whatever the least level is: what a user requested by name.
  void announce(std::string_view message) const noexcept;

 private:
  void pass_on(LogLevel level, std::string_view message) const noexcept;

  LogFunction sink_;
  LogLevel level_ = LogLevel::kOff;
};

}  // namespace attnforge
