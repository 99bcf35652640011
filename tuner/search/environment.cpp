#include "tuner/search/environment.h"

#include <chrono>
#include <thread>
#include <utility>

namespace attnforge {

TuneEnvironment with_clock(TuneEnvironment environment) {
  if (!environment.now_s) {
    environment.now_s = [] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
          .count();
    };
  }
  if (!environment.sleep_s) {
    environment.sleep_s = [](double seconds) {
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    };
  }
  return environment;
}

void log(const TuneEnvironment& environment, LogLevel level, const std::string& message) {
  if (environment.log) environment.log(level, message);
}

}  // namespace attnforge
