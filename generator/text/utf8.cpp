#include "generator/text/utf8.h"

namespace attnforge {

std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto tail = [&](std::size_t i) { return (byte(i) & 0xC0u) == 0x80u; };
  const unsigned lead = byte(at);
  const unsigned next = byte(at + 1);
  if (lead < 0x80) return lead != 0 ? 1 : 0;
  if (lead >= 0xC2 && lead <= 0xDF) return tail(at + 1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const bool second = tail(at + 1) && (lead != 0xE0 || next >= 0xA0) &&
                        (lead != 0xED || next < 0xA0);
    return second && tail(at + 2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const bool second = tail(at + 1) && (lead != 0xF0 || next >= 0x90) &&
                        (lead != 0xF4 || next < 0x90);
    return second && tail(at + 2) && tail(at + 3) ? 4 : 0;
  }
  return 0;
}

}  // namespace attnforge
