#include "cli/page/page.h"

#include <fmt/format.h>

#include <cctype>
#include <nlohmann/json.hpp>

#include "attnforge/printable.h"

namespace attnforge::cli {
namespace {

bool is_name(std::string_view text) {
  if (text.empty()) return false;
  for (const char c : text)
    if (!std::islower(static_cast<unsigned char>(c)) && c != '.' && c != '_') return false;
  return true;
}

}  // namespace

std::string html_text(std::string_view text) {
  std::string result;
  for (const char c : printable(text)) {
    if (c == '&' || c == '<' || c == '>' || c == '"' || c == '\'')
      result += fmt::format("&#{};", static_cast<int>(c));
    else
      result += c;
  }
  return result;
}

std::string json_block(const Json& data) {
  std::string result;
  for (const char c : data.dump(-1, ' ', true, Json::error_handler_t::replace)) {
    // These stand in strings only, where JSON has another way to write them.
    if (c == '<' || c == '>' || c == '&')
      result += fmt::format("\\u{:04x}", static_cast<int>(c));
    else
      result += c;
  }
  return result;
}

std::string page(std::string_view name, std::string_view title, const Json& data) {
  std::string_view rest = page_file(name);
  std::string result;
  while (!rest.empty()) {
    const std::size_t begin = rest.find('@');
    const std::size_t end = begin == rest.npos ? rest.npos : rest.find('@', begin + 1);
    const std::string_view word = end == rest.npos ? "" : rest.substr(begin + 1, end - begin - 1);
    if (!is_name(word)) {  // an @ of its own
      const std::size_t taken = begin == rest.npos ? rest.size() : begin + 1;
      result += rest.substr(0, taken);
      rest.remove_prefix(taken);
      continue;
    }
    result += rest.substr(0, begin);
    rest.remove_prefix(end + 1);
    if (word == "title")
      result += html_text(title);
    else if (word == "data")
      result += json_block(data);
    else
      result += page_file(word);
  }
  return result;
}

}  // namespace attnforge::cli
