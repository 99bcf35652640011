// environment.h - environment variables for the length of a test.
#pragma once

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

namespace attnforge::test {

/// Sets variables; puts back what was there when it ends.
class ScopedEnvironment {
 public:
  explicit ScopedEnvironment(const std::map<std::string, std::string>& variables) {
    for (const auto& [name, value] : variables) {
      const char* const old = std::getenv(name.c_str());
      old_[name] = old == nullptr ? std::nullopt : std::optional<std::string>(old);
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
  ~ScopedEnvironment() {
    for (const auto& [name, value] : old_) {
      if (value) {
        setenv(name.c_str(), value->c_str(), 1);
      } else {
        unsetenv(name.c_str());
      }
    }
  }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  std::map<std::string, std::optional<std::string>> old_;
};

}  // namespace attnforge::test
