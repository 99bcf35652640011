// words.cpp - Rigor and Status as the words that the database, logs and the command line use.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "attnforge/tune.h"
#include "generator/text/enum_names.h"
#include "generator/text/throw_error.h"

namespace attnforge {
namespace {

constexpr std::string_view kRigors[] = {"quick", "full", "exhaustive"};
constexpr std::string_view kStatuses[] = {"ok", "compile_error", "launch_error", "wrong_result",
                                          "timed_out"};

template <class Enum>
Enum parse(EnumNames names, std::string_view what, std::string_view text) {
  if (const std::optional<Enum> value = named_in<Enum>(names, text)) return *value;
  throw_error(ErrorCode::kInvalidArgument, "unknown {} '{}': use one of {}", what, text,
              fmt::join(names, ", "));
}

}  // namespace

std::string_view to_string(Rigor rigor) { return name_in(kRigors, rigor); }
Rigor parse_rigor(std::string_view text) { return parse<Rigor>(kRigors, "rigor", text); }
std::string_view to_string(Status status) { return name_in(kStatuses, status); }
Status parse_status(std::string_view text) { return parse<Status>(kStatuses, "status", text); }

}  // namespace attnforge
