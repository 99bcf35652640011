// words.cpp - Rigor and Status as the words that the database, logs and the command line use.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "attnforge/error.h"
#include "attnforge/tune.h"

namespace attnforge {
namespace {

constexpr std::pair<Rigor, std::string_view> kRigors[] = {
    {Rigor::kQuick, "quick"}, {Rigor::kFull, "full"}, {Rigor::kExhaustive, "exhaustive"}};

constexpr std::pair<Status, std::string_view> kStatuses[] = {
    {Status::kOk, "ok"},
    {Status::kCompileError, "compile_error"},
    {Status::kLaunchError, "launch_error"},
    {Status::kWrongResult, "wrong_result"},
    {Status::kTimedOut, "timed_out"}};

template <class Value, std::size_t N>
std::string_view word(const std::pair<Value, std::string_view> (&table)[N], Value value) {
  for (const auto& [known, text] : table)
    if (known == value) return text;
  ATTNFORGE_ASSERT(false, "a value outside of its enum");
}

template <class Value, std::size_t N>
Value value(const std::pair<Value, std::string_view> (&table)[N], std::string_view what,
            std::string_view text) {
  std::string known;
  for (const auto& [result, name] : table) {
    if (name == text) return result;
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("unknown {} '{}': use one of {}", what, text, known));
}

}  // namespace

std::string_view to_string(Rigor rigor) { return word(kRigors, rigor); }
Rigor parse_rigor(std::string_view text) { return value(kRigors, "rigor", text); }
std::string_view to_string(Status status) { return word(kStatuses, status); }
Status parse_status(std::string_view text) { return value(kStatuses, "status", text); }

}  // namespace attnforge
