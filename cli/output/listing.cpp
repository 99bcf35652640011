#include "cli/output/listing.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>
#include <utility>

namespace attnforge::cli {
namespace {

constexpr std::string_view kBlanks = " \t\r";

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == text.npos) return "";
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

/// The number after `before`, or 0.
int number_after(std::string_view text, std::string_view before) {
  const std::size_t at = text.find(before);
  return at == text.npos ? 0 : std::atoi(std::string(text.substr(at + before.size(), 10)).c_str());
}

bool names_a_label(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// The words of `text` that begin with `prefix`.
void collect_labels(std::string_view text, std::string_view prefix, std::set<std::string>& labels) {
  for (std::size_t at = text.find(prefix); at != text.npos; at = text.find(prefix, at + 1)) {
    std::size_t end = at + prefix.size();
    while (end < text.size() && names_a_label(text[end])) ++end;
    labels.emplace(text.substr(at, end - at));
  }
}

/// Gathers lines, and numbers their origins.
class Builder {
 public:
  void add(const std::vector<int>& origin, std::string_view text) {
    listing_.lines.push_back({number_of(origin), std::string(text)});
  }
  /// Labels that no instruction names tell nothing.
  Listing without_idle_labels(std::string_view prefix) {
    std::set<std::string> used;
    for (const Listing::Line& line : listing_.lines)
      if (!is_label(line, prefix)) collect_labels(line.text, prefix, used);
    std::erase_if(listing_.lines, [&](const Listing::Line& line) {
      return is_label(line, prefix) && !used.count(line.text.substr(0, line.text.size() - 1));
    });
    return std::move(listing_);
  }

 private:
  static bool is_label(const Listing::Line& line, std::string_view prefix) {
    return line.text.starts_with(prefix) && line.text.back() == ':';
  }
  int number_of(const std::vector<int>& origin) {
    if (origin.empty()) return -1;
    const auto [found, is_new] = numbers_.try_emplace(origin,
                                                      static_cast<int>(listing_.origins.size()));
    if (is_new) listing_.origins.push_back(origin);
    return found->second;
  }

  Listing listing_;
  std::map<std::vector<int>, int> numbers_;
};

/// "/*0120*/  @P0 BRA `(.L_x_1) ;" -> "0120  @P0 BRA `(.L_x_1)"; "" if it is no instruction.
std::string instruction(std::string_view line) {
  if (!line.starts_with("/*")) return "";
  const std::size_t end = line.find("*/");
  const std::string_view offset = line.substr(2, end == line.npos ? 0 : end - 2);
  std::string_view code = end == line.npos ? "" : line.substr(end + 2);
  if (offset.empty() || offset.find_first_not_of("0123456789abcdef") != offset.npos) return "";
  code = trimmed(code.substr(0, code.find("/*")));  // the encoding after it
  if (!code.empty() && code.back() == ';') code = trimmed(code.substr(0, code.size() - 1));
  return code.empty() ? "" : std::string(offset) + "  " + std::string(code);
}

/// `code` with lists of many registers, as a wgmma has, as their first and last.
std::string abbreviated(std::string_view code) {
  constexpr std::ptrdiff_t kLong = 8;
  std::string result;
  while (!code.empty()) {
    const std::size_t begin = code.find("{%"), end = code.find('}', begin == code.npos ? 0 : begin);
    if (begin == code.npos || end == code.npos) break;
    const std::string_view list = code.substr(begin, end - begin);
    const std::ptrdiff_t commas = std::count(list.begin(), list.end(), ',');
    result += code.substr(0, begin);
    if (commas < kLong)
      result += list;
    else
      result += std::string(list.substr(0, list.find(','))) + " ... " +
                std::string(trimmed(list.substr(list.rfind(',') + 1)));
    code.remove_prefix(end);
  }
  return result + std::string(code);
}

}  // namespace

Listing sass_listing(std::string_view text) {
  constexpr std::string_view kMark = "//## File ", kLabel = ".L_x_", kSection = ".text.";
  Builder builder;
  std::vector<int> origin;
  bool after_mark = false;  // marks in a row are of one instruction, from the inside outwards
  std::istringstream stream{std::string(text)};
  for (std::string raw; std::getline(stream, raw);) {
    const std::string_view line = trimmed(raw);
    if (line.starts_with(kMark)) {
      if (!after_mark) origin.clear();
      after_mark = true;
      if (const int number = number_after(line, "\", line ")) origin.push_back(number);
      continue;
    }
    after_mark = false;
    if (const std::string code = instruction(line); !code.empty()) {
      builder.add(origin, code);
    } else if (!line.empty() && line.back() == ':' && line.starts_with(kLabel)) {
      builder.add({}, line);
    } else if (!line.empty() && line.back() == ':' && line.starts_with(kSection)) {
      origin.clear();
      builder.add({}, line.substr(kSection.size()));
    }
  }
  return builder.without_idle_labels(kLabel);
}

Listing ptx_listing(std::string_view text) {
  constexpr std::string_view kLoc = ".loc", kInlined = "inlined_at ", kLabel = "$L__";
  Builder builder;
  std::vector<int> origin;
  // A function that is inlined into one that is inlined: only the next call outwards is said, and
  // where that one lies was said before.
  std::map<int, std::vector<int>> last_at;
  bool declared = false, inside = false;  // a function; other braces hold debug sections
  std::istringstream stream{std::string(text)};
  for (std::string raw; std::getline(stream, raw);) {
    const std::string_view line = trimmed(raw);
    if (line.empty() || line.starts_with("//")) continue;
    if (line.starts_with(kLoc)) {
      // ".loc 1 394 3, function_name $L__info_string2, inlined_at 1 1279 9": file, line, column
      const auto line_number = [](std::string_view place) {
        const std::size_t blank = trimmed(place).find(' ');
        return blank == place.npos ? 0 : number_after(trimmed(place), " ");
      };
      const int own = line_number(line.substr(kLoc.size()));
      if (own == 0) continue;
      origin = {own};
      if (const std::size_t at = line.find(kInlined); at != line.npos) {
        const int caller = line_number(line.substr(at + kInlined.size()));
        const auto known = last_at.find(caller);
        if (known == last_at.end())
          origin.push_back(caller);
        else
          origin.insert(origin.end(), known->second.begin(), known->second.end());
      }
      last_at[own] = origin;
      continue;
    }
    if (line.starts_with(".visible") || line.starts_with(".entry") || line.starts_with(".func")) {
      declared = true;
      builder.add({}, line);
    } else if (declared && line == "{") {
      inside = true;
    } else if (line == "}") {
      declared = inside = false;
      origin.clear();
    } else if (inside && !line.starts_with(".pragma")) {
      const bool label = line.starts_with(kLabel) && line.back() == ':';
      builder.add(label ? std::vector<int>{} : origin, abbreviated(line));
    }
  }
  return builder.without_idle_labels(kLabel);
}

}  // namespace attnforge::cli
