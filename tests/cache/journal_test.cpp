// journal_test.cpp - the choice between a rollback journal and WAL, and what opening costs other
// processes.
#include "cache/file/journal.h"

#include <stdlib.h>

#include "attnforge/cache.h"
#include "cache/file/network.h"
#include "cache/file/open.h"
#include "support.h"

namespace attnforge::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class JournalTest : public CacheTest {};

TEST(WalObjection, EachConditionCounts) {
  const JournalFacts good{.wal_asked = true, .sqlite_version = 3051003, .local_file_system = true};
  EXPECT_EQ(wal_objection(good), "");
  JournalFacts facts = good;
  facts.wal_asked = false;
  EXPECT_NE(wal_objection(facts), "");
  facts = good;
  facts.sqlite_version = 3040001;
  EXPECT_THAT(wal_objection(facts), HasSubstr("3.40.1"));
  facts = good;
  facts.local_file_system = false;
  EXPECT_THAT(wal_objection(facts), HasSubstr("local"));
}

TEST(OnLocalFileSystem, ProcIsLocalAndAMissingFolderIsNot) {
  EXPECT_TRUE(on_local_file_system("/proc/attnforge.db"));
  EXPECT_FALSE(on_local_file_system("/no such folder/attnforge.db"));
}

TEST_F(JournalTest, RollbackJournalByDefault) {
  Cache cache(path(), false, log());
  cache.put({good_try(1, 10)});
  EXPECT_EQ(cache_stats(path()).journal_mode, "truncate");
  EXPECT_EQ(raw().text("PRAGMA journal_mode"), "delete");  // nothing about it is in the file
  EXPECT_THAT(messages_, IsEmpty());
}

TEST_F(JournalTest, WalIsUsedOnlyWhereItIsSafe) {
  setenv("ATTNFORGE_CACHE_WAL", "1", 1);
  Cache cache(path(), false, log());
  cache.put({good_try(1, 10)});
  const std::string mode = cache_stats(path()).journal_mode;
  unsetenv("ATTNFORGE_CACHE_WAL");
  const std::string objection = wal_objection({.wal_asked = true,
                                               .sqlite_version = sqlite3_libversion_number(),
                                               .local_file_system = on_local_file_system(path())});
  EXPECT_EQ(mode, objection.empty() ? "wal" : "truncate");
  if (objection.empty()) {
    EXPECT_THAT(messages_, IsEmpty());
  } else {
    EXPECT_THAT(messages_, Contains(HasSubstr(objection)));
  }
}

TEST_F(JournalTest, AFileLeftInWalModeIsTurnedBack) {
  Cache(path()).put({good_try(1, 10)});
  EXPECT_EQ(raw().text("PRAGMA journal_mode = WAL"), "wal");
  Cache cache(path(), false, log());
  EXPECT_EQ(cache.tries(kProblem, kH200).size(), 1u);
  EXPECT_EQ(raw().text("PRAGMA journal_mode"), "delete");
  EXPECT_THAT(messages_, IsEmpty());
}

TEST_F(JournalTest, AFileThatOthersHoldInWalModeIsUsedAsItIs) {
  Cache(path()).put({good_try(1, 10)});
  Database other = raw();
  EXPECT_EQ(other.text("PRAGMA journal_mode = WAL"), "wal");
  other.integer("SELECT count(*) FROM tries");
  other.execute("BEGIN; SELECT * FROM tries;");
  Cache cache(path(), false, log());
  EXPECT_EQ(cache.tries(kProblem, kH200).size(), 1u);
  EXPECT_THAT(messages_, Contains(HasSubstr("keeps its journal mode wal")));
}

TEST_F(JournalTest, OpeningAndReadingTakeNoWriteLock) {
  Cache(path()).put({good_try(1, 10)});
  Database writer = raw();
  WriteTransaction transaction(writer);  // any attempt to write would now wait
  writer.execute("UPDATE tries SET noise = 0.5");
  Cache cache(path(), false, log());
  EXPECT_TRUE(cache.best(kProblem, current(), digest_of));
  EXPECT_EQ(cache_list(path()).size(), 1u);
  EXPECT_THAT(messages_, IsEmpty());
}

TEST_F(JournalTest, FileIsStampedAsOurs) {
  Cache cache(path());
  EXPECT_EQ(raw().integer("PRAGMA application_id"), kApplicationId);
  EXPECT_EQ(raw().integer("PRAGMA user_version"), kSchemaVersion);
}

}  // namespace
}  // namespace attnforge::testing
