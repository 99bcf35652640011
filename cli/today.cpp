#include "cli/today.h"

#include <fmt/chrono.h>

namespace attnforge::cli {

std::string utc_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

std::string utc_date() { return utc_now().substr(0, 10); }

}  // namespace attnforge::cli
