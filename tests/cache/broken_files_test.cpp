// broken_files_test.cpp - files that are damaged, foreign, too new, gone, or cannot be written.
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>

#include "attnforge/cache.h"
#include "attnforge/error.h"
#include "cache/file/open.h"
#include "support.h"

namespace attnforge::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

class BrokenFilesTest : public CacheTest {
 protected:
  // Files that were set aside, without their journals.
  std::vector<std::string> set_aside() const {
    std::vector<std::string> found;
    for (const std::string& name : folder_.files())
      if (name.find(".corrupt-") != std::string::npos && name.find("-journal") == std::string::npos)
        found.push_back(name);
    return found;
  }
  void make_file(int tries) {
    Cache cache(path());
    std::vector<Try> batch;
    for (int i = 0; i < tries; ++i) batch.push_back(good_try(i, 10 + i));
    cache.put(batch);
    cache.put_cubin(cubin("d"), "source", "f");
  }
  void overwrite(std::size_t offset, std::size_t bytes) {
    std::string data = read_file(path());
    for (std::size_t i = offset; i < std::min(data.size(), offset + bytes); ++i)
      data[i] = static_cast<char>(0xA5 ^ (i * 31));
    write_file(path(), data);
  }
};

// ---- damaged ----

TEST_F(BrokenFilesTest, AFileThatIsNoDatabaseIsSetAside) {
  const std::string text(5000, 'x');
  write_file(path(), text);
  Cache cache(path(), false, log());
  EXPECT_EQ(cache.path(), path());
  EXPECT_THAT(messages_, ElementsAre(HasSubstr("is damaged")));
  ASSERT_THAT(set_aside(), SizeIs(1));
  EXPECT_THAT(set_aside()[0], StartsWith("attnforge.db.corrupt-20"));
  EXPECT_EQ(read_file(folder_.path(set_aside()[0])), text);
  cache.put({good_try(1, 10)});
  EXPECT_TRUE(Cache(path()).best(kProblem, current(), digest_of));
}

TEST_F(BrokenFilesTest, TwoFilesWithinASecondGetTwoNames) {
  for (int i = 0; i < 3; ++i) {
    write_file(path(), std::string(5000, 'x'));
    Cache cache(path());
  }
  EXPECT_THAT(set_aside(), SizeIs(3));
}

TEST_F(BrokenFilesTest, DamageFoundByALookUpIsAMissThenANewFile) {
  make_file(2000);
  overwrite(8192, 200'000);
  Cache cache(path(), false, log());
  EXPECT_FALSE(cache.best(kProblem, current(), digest_of));
  EXPECT_THAT(messages_, ElementsAre(HasSubstr("is damaged")));
  EXPECT_THAT(set_aside(), SizeIs(1));
  cache.put({good_try(1, 10)});
  EXPECT_TRUE(cache.best(kProblem, current(), digest_of));
}

TEST_F(BrokenFilesTest, DamageFoundByAWriteIsWrittenToTheNewFile) {
  make_file(2000);
  overwrite(8192, 200'000);
  Cache cache(path(), false, log());
  cache.put({good_try(1, 10)});
  EXPECT_THAT(messages_, ElementsAre(HasSubstr("is damaged")));
  EXPECT_TRUE(Cache(path()).best(kProblem, current(), digest_of));
}

TEST_F(BrokenFilesTest, ACutFileIsNeverAnException) {
  make_file(500);
  const std::string whole = read_file(path());
  for (const double part : {0.0, 0.001, 0.01, 0.1, 0.5, 0.9, 0.999}) {
    write_file(path(),
               whole.substr(0, static_cast<std::size_t>(part * static_cast<double>(whole.size()))));
    Cache cache(path(), false, log());
    cache.best(kProblem, current(), digest_of);
    cache.get_cubin("d", "90a", kNvrtc);
    cache.put({good_try(1, 1)});
    const auto winner = cache.best(kProblem, current(), digest_of);
    ASSERT_TRUE(winner) << part;
    EXPECT_EQ(winner->best.measurement.time_us, 1) << part;
  }
}

// Any byte may be wrong: an answer, a miss or a new file, and never an exception or a wrong cubin.
TEST_F(BrokenFilesTest, FlippedBytesAreNeverAnException) {
  make_file(60);
  const std::string whole = read_file(path());
  const Cubin good = cubin("d");
  std::uint64_t random = 42;
  for (int round = 0; round < 150; ++round) {
    std::string data = whole;
    for (int flips = 0; flips < 1 + round % 20; ++flips) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      data[(random >> 20) % data.size()] ^= static_cast<char>(1 + (random >> 50) % 255);
    }
    write_file(path(), data);
    Cache cache(path(), false);
    cache.best(kProblem, current(), digest_of);
    cache.tries(kProblem, kH200);
    if (const auto found = cache.get_cubin("d", "90a", kNvrtc)) {
      EXPECT_EQ(found->bytes, good.bytes) << round;
    }
    try {
      cache.put({good_try(1, 10)});
    } catch (const Error& error) {
      // A flip can turn the schema into another valid one; that is refused in words.
      EXPECT_THAT(error.what(), HasSubstr(path())) << round;
    }
  }
}

TEST_F(BrokenFilesTest, AWalGoesWithItsDamagedFile) {
  make_file(2000);
  Database other = raw();
  ASSERT_EQ(other.text("PRAGMA journal_mode = WAL"), "wal");
  other.execute("BEGIN; SELECT * FROM problems;");
  overwrite(8192, 200'000);
  Cache cache(path(), false, log());
  EXPECT_FALSE(cache.best(kProblem, current(), digest_of));
  EXPECT_THAT(set_aside(), Contains(::testing::EndsWith("-wal")));
  EXPECT_THAT(folder_.files(), ::testing::Not(Contains("attnforge.db-wal")))
      << "it would be read as the new file's";
  cache.put({good_try(1, 10)});
  EXPECT_TRUE(cache.best(kProblem, current(), digest_of));
  EXPECT_EQ(raw().text("PRAGMA integrity_check"), "ok");
}

TEST_F(BrokenFilesTest, SeveralProcessesSetTheFileAsideOnce) {
  write_file(path(), std::string(5000, 'x'));
  std::vector<pid_t> children;
  for (int child = 0; child < 6; ++child)
    children.push_back(start_child([&, child] {
      Cache cache(path());
      cache.put({good_try(child, 10 + child)});
      return cache.path() == path();
    }));
  for (const pid_t child : children) EXPECT_EQ(wait_for(child), 0);
  EXPECT_THAT(set_aside(), SizeIs(1));
  EXPECT_THAT(Cache(path()).tries(kProblem, kH200), SizeIs(6)) << "nobody's new file was set aside";
}

TEST_F(BrokenFilesTest, ADamagedFileIsLeftAloneByAReader) {
  write_file(path(), std::string(5000, 'x'));
  Cache cache(path(), true, log());
  EXPECT_EQ(cache.path(), ":memory:");
  EXPECT_THAT(messages_, ElementsAre(HasSubstr("cannot be used")));
  EXPECT_THAT(folder_.files(), ElementsAre("attnforge.db"));
}

// ---- not ours, not yet ours, no longer there ----

TEST_F(BrokenFilesTest, AnotherApplicationsDatabaseIsNotTouched) {
  raw(SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE)
      .execute("CREATE TABLE mail (text); PRAGMA application_id = 1234;");
  const std::string before = read_file(path());
  Cache cache(path(), false, log());
  EXPECT_EQ(cache.path(), ":memory:");
  EXPECT_THAT(messages_, ElementsAre(HasSubstr("another application")));
  cache.put({good_try(1, 10)});
  EXPECT_TRUE(cache.best(kProblem, current(), digest_of)) << "it goes on in memory";
  EXPECT_EQ(read_file(path()), before);
}

TEST_F(BrokenFilesTest, ADatabaseWithoutAnIdIsAnotherApplications) {
  raw(SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE).execute("CREATE TABLE mail (text)");
  EXPECT_EQ(Cache(path(), false, log()).path(), ":memory:");
  EXPECT_THAT(messages_, ElementsAre(HasSubstr("another application")));
}

TEST_F(BrokenFilesTest, AnotherSchemaIsNotTouched) {
  make_file(1);
  for (const int version : {99, -1}) {
    raw().execute("PRAGMA user_version = " + std::to_string(version));
    const std::string before = read_file(path());
    messages_.clear();
    Cache cache(path(), false, log());
    EXPECT_EQ(cache.path(), ":memory:");
    EXPECT_THAT(messages_, ElementsAre(AllOf(HasSubstr("schema version " + std::to_string(version)),
                                             HasSubstr("this attnforge has 1"))));
    cache.put({good_try(1, 10)});
    EXPECT_EQ(read_file(path()), before);
  }
}

TEST_F(BrokenFilesTest, AFileThatGetsAnotherSchemaWhileOpenIsNotWrittenTo) {
  Cache cache(path(), false, log());
  raw().execute("PRAGMA user_version = 99");
  cache.put({good_try(1, 10)});
  EXPECT_EQ(cache.path(), ":memory:");
  EXPECT_TRUE(cache.best(kProblem, current(), digest_of));
  EXPECT_EQ(raw().integer("SELECT count(*) FROM tries"), 0);
}

TEST_F(BrokenFilesTest, AnEmptyFileIsANewOne) {
  write_file(path(), "");
  Cache cache(path(), false, log());
  cache.put({good_try(1, 10)});
  EXPECT_TRUE(Cache(path()).best(kProblem, current(), digest_of));
  EXPECT_THAT(messages_, IsEmpty());
}

TEST_F(BrokenFilesTest, AFileDeletedWhileOpenIsBegunAgain) {
  Cache cache(path(), false, log());
  cache.put({good_try(1, 10)});
  fs::remove(path());
  cache.put({good_try(2, 20)});
  EXPECT_THAT(messages_, ElementsAre(HasSubstr("renamed or deleted")));
  const auto tries = Cache(path()).tries(kProblem, kH200);
  ASSERT_THAT(tries, SizeIs(1));
  EXPECT_EQ(tries[0].config, config(2));
}

TEST_F(BrokenFilesTest, AFolderInTheFilesPlace) {
  fs::create_directory(path());
  Cache cache(path(), false, log());
  EXPECT_EQ(cache.path(), ":memory:");
  EXPECT_THAT(messages_, ElementsAre(HasSubstr("cannot be used")));
}

TEST_F(BrokenFilesTest, AFileInTheFoldersPlace) {
  write_file(folder_.path("file"), "");
  Cache cache(folder_.path("file/attnforge.db"), false, log());
  EXPECT_EQ(cache.path(), ":memory:");
  EXPECT_THAT(messages_, ElementsAre(HasSubstr("cannot be used")));
}

// ---- read-only ----

TEST_F(BrokenFilesTest, AskedToReadOnly) {
  make_file(3);
  const std::string before = read_file(path());
  Cache cache(path(), true, log());
  EXPECT_TRUE(cache.best(kProblem, current(), digest_of));
  EXPECT_TRUE(cache.get_cubin("d", "90a", kNvrtc));
  cache.put({good_try(7, 1)});
  cache.put_cubin(cubin("e"), "source", "f");
  cache.finish(kProblem, kH200, Rigor::kFull, config(1));
  EXPECT_THAT(messages_, ElementsAre(HasSubstr("reading only"))) << "said once";
  EXPECT_EQ(read_file(path()), before);
  EXPECT_EQ(cache.best(kProblem, current(), digest_of)->best.config, config(0));
}

TEST_F(BrokenFilesTest, AskedToReadAFileThatIsNotThere) {
  Cache cache(path(), true, log());
  EXPECT_EQ(cache.path(), ":memory:");
  EXPECT_FALSE(cache.best(kProblem, current(), digest_of));
  EXPECT_THAT(folder_.files(), IsEmpty());
}

// Runs `work` as a user who may not write `folder_`, or `path()` if `file_only`.
class ReadOnlyPlaceTest : public BrokenFilesTest {
 protected:
  int as_reader(const std::function<bool(Cache&, std::vector<std::string>&)>& work,
                bool file_only = false) {
    give_to_nobody(folder_.path(""));
    if (fs::exists(path())) {
      give_to_nobody(path());
      fs::permissions(path(), file_only ? fs::perms(0444) : fs::perms(0644));
      fs::remove(path() + "-journal");
    }
    if (!file_only) fs::permissions(folder_.path(""), fs::perms(0555));
    const int status = in_child([&] {
      become_nobody();
      std::vector<std::string> said;
      Cache cache(path(), false,
                  [&](LogLevel, std::string_view message) { said.emplace_back(message); });
      const bool good = work(cache, said);
      if (!good)
        for (const std::string& message : said) std::fprintf(stderr, "said: %s\n", message.c_str());
      return good;
    });
    fs::permissions(folder_.path(""), fs::perms::owner_all);
    return status;
  }
  static bool reads_but_does_not_write(Cache& cache, std::vector<std::string>& said) {
    const bool found = cache.best(kProblem, current(), digest_of).has_value() &&
                       cache.get_cubin("d", "90a", kNvrtc);
    cache.put({good_try(9, 1)});
    cache.put({good_try(9, 1)});
    cache.finish(kProblem, kH200, Rigor::kFull, config(2));
    return found && said.size() == 1 && said[0].find("read-only") != std::string::npos &&
           cache.path() != ":memory:" &&
           cache.best(kProblem, current(), digest_of)->best.config == config(0);
  }
};

TEST_F(ReadOnlyPlaceTest, FolderWithACurrentFile) {
  make_file(3);
  EXPECT_EQ(as_reader(reads_but_does_not_write), 0);
}

TEST_F(ReadOnlyPlaceTest, FileInAWritableFolder) {
  make_file(3);
  EXPECT_EQ(as_reader(reads_but_does_not_write, true), 0);
}

TEST_F(ReadOnlyPlaceTest, FolderWithoutAFile) {
  EXPECT_EQ(as_reader([](Cache& cache, std::vector<std::string>& said) {
              cache.put({good_try(1, 10)});
              return cache.path() == ":memory:" && said.size() == 1 &&
                     cache.best(kProblem, current(), digest_of).has_value();
            }),
            0);
}

TEST_F(ReadOnlyPlaceTest, FolderThatTurnsReadOnlyWhileOpen) {
  make_file(3);
  give_to_nobody(folder_.path(""));
  give_to_nobody(path());
  fs::remove(path() + "-journal");
  int opened[2], changed[2];
  ASSERT_EQ(pipe(opened), 0);
  ASSERT_EQ(pipe(changed), 0);
  const pid_t child = start_child([&] {
    become_nobody();
    std::vector<std::string> said;
    Cache cache(path(), false,
                [&](LogLevel, std::string_view message) { said.emplace_back(message); });
    char byte = 0;
    if (!said.empty() || write(opened[1], &byte, 1) != 1 || read(changed[0], &byte, 1) != 1)
      return false;
    cache.put({good_try(9, 1)});
    cache.put({good_try(9, 1)});
    return said.size() == 1 && said[0].find("cannot be written") != std::string::npos &&
           cache.best(kProblem, current(), digest_of)->best.config == config(0);
  });
  char byte = 0;
  ASSERT_EQ(read(opened[0], &byte, 1), 1);
  fs::permissions(folder_.path(""), fs::perms(0555));
  ASSERT_EQ(write(changed[1], &byte, 1), 1);
  EXPECT_EQ(wait_for(child), 0);
  fs::permissions(folder_.path(""), fs::perms::owner_all);
  for (const int descriptor : {opened[0], opened[1], changed[0], changed[1]}) close(descriptor);
}

// ---- full disk ----

// A limit on the size of files fails writes as a full disk or a quota does, on every file system
// and for every user.
bool limit_files_to(std::uintmax_t bytes) {
  signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
  limit.rlim_cur = bytes;
  return setrlimit(RLIMIT_FSIZE, &limit) == 0;
}

// Puts batches of 50 until one fails; true if it failed in words, whole batches are there, and the
// file is sound.
bool fills_up_in_words(const std::string& path) {
  Cache cache(path);
  if (cache.path() != path) return false;
  std::size_t stored = 0;
  bool failed = false;
  for (int batch = 0; batch < 1000 && !failed; ++batch) {
    std::vector<Try> tries;
    for (int i = 0; i < 50; ++i)
      tries.push_back(failed_try(50 * batch + i, Status::kCompileError, std::string(2000, 'x')));
    try {
      cache.put(tries);
      stored += tries.size();
    } catch (const Error& error) {
      failed = true;
      if (error.code() != ErrorCode::kCache ||
          std::string(error.what()).find("no space is left") == std::string::npos) {
        std::fprintf(stderr, "odd error: %s\n", error.what());
        return false;
      }
    }
  }
  const std::size_t there = cache.tries(kProblem, kH200).size();
  const CacheStats stats = cache_stats(path);
  if (!failed || stored == 0 || there != stored || !stats.healthy)
    std::fprintf(stderr, "failed %d, stored %zu, there %zu, health %s\n", failed, stored, there,
                 stats.health.c_str());
  return failed && stored > 0 && there == stored && stats.healthy;
}

TEST_F(BrokenFilesTest, FullDiskIsSaidAndNothingIsHalfWritten) {
  EXPECT_EQ(in_child([&] { return limit_files_to(2 << 20) && fills_up_in_words(path()); }), 0);
}

// Before a search, so that no minutes of measuring are lost.
TEST_F(BrokenFilesTest, WhatCannotBeKeptIsKnownFromATrial) {
  const auto trial = [](Cache& cache) {
    try {
      cache.require_keeping("results");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  Cache cache(path());
  EXPECT_EQ(trial(cache), "");
  EXPECT_EQ(raw().integer("SELECT count(*) FROM leases"), 0);
  EXPECT_EQ(in_child([&] {
              Cache full(path());
              if (!limit_files_to(1)) return false;
              const std::string said = trial(full);
              return said.starts_with("results cannot be stored: ") &&
                     said.find("no space is left") != said.npos;
            }),
            0);
  Cache memory(":memory:");
  EXPECT_EQ(trial(memory), "") << "as asked";
  Cache nowhere("/proc/nowhere/cache.db");
  EXPECT_THAT(trial(nowhere), HasSubstr("/proc/nowhere/cache.db cannot be used"));
  EXPECT_THAT(nowhere.not_kept(), HasSubstr("/proc/nowhere/cache.db cannot be used"));
  Cache read_only(path(), true);
  EXPECT_THAT(trial(read_only), HasSubstr("read-only"));
}

TEST_F(BrokenFilesTest, FullTmpfsIsSaidAndNothingIsHalfWritten) {
  constexpr int kNoMount = 77;
  const int status = wait_for(start_child([&]() -> bool {
    if (unshare(CLONE_NEWNS) != 0) _exit(kNoMount);
    if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) _exit(kNoMount);
    if (mount("tmpfs", folder_.path("").c_str(), "tmpfs", 0, "size=2m,mode=755") != 0)
      _exit(kNoMount);
    return fills_up_in_words(path());
  }));
  if (status == kNoMount) GTEST_SKIP() << "mounting is not allowed here";
  EXPECT_EQ(status, 0);
}

// Deleting needs a journal, for which there is no space either.
bool clear_cures(const std::string& path) {
  const auto before = fs::file_size(path);
  const int deleted = cache_clear(path, "");
  const auto after = fs::file_size(path);
  Cache cache(path);
  cache.put({good_try(1, 10)});
  const bool cured = cache.best(kProblem, current(), digest_of).has_value();
  if (deleted == 0 || after >= before / 2 || !cured)
    std::fprintf(stderr, "%d deleted, %ju bytes, then %ju\n", deleted, before, after);
  return deleted > 0 && after < before / 2 && cured && cache.path() == path &&
         cache_stats(path).healthy;
}

TEST_F(BrokenFilesTest, ClearCuresAFullDisk) {
  constexpr int kNoMount = 77;
  const int status = wait_for(start_child([&]() -> bool {
    if (unshare(CLONE_NEWNS) != 0) _exit(kNoMount);
    if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) _exit(kNoMount);
    if (mount("tmpfs", folder_.path("").c_str(), "tmpfs", 0, "size=2m,mode=755") != 0)
      _exit(kNoMount);
    if (!fills_up_in_words(path())) return false;
    std::ofstream rest(folder_.path("rest"));  // what the last transaction gave back
    rest << std::string(4 << 20, 'x') << std::flush;
    return clear_cures(path());
  }));
  if (status == kNoMount) GTEST_SKIP() << "mounting is not allowed here";
  EXPECT_EQ(status, 0);
}

TEST_F(BrokenFilesTest, ClearNeedsNoLargerFileThanTheOneThatIsThere) {
  make_file(400);
  fs::remove(path() + "-journal");
  EXPECT_EQ(in_child([&] { return limit_files_to(fs::file_size(path())) && clear_cures(path()); }),
            0);
}

TEST_F(BrokenFilesTest, SpaceThatComesBackIsUsed) {
  EXPECT_EQ(in_child([&] {
              Cache cache(path());
              cache.put({good_try(1, 10)});
              bool refused = false;
              if (!limit_files_to(1000)) return false;
              try {
                cache.put({good_try(2, 5)});
              } catch (const Error&) {
                refused = true;
              }
              if (!limit_files_to(100 << 20)) return false;
              cache.put({good_try(3, 7)});
              const auto winner = cache.best(kProblem, current(), digest_of);
              return refused && winner && winner->best.config == config(3);
            }),
            0);
}

TEST_F(BrokenFilesTest, NoRoomForANewFileIsNoException) {
  EXPECT_EQ(in_child([&] {
              std::vector<std::string> said;
              if (!limit_files_to(1000)) return false;
              Cache cache(path(), false,
                          [&](LogLevel, std::string_view message) { said.emplace_back(message); });
              cache.put({good_try(1, 10)});
              return cache.path() == ":memory:" && said.size() == 1 &&
                     cache.best(kProblem, current(), digest_of).has_value();
            }),
            0);
}

}  // namespace
}  // namespace attnforge::testing
