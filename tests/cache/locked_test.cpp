// locked_test.cpp - another process keeps the file locked: one wait, and then again when it is
// free.
#include <chrono>

#include "attnforge/cache.h"
#include "attnforge/error.h"
#include "cache/rows.h"
#include "cache/store.h"
#include "support.h"

namespace attnforge::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class LockedTest : public CacheTest {
 protected:
  static void put(Store& store, int i) {
    store.write("storing tries", [&](Database& database) {
      put_try(database, good_try(i, 10 + i), Conflict::kReplace);
    });
  }
  static int tries(Store& store) {
    return store.read("look-up of tries", [](Database& database) {
      return static_cast<int>(database.integer("SELECT count(*) FROM tries"));
    });
  }
  template <class Work>
  static double seconds(Work&& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
};

TEST_F(LockedTest, ALockAtOpeningIsTriedAgainByTheNextWrite) {
  Cache(path()).put({good_try(0, 10)});
  Database other = raw();
  other.execute("BEGIN EXCLUSIVE");
  Store store(path(), false, log(), {.read_ms = 20, .write_ms = 20});
  EXPECT_EQ(store.path(), ":memory:");
  EXPECT_THAT(messages_, ElementsAre(HasSubstr("until it can be written")));
  put(store, 1);
  EXPECT_EQ(store.path(), ":memory:") << "it is still locked";
  EXPECT_EQ(tries(store), 1);
  EXPECT_THAT(messages_, SizeIs(1));
  other.execute("ROLLBACK");
  put(store, 2);
  EXPECT_EQ(store.path(), path());
  EXPECT_EQ(tries(store), 3) << "what memory kept went into the file";
  EXPECT_THAT(messages_, ElementsAre(::testing::_, HasSubstr("1 try")));
}

TEST_F(LockedTest, AHeldWriteLockCostsOneWait) {
  Store store(path(), false, log(), {.read_ms = 50, .write_ms = 300});
  put(store, 0);
  Database other = raw();
  other.execute("BEGIN IMMEDIATE");
  const double waited = seconds([&] {
    for (int i = 1; i <= 4; ++i) EXPECT_THROW(put(store, i), Error) << i;
  });
  EXPECT_GE(waited, 0.25);
  EXPECT_LT(waited, 0.9);
  EXPECT_EQ(tries(store), 1) << "readers are not stopped";
  other.execute("ROLLBACK");
  put(store, 5);
  EXPECT_EQ(tries(store), 2);
}

TEST_F(LockedTest, AReaderOfALockedFileMissesAndSaysSoAfterOneWait) {
  Store store(path(), false, log(), {.read_ms = 300, .write_ms = 400});
  put(store, 0);
  Database other = raw();
  other.execute("BEGIN EXCLUSIVE");
  const double waited = seconds([&] {
    EXPECT_EQ(tries(store), 0);
    EXPECT_THAT(messages_, SizeIs(1));
    for (int i = 0; i < 2; ++i) EXPECT_EQ(tries(store), 0);
    EXPECT_THROW(put(store, 1), Error);
  });
  EXPECT_GE(waited, 0.25);
  EXPECT_LT(waited, 0.6);
  other.execute("ROLLBACK");
  EXPECT_EQ(tries(store), 1);
}

TEST_F(LockedTest, TheNextLockIsWaitedForAgain) {
  Store store(path(), false, log(), {.read_ms = 50, .write_ms = 200});
  put(store, 0);
  for (int round = 0; round < 2; ++round) {
    Database other = raw();
    other.execute("BEGIN IMMEDIATE");
    EXPECT_GE(seconds([&] { EXPECT_THROW(put(store, 1), Error); }), 0.15) << round;
    other.execute("ROLLBACK");
    put(store, 1);
  }
}

}  // namespace
}  // namespace attnforge::testing
