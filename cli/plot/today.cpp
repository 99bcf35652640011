#include "cli/plot/today.h"

#include <ctime>

namespace attnforge::cli {

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string utc_date() { return utc_now().substr(0, 10); }

}  // namespace attnforge::cli
