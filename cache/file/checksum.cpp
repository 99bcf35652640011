// checksum.cpp - see checksum.h.
#define XXH_INLINE_ALL
#include "cache/file/checksum.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace attnforge {
namespace {

void checksum_function(sqlite3_context* context, int count, sqlite3_value** values) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    const auto* data = reinterpret_cast<const char*>(sqlite3_value_text(values[i]));
    const auto size = static_cast<std::size_t>(sqlite3_value_bytes(values[i]));
    text += fmt::format("{}:", size);  // two texts never look like two others
    if (data) text.append(data, size);
  }
  const std::string sum = checksum(std::as_bytes(std::span(text)));
  sqlite3_result_text(context, sum.data(), static_cast<int>(sum.size()), SQLITE_TRANSIENT);
}

}  // namespace

std::string checksum(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

void add_checksum_function(Database& database) {
  sqlite3_create_function_v2(database.handle(), "checksum", -1,
                             SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY, nullptr,
                             checksum_function, nullptr, nullptr, nullptr);
}

}  // namespace attnforge
