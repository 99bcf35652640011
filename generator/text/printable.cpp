#include "attnforge/printable.h"

#include "generator/text/utf8.h"

namespace attnforge {
namespace {

bool harmless(std::string_view character) {
  if (character.size() == 1) {
    const auto c = static_cast<unsigned char>(character[0]);
    return c >= 0x20 && c != 0x7f;
  }
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 2) return byte(0) != 0xC2 || byte(1) >= 0xA0;  // U+0080 to U+009F: C1
  if (character.size() != 3 || byte(0) != 0xE2) return true;
  // U+2028 to U+202E: line separators and directions; U+2066 to U+2069: directions.
  return !(byte(1) == 0x80 && byte(2) >= 0xA8 && byte(2) <= 0xAE) &&
         !(byte(1) == 0x81 && byte(2) >= 0xA6 && byte(2) <= 0xA9);
}

void put_escaped(std::string_view bytes, std::string& out) {
  constexpr const char* kDigits = "0123456789abcdef";
  for (const char c : bytes) {
    const auto value = static_cast<unsigned char>(c);
    if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else {
      out += "\\x";
      out += kDigits[value >> 4];
      out += kDigits[value & 15];
    }
  }
}

std::string shown(std::string_view text, bool keep_lines) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    const std::string_view character = text.substr(at, length > 0 ? length : 1);
    at += character.size();
    if (length > 0 && harmless(character)) {
      out += character;
    } else if (keep_lines && (character == "\n" || character == "\t")) {
      out += character == "\n" ? '\n' : ' ';
    } else {
      put_escaped(character, out);
    }
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) { return shown(text, false); }
std::string printable_lines(std::string_view text) { return shown(text, true); }

}  // namespace attnforge
