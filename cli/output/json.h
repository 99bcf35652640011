// json.h - the JSON that verbs print. docs/JSON.md documents the keys: add some, rename
// none.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "attnforge/inspect.h"

namespace attnforge::cli {

using Json = nlohmann::ordered_json;

/// The library's nouns, with the keys of attnforge/json.h.
Json to_json(const DeviceFacts& device);
Json to_json(const CompileInfo& compiled);

/// The members of `noun` that are named, each with its name as its key.
#define ATTNFORGE_JSON(noun, ...)                                                              \
  [&json_noun = noun] {                                                                        \
    ::attnforge::cli::Json json;                                                               \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(ATTNFORGE_JSON_MEMBER, __VA_ARGS__)) return json; \
  }()
#define ATTNFORGE_JSON_MEMBER(name) json[#name] = json_noun.name;

/// An array of what `each` makes of the items.
template <class Items, class Each, class List = Json>
List json_list(const Items& items, const Each& each) {
  List list = List::array();
  for (const auto& item : items) list.push_back(each(item));
  return list;
}

/// The member `key` of an object, as of a line of an export: "" or 0 where it is absent or of
/// another type.
std::string text_of(const Json& line, const char* key);
double number_of(const Json& line, const char* key);

/// Now, ISO 8601, UTC: "2026-01-31T12:34:56Z".
std::string utc_now();

/// Indented, in ASCII: a terminal obeys some characters that JSON may hold. Text that is not UTF-8
/// (a compiler's log may hold some) is replaced.
std::string json_text(const Json& json);
/// Prints `json` on standard output.
void print_json(const Json& json);

}  // namespace attnforge::cli
