#include "generator/reason.h"

#include <fmt/format.h>

namespace attnforge {

std::string Reason::text() const {
  if (!made_.empty()) return made_;
  const auto& [a, b, c, d] = numbers_;
  return fmt::format(fmt::runtime(format_), a, b, c, d);  // those beyond its {} are not read
}

}  // namespace attnforge
