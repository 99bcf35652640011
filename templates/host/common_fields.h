// common_fields.h - fields that mean the same to several families: their values, and their words.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "generator/config.h"
#include "generator/shape.h"

namespace attnforge {

inline constexpr Allowed kFlag = from_to(0, 1);
inline constexpr Allowed kPackedHeads = from_to(1, 512);
inline constexpr Allowed kHeadGroupsMb = from_to(0, 1 << 30);

/// Those of `sizes` of key tiles that blocks of the problem's mask divide, or that divide them.
inline std::vector<int> fitting(const Shape& shape, std::vector<int> sizes) {
  std::erase_if(sizes, [&](int block_n) { return !shape.blocks_fit(block_n); });
  return sizes;
}

// ---- For describe() ----

/// The phrases that are not empty, with commas between them.
inline std::string phrases(std::initializer_list<std::string> all) {
  std::string text;
  for (const std::string& phrase : all) {
    if (phrase.empty()) continue;
    text += (text.empty() ? "" : ", ") + phrase;
  }
  return text;
}

/// `words` if it is so. What is usual is not said.
inline std::string if_so(bool so, const char* words) { return so ? words : ""; }

inline std::string blocks_words(int blocks_per_sm) {
  return fmt::format("{} block{} per SM", blocks_per_sm, blocks_per_sm == 1 ? "" : "s");
}
inline std::string pack_words(int pack_gqa) {
  return pack_gqa == 1 ? "" : fmt::format("{} heads packed", pack_gqa);
}
inline std::string head_group_words(int head_group_mb) {
  return head_group_mb == 0 ? "" : fmt::format("heads by {} MB", head_group_mb);
}

}  // namespace attnforge
