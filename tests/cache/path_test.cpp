// path_test.cpp - where the database lies by default.
#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

#include <optional>

#include "attnforge/cache.h"
#include "cache/file/path.h"
#include "support.h"

namespace attnforge::testing {
namespace {

// Sets or, with nullptr, unsets a variable for the life of the object.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* old = getenv(name)) old_ = old;
    value ? setenv(name, value, 1) : unsetenv(name);
  }
  ~Environment() { old_ ? setenv(name_, old_->c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

TEST(DefaultCachePath, TheEnvironmentDecides) {
  const Environment home("HOME", "/home/ada");
  const Environment xdg("XDG_CACHE_HOME", "/var/cache/ada");
  {
    const Environment own("ATTNFORGE_CACHE", "/data/winners.db");
    EXPECT_EQ(default_cache_path(), "/data/winners.db");
  }
  {
    const Environment of_home("ATTNFORGE_CACHE", "~/x.db");
    EXPECT_EQ(default_cache_path(), "/home/ada/x.db");
    EXPECT_EQ(asked_cache_path(""), "/home/ada/x.db");
  }
  EXPECT_EQ(asked_cache_path("~/y.db"), "/home/ada/y.db");
  EXPECT_EQ(asked_cache_path("~ada/y.db"), "~ada/y.db");
  const Environment own("ATTNFORGE_CACHE", nullptr);
  EXPECT_EQ(default_cache_path(), "/var/cache/ada/attnforge/attnforge.db");
  {
    const Environment relative("XDG_CACHE_HOME", "cache");
    EXPECT_EQ(default_cache_path(), "/home/ada/.cache/attnforge/attnforge.db");
  }
  const Environment no_xdg("XDG_CACHE_HOME", nullptr);
  EXPECT_EQ(default_cache_path(), "/home/ada/.cache/attnforge/attnforge.db");
  const Environment empty("ATTNFORGE_CACHE", "");
  EXPECT_EQ(default_cache_path(), "/home/ada/.cache/attnforge/attnforge.db");
}

TEST(DefaultCachePath, AServiceWithoutHomeUsesItsAccount) {
  const Environment own("ATTNFORGE_CACHE", nullptr);
  const Environment xdg("XDG_CACHE_HOME", nullptr);
  const Environment home("HOME", nullptr);
  const passwd* account = getpwuid(geteuid());
  if (!account) GTEST_SKIP() << "this user has no account";
  EXPECT_EQ(default_cache_path(),
            (std::filesystem::path(account->pw_dir) / ".cache/attnforge/attnforge.db").string());
}

TEST(DefaultCachePath, ARelativeHomeIsNone) {
  const Environment own("ATTNFORGE_CACHE", nullptr);
  const Environment xdg("XDG_CACHE_HOME", nullptr);
  const Environment home("HOME", "somewhere");
  const std::string path = default_cache_path();
  EXPECT_TRUE(path == ":memory:" || std::filesystem::path(path).is_absolute()) << path;
}

TEST(DefaultCachePath, NobodysProcessWithoutHomeKeepsItsResultsInMemoryAndSaysSo) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become an account that does not exist";
  const auto cache_without_home = [] {
    unsetenv("ATTNFORGE_CACHE");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    if (setuid(4'000'000) != 0 || getpwuid(geteuid()) != nullptr) return false;
    std::string said;
    const auto log = [&](LogLevel level, std::string_view message) {
      if (level == LogLevel::kWarning) said += message;
    };
    Cache cache("", false, log);
    cache.put({good_try(1, 10)});
    const bool warned = said.find("no home folder") != said.npos &&
                        said.find("ATTNFORGE_CACHE") != said.npos;
    said.clear();
    Cache wished(":memory:", false, log);
    return warned && said.empty() && cache.path() == ":memory:" &&
           cache.tries(kProblem, kH200).size() == 1;
  };
  EXPECT_EQ(in_child(cache_without_home), 0);
}

TEST(DefaultCachePath, FolderAndFileAreMade) {
  const Folder folder;
  const Environment own("ATTNFORGE_CACHE", nullptr);
  const Environment xdg("XDG_CACHE_HOME", folder.path("deep/er").c_str());
  Cache cache("");
  EXPECT_EQ(cache.path(), folder.path("deep/er/attnforge/attnforge.db"));
  EXPECT_TRUE(std::filesystem::exists(cache.path()));
}

}  // namespace
}  // namespace attnforge::testing
