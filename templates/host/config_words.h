// config_words.h - words for what several families search.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <string>

namespace attnforge {

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
