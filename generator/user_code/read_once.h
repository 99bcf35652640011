// read_once.h - what a text says by itself, read once for all that ask: a plan asks of the same
// text for each config that it looks at, and there are thousands.
#pragma once

#include <string>
#include <type_traits>

namespace attnforge {

/// read(text), kept by each thread for the text that it asked about last. The reference is good
/// until the thread asks about another one.
template <auto read>
const auto& read_once(const std::string& text) {
  struct Last {
    std::string text;
    std::decay_t<decltype(read(text))> found;
  };
  static thread_local Last last{text, read(text)};
  if (last.text != text) last = {text, read(text)};
  return last.found;
}

}  // namespace attnforge
