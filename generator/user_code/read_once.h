// read_once.h - what a text says by itself, read once for all that ask: a plan asks of the same
// text for each config that it looks at, and there are thousands.
#pragma once

#include <tuple>
#include <type_traits>

namespace attnforge {

/// read(texts...), kept by each thread for the texts that it asked about last. The reference is
/// good until the thread asks about others.
template <auto read, class... Text>
const auto& read_once(const Text&... texts) {
  struct Last {
    std::tuple<Text...> asked;
    std::decay_t<decltype(read(texts...))> found;
  };
  static thread_local Last last{{texts...}, read(texts...)};
  if (last.asked != std::tie(texts...)) last = {{texts...}, read(texts...)};
  return last.found;
}

}  // namespace attnforge
