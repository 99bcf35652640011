// struct.h - structs of the C API across versions: each begins with the size that its caller was
// compiled with.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "attnforge/error.h"

namespace attnforge {

/// *given with what it lacks taken from `defaults`. Throws Error(kInvalidArgument) for null, for a
/// size below `least` (that of the struct's first version), and for fields that this library does
/// not know and that are not zero.
template <class Struct>
Struct read_struct(const Struct* given, const Struct& defaults, std::string_view name,
                   std::size_t least = sizeof(Struct)) {
  if (given == nullptr) throw Error(ErrorCode::kInvalidArgument, fmt::format("{} is NULL", name));
  // Only struct_size may be read before it is known how much there is.
  std::uint32_t size = 0;
  std::memcpy(&size, given, sizeof(size));
  if (size < least) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}.struct_size is {}, less than the {} bytes of its first version; "
                            "begin with the INIT macro",
                            name, size, least));
  }
  if (size == sizeof(Struct)) [[likely]]  // of this very version: part of every run
    return *given;
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  if (size > sizeof(Struct)) {
    const bool zero = std::all_of(bytes + sizeof(Struct), bytes + size,
                                  [](unsigned char byte) { return byte == 0; });
    if (!zero) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} has {} bytes and this library knows {}: it sets fields of a "
                              "newer attnforge; use its library",
                              name, size, sizeof(Struct)));
    }
  }
  Struct result = defaults;
  std::memcpy(&result, bytes, std::min<std::size_t>(size, sizeof(Struct)));
  result.struct_size = size;
  return result;
}

/// Fills in as much of *out as its caller knows; what lies beyond is zeroed. out->struct_size
/// stays.
template <class Struct>
void write_struct(Struct* out, const Struct& value) {
  const std::uint32_t size = out->struct_size;
  auto* bytes = reinterpret_cast<unsigned char*>(out);
  std::memcpy(bytes, &value, std::min<std::size_t>(size, sizeof(Struct)));
  if (size > sizeof(Struct)) std::memset(bytes + sizeof(Struct), 0, size - sizeof(Struct));
  out->struct_size = size;
}

}  // namespace attnforge
