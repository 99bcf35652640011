// path.cpp - where the database lies: as someone says, or when no one does.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "attnforge/cache.h"
#include "cache/file/path.h"
#include "cache/file/process.h"

namespace attnforge {
namespace {

std::string environment(const char* name) {
  const char* value = secure_getenv(name);
  return value ? value : "";
}

// Services and containers run without $HOME; the account still has a home. "": none, or none that
// would be the same folder for every process.
std::string home_folder() {
  if (std::string home = environment("HOME"); std::filesystem::path(home).is_absolute())
    return home;
  const std::optional<Account> account = account_of(geteuid());
  return account && std::filesystem::path(account->home).is_absolute() ? account->home : "";
}

}  // namespace

std::string asked_cache_path(const std::string& path) {
  if (path.empty()) return default_cache_path();
  const std::string home = path.starts_with("~/") ? home_folder() : "";
  return home.empty() ? path : home + path.substr(1);
}

std::string default_cache_path() {
  if (const std::string path = environment("ATTNFORGE_CACHE"); !path.empty())
    return asked_cache_path(path);
  // The XDG specification: a relative path there is to be ignored.
  std::filesystem::path folder = environment("XDG_CACHE_HOME");
  if (!folder.is_absolute()) {
    const std::string home = home_folder();
    if (home.empty()) return ":memory:";
    folder = std::filesystem::path(home) / ".cache";
  }
  return (folder / "attnforge" / "attnforge.db").string();
}

}  // namespace attnforge
