// trust_test.cpp - a database that others could have written decides which code runs: it is
// refused.
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attnforge/cache.h"
#include "attnforge/error.h"
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
