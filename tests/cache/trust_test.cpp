// trust_test.cpp - a database that others could have written decides which code runs: it is
// refused.
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "attnforge/cache.h"
#include "attnforge/error.h"
#include "cache/file/trust.h"
#include "support.h"

namespace attnforge::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TrustTest : public CacheTest {
 protected:
  void SetUp() override {
    Cache cache(path());
    cache.put({good_try(1, 10)});
  }
  void TearDown() override { unsetenv("ATTNFORGE_CACHE_TRUST"); }

  // Refused, with the reason said once, and nothing is touched.
  void expect_refused(const std::string& reason) {
    messages_.clear();
    const std::string before = read_file(path());
    Cache cache(path(), false, log());
    EXPECT_EQ(cache.path(), ":memory:");
    EXPECT_FALSE(cache.best(kProblem, current(), digest_of));
    cache.put({good_try(2, 5)});
    EXPECT_TRUE(cache.best(kProblem, current(), digest_of)) << "it goes on in memory";
    EXPECT_THAT(messages_,
                ElementsAre(AllOf(HasSubstr(reason), HasSubstr("ATTNFORGE_CACHE_TRUST"))));
    EXPECT_TRUE(read_file(path()) == before);
    EXPECT_THAT(cache_objection(path()), HasSubstr(reason));
    EXPECT_THROW(cache_list(path()), Error);
    EXPECT_THROW(cache_clear(path(), ""), Error);
    setenv("ATTNFORGE_CACHE_TRUST", "any", 1);
    EXPECT_EQ(cache_objection(path()), "");
    EXPECT_TRUE(Cache(path()).best(kProblem, current(), digest_of));
    unsetenv("ATTNFORGE_CACHE_TRUST");
  }
};

TEST_F(TrustTest, ItsOwnIsUsed) {
  EXPECT_EQ(cache_objection(path()), "");
  EXPECT_TRUE(Cache(path(), false, log()).best(kProblem, current(), digest_of));
  EXPECT_THAT(messages_, IsEmpty());
}

TEST_F(TrustTest, AFileThatEveryUserCanWriteIsRefused) {
  chmod(path().c_str(), 0666);
  expect_refused("can be written by every user");
}

TEST_F(TrustTest, AFileThatItsGroupCanWriteIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file to another group";
  ASSERT_EQ(chown(path().c_str(), 0, 65534), 0);
  chmod(path().c_str(), 0660);
  expect_refused("can be written by its group");
}

TEST_F(TrustTest, AFileOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  give_to_nobody(path());
  expect_refused("belongs to ");
}

TEST_F(TrustTest, AJournalOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  for (const char* suffix : {"-journal", "-wal", "-shm"}) {
    write_file(path() + suffix, "");
    give_to_nobody(path() + suffix);
    expect_refused(suffix);
    fs::remove(path() + suffix);
  }
}

TEST_F(TrustTest, AFolderThatEveryUserCanWriteIsRefused) {
  chmod(folder_.path("").c_str(), 0777);
  expect_refused("can be written by every user");
}

TEST_F(TrustTest, AFolderThatItsGroupCanWriteIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder to another group";
  ASSERT_EQ(chown(folder_.path("").c_str(), 0, 65534), 0);
  chmod(folder_.path("").c_str(), 0775);
  expect_refused("can be written by its group");
  chmod(folder_.path("").c_str(), 02755);
  EXPECT_EQ(cache_objection(path()), "") << "a group that can only read";
}

TEST_F(TrustTest, AFolderAboveThatOthersCanWriteIsRefused) {
  const std::string above = folder_.path("above"), below = above + "/own/deep";
  fs::create_directories(below);
  for (const char* name : {"/own", "/own/deep"}) chmod((above + name).c_str(), 0700);
  fs::rename(path(), below + "/attnforge.db");
  fs::create_symlink(below + "/attnforge.db", path());
  chmod(above.c_str(), 0777);
  expect_refused("above can be written by every user");
  chmod(above.c_str(), 01777);
  EXPECT_EQ(cache_objection(path()), "") << "only its owner can rename what is in it, as in /tmp";
  if (geteuid() != 0) return;
  ASSERT_EQ(chown(above.c_str(), 0, 65534), 0);
  chmod(above.c_str(), 0770);
  expect_refused("above can be written by its group");
  chmod(above.c_str(), 0700);
  EXPECT_EQ(cache_objection(path()), "");
  give_to_nobody(above);
  expect_refused("above belongs to ");
}

// The system's folders in a container without root: their owner is nobody in there.
TEST_F(TrustTest, AFolderAboveOfNobodyInThisUserNamespaceIsTrusted) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  constexpr int kNoNamespace = 77;
  const std::string above = folder_.path("above"), own = above + "/own";
  fs::create_directories(own);
  chmod(own.c_str(), 0700);
  give_to_nobody(above);
  EXPECT_THAT(reason_for_distrust(own + "/a.db"), HasSubstr("belongs to "));
  const auto inside = [&](const std::function<bool()>& work) {
    return wait_for(start_child([&]() -> bool {
      if (unshare(CLONE_NEWUSER) != 0) _exit(kNoNamespace);
      write_file("/proc/self/uid_map", "1000 0 1");
      if (geteuid() != 1000) _exit(kNoNamespace);
      return work();
    }));
  };
  const int status = inside([&] { return reason_for_distrust(own + "/a.db").empty(); });
  if (status == kNoNamespace) GTEST_SKIP() << "user namespaces are not allowed here";
  EXPECT_EQ(status, 0);
  EXPECT_EQ(inside([&] { return !reason_for_distrust(above + "/a.db").empty(); }), 0)
      << "the database's own folder must be this user's";
  chmod(above.c_str(), 0777);
  EXPECT_EQ(inside([&] { return !reason_for_distrust(own + "/a.db").empty(); }), 0);
}

TEST_F(TrustTest, AFileRightInTheFolderForTemporaryFilesIsRefused) {
  chmod(folder_.path("").c_str(), 01777);
  expect_refused("mkdir -m 700");
  chmod(folder_.path("").c_str(), 0755);
}

TEST_F(TrustTest, AFolderOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  give_to_nobody(folder_.path(""));
  expect_refused("the folder");
}

TEST_F(TrustTest, WhereALinkLeadsIsWhatCounts) {
  fs::create_directory(folder_.path("open"));
  chmod(folder_.path("open").c_str(), 0777);
  fs::create_symlink(path(), folder_.path("open/link.db"));
  EXPECT_TRUE(Cache(folder_.path("open/link.db")).best(kProblem, current(), digest_of))
      << "who puts a link there can only name a database of this user's";
  fs::rename(path(), folder_.path("open/attnforge.db"));
  fs::create_symlink(folder_.path("open/attnforge.db"), path());
  expect_refused("can be written by every user");
}

TEST_F(TrustTest, NothingIsMadeInAFolderThatIsRefused) {
  fs::remove(path());
  fs::remove(path() + "-journal");
  chmod(folder_.path("").c_str(), 0777);
  Cache cache(path(), false, log());
  EXPECT_EQ(cache.path(), ":memory:");
  EXPECT_THAT(folder_.files(), IsEmpty());
  EXPECT_THAT(cache_objection(path()), HasSubstr("every user"));
}

TEST_F(TrustTest, NothingIsMadeBelowAFolderThatIsRefused) {
  const std::string open = folder_.path("open");
  fs::create_directory(open);
  chmod(open.c_str(), 0777);
  EXPECT_EQ(Cache(open + "/a/b.db", false, log()).path(), ":memory:");
  EXPECT_TRUE(fs::is_empty(open));
  EXPECT_THAT(cache_objection(open + "/a/b.db"), HasSubstr("every user"));
}

TEST_F(TrustTest, ALinkToNothingYetLeadsWhereTheFileIsMade) {
  const std::string link = folder_.path("link.db"), open = folder_.path("open");
  fs::create_directory(open);
  chmod(open.c_str(), 0777);
  fs::create_symlink("open/new.db", link);
  EXPECT_EQ(Cache(link, false, log()).path(), ":memory:");
  EXPECT_TRUE(fs::is_empty(open));
  EXPECT_THAT(cache_objection(link), HasSubstr("every user"));

  fs::remove(link);
  fs::create_symlink("made/../new.db", link);
  const mode_t before = umask(0);
  Cache(link, false, log()).put({good_try(1, 10)});
  umask(before);
  struct stat facts = {};
  ASSERT_EQ(stat(folder_.path("new.db").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0600u);
  EXPECT_TRUE(Cache(link).best(kProblem, current(), digest_of));
}

TEST_F(TrustTest, WhatIsNoFileIsRefusedInWords) {
  fs::create_directory(folder_.path("folder"));
  ASSERT_EQ(mkfifo(folder_.path("fifo").c_str(), 0600), 0);
  fs::create_symlink("b", folder_.path("a"));
  fs::create_symlink("a", folder_.path("b"));
  for (const auto& [name, reason] :
       std::map<std::string, std::string>{{"folder", "is a folder"},
                                          {"fifo", "is no file"},
                                          {"a", "a loop of symbolic links"},
                                          {"a/below.db", "a loop of symbolic links"}}) {
    for (const char* trust : {"own", "any"}) {
      setenv("ATTNFORGE_CACHE_TRUST", trust, 1);
      EXPECT_THAT(cache_objection(folder_.path(name)), HasSubstr(reason));
      Cache cache(folder_.path(name), false, log());
      EXPECT_EQ(cache.path(), ":memory:");
      EXPECT_THAT(cache.not_kept(), HasSubstr(reason));
    }
  }
}

TEST_F(TrustTest, AFileThatCannotBeMadeIsObjectedToAndNothingIsLeftBehind) {
  fs::create_directory(folder_.path("empty"));
  const std::string empty = folder_.path("empty") + "/";
  std::ofstream(folder_.path("file")) << "text";
  const std::string letters(300, 'x');
  std::string deep = empty;
  while (deep.size() < 1000) deep += "folder/";
  for (const auto& [path, reason] : std::map<std::string, std::string>{
           {folder_.path("file") + "/x.db", "file is no folder"},
           {folder_.path("file") + "/below/x.db", "file is no folder"},
           {empty + letters, "its name has 300 bytes"},
           {empty + letters.substr(0, 250), "its name has 250 bytes, of which there may be 247"},
           {empty + letters + "/x.db", "the name of a folder has 300 bytes"},
           {deep + "x.db", "its path has "},
           {"/proc/nowhere/x.db", "/proc cannot be written"}}) {
    EXPECT_THAT(cache_objection(path), AllOf(HasSubstr(reason), HasSubstr("cannot be made")));
    Cache cache(path, false, log());
    EXPECT_NE(cache.not_kept(), "") << path << ": a store finds the same";
  }
  fs::remove_all(folder_.path("empty"));
  fs::create_directory(folder_.path("empty"));
  for (const std::string& path :
       {empty + "x.db", empty + "a/b/x.db", empty + letters.substr(0, 247)}) {
    EXPECT_EQ(cache_objection(path), "");
    EXPECT_TRUE(fs::is_empty(empty));
    EXPECT_EQ(Cache(path, false, log()).not_kept(), "");
    fs::remove_all(folder_.path("empty"));
    fs::create_directory(folder_.path("empty"));
  }
}

TEST_F(TrustTest, RealPathsHaveNoLinks) {
  const std::string here = real_path(folder_.path(""));
  fs::create_directories(folder_.path("one/two"));
  fs::create_symlink("one/two", folder_.path("link"));
  fs::create_symlink(folder_.path("none/x"), folder_.path("dangling"));
  EXPECT_EQ(real_path(folder_.path("link/../x.db")), here + "/one/x.db");
  EXPECT_EQ(real_path(folder_.path("./dangling/../y.db")), here + "/none/y.db");
  EXPECT_EQ(real_path("x.db"), fs::current_path().string() + "/x.db");
  EXPECT_EQ(real_path("/../x.db"), "/x.db");
}

TEST_F(TrustTest, RootsDatabaseCanBeRead) {
  if (geteuid() != 0) GTEST_SKIP() << "this user is not root";
  chmod(path().c_str(), 0644);
  EXPECT_EQ(in_child([&] {
              become_nobody();
              Cache cache(path());
              return cache.path() == path() &&
                     cache.best(kProblem, current(), digest_of).has_value();
            }),
            0);
}

TEST_F(TrustTest, FoldersAndFilesAreMadeForTheirUserAlone) {
  const mode_t before = umask(0);
  const std::string made = folder_.path("a/b/winners.db");
  Cache cache(made);
  cache.put({good_try(1, 10)});
  umask(before);
  const auto mode = [](const std::string& path) {
    struct stat facts = {};
    EXPECT_EQ(stat(path.c_str(), &facts), 0) << path;
    return facts.st_mode & 07777;
  };
  EXPECT_EQ(mode(folder_.path("a")), 0700u);
  EXPECT_EQ(mode(folder_.path("a/b")), 0700u);
  EXPECT_EQ(mode(made), 0600u);
  EXPECT_EQ(mode(made + "-journal"), 0600u);
}

}  // namespace
}  // namespace attnforge::testing
