// migration_test.cpp - files of every past version are brought up to date.
#include <fmt/format.h>

#include <sstream>

#include "attnforge/cache.h"
#include "cache/file/open.h"
#include "support.h"

namespace attnforge::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Classes as all versions before 5 spelt them.
constexpr const char*
    kOldH200 = "NVIDIA H200 sm90a sms=132 memory_clock_mhz=3201 l2_bytes=62914560";
constexpr const char* kOldA10 = "NVIDIA A10 sm86 sms=72 memory_clock_mhz=6251 l2_bytes=6291456";

// As attnforge wrote it then; never to be changed.
constexpr const char* kVersion1 = R"sql(
CREATE TABLE tries (
  problem TEXT NOT NULL, device_class TEXT NOT NULL, config TEXT NOT NULL, digest TEXT NOT NULL,
  family TEXT NOT NULL, rigor TEXT NOT NULL, status TEXT NOT NULL, time_us REAL NOT NULL,
  noise REAL NOT NULL, samples INTEGER NOT NULL, max_error REAL, detail TEXT NOT NULL,
  driver TEXT NOT NULL, nvrtc TEXT NOT NULL, measured_at TEXT NOT NULL,
  PRIMARY KEY (problem, device_class, config, digest));
CREATE INDEX tries_by_problem ON tries (problem, device_class, time_us);
CREATE TABLE cubins (
  source_digest TEXT NOT NULL, arch TEXT NOT NULL, nvrtc TEXT NOT NULL,
  kernel_symbol TEXT NOT NULL, bytes BLOB NOT NULL, source TEXT NOT NULL,
  PRIMARY KEY (source_digest, arch, nvrtc));
PRAGMA application_id = 1098139239;
PRAGMA user_version = 1;
)sql";

constexpr const char* kVersion2 = R"sql(
CREATE TABLE problems (
  id   INTEGER PRIMARY KEY,
  text TEXT NOT NULL UNIQUE CHECK (text <> '')
) STRICT;
CREATE TABLE device_classes (
  id   INTEGER PRIMARY KEY,
  text TEXT NOT NULL UNIQUE CHECK (text <> ''),
  sm   INTEGER NOT NULL CHECK (sm >= 0)
) STRICT;
CREATE TABLE rigors (
  name TEXT PRIMARY KEY,
  rank INTEGER NOT NULL UNIQUE
) STRICT, WITHOUT ROWID;
INSERT INTO rigors VALUES ('quick', 0), ('full', 1), ('exhaustive', 2);
CREATE TABLE tries (
  id                INTEGER PRIMARY KEY,
  problem_id        INTEGER NOT NULL REFERENCES problems (id),
  device_class_id   INTEGER NOT NULL REFERENCES device_classes (id),
  config            TEXT    NOT NULL CHECK (config <> ''),
  digest            TEXT    NOT NULL,
  family            TEXT    NOT NULL,
  rigor             TEXT    NOT NULL REFERENCES rigors (name),
  estimate_us       REAL    NOT NULL,
  estimated         INTEGER NOT NULL CHECK (estimated IN (0, 1)),
  status            TEXT    NOT NULL
                    CHECK (status IN ('ok', 'compile_error', 'launch_error', 'wrong_result', 'timed_out')),
  time_us           REAL    NOT NULL,
  noise             REAL    NOT NULL,
  samples           INTEGER NOT NULL CHECK (samples >= 0),
  max_error         REAL,
  clock_mhz         REAL    NOT NULL,
  detail            TEXT    NOT NULL,
  driver            TEXT    NOT NULL,
  nvrtc             TEXT    NOT NULL,
  uuid              TEXT    NOT NULL,
  attnforge_version TEXT    NOT NULL,
  measured_at       TEXT    NOT NULL,
  UNIQUE (problem_id, device_class_id, config, digest),
  CHECK (status <> 'ok' OR estimated = 1 OR time_us > 0)
) STRICT;
CREATE INDEX tries_by_time ON tries (problem_id, device_class_id, time_us) WHERE status = 'ok' AND estimated = 0;
CREATE INDEX tries_by_digest ON tries (digest);
CREATE TABLE searches (
  problem_id      INTEGER NOT NULL REFERENCES problems (id),
  device_class_id INTEGER NOT NULL REFERENCES device_classes (id),
  rigor           TEXT    NOT NULL REFERENCES rigors (name),
  winner          TEXT    NOT NULL,
  finished_at     TEXT    NOT NULL,
  PRIMARY KEY (problem_id, device_class_id, rigor)
) STRICT, WITHOUT ROWID;
CREATE TABLE cubins (
  id                INTEGER PRIMARY KEY,
  source_digest     TEXT    NOT NULL CHECK (source_digest <> ''),
  arch              TEXT    NOT NULL,
  nvrtc             TEXT    NOT NULL,
  kernel_symbol     TEXT    NOT NULL,
  registers         INTEGER NOT NULL,
  smem_static_bytes INTEGER NOT NULL,
  stack_bytes       INTEGER NOT NULL,
  spill_store_bytes INTEGER NOT NULL,
  spill_load_bytes  INTEGER NOT NULL,
  wgmma_serialized  INTEGER NOT NULL CHECK (wgmma_serialized IN (0, 1)),
  compile_ms        REAL    NOT NULL,
  log               TEXT    NOT NULL,
  created_at        TEXT    NOT NULL,
  code_bytes        INTEGER NOT NULL,
  code_checksum     TEXT    NOT NULL,
  code              BLOB    NOT NULL,
  source            BLOB    NOT NULL,
  UNIQUE (source_digest, arch, nvrtc)
) STRICT;
CREATE TABLE leases (
  problem       TEXT    NOT NULL,
  device_class  TEXT    NOT NULL,
  owner         TEXT    NOT NULL,
  host          TEXT    NOT NULL,
  boot_id       TEXT    NOT NULL,
  pid_namespace TEXT    NOT NULL,
  pid           INTEGER NOT NULL,
  pid_start     INTEGER NOT NULL,
  expires_at    REAL    NOT NULL,
  PRIMARY KEY (problem, device_class)
) STRICT, WITHOUT ROWID;
CREATE VIEW readable_tries AS
SELECT t.id, p.text AS problem, d.text AS device_class, t.config, t.digest, t.family, t.rigor, t.estimate_us, t.estimated,
       t.status, t.time_us, t.noise, t.samples, t.max_error, t.clock_mhz, t.detail, t.driver, t.nvrtc, t.uuid,
       t.attnforge_version, t.measured_at, t.problem_id, t.device_class_id, d.sm
FROM tries t
JOIN problems p ON p.id = t.problem_id
JOIN device_classes d ON d.id = t.device_class_id;
PRAGMA application_id = 1098139239;
PRAGMA user_version = 2;
)sql";

// One that version 2 wrote: 100 bytes of machine code that are cubin("d", 100)'s.
constexpr const char* kVersion2Cubin =
    "INSERT INTO cubins VALUES (1, 'd', '90a', '13.0 cl-36424714', 'f', 168, 16, 8, 4, 12, 1, "
    "210.5, "
    "'ptxas info', '2025-03-14T09:26:53Z', 100, '5f80e3dd2065a05a83b63f1c693837b4', "
    "x'28b52ffd20642103000000000102030507090b0e1114181c2024292e33393f454b525960687078808992"
    "9ba5afb9c3ced9e4f0010d192633404e5c6a788796a5b5c5d5e5f60c1d2f415365788b9eb2c6daee081d"
    "32485e748aa1b8cfe7041c344d667f99b3cde707223d597591', "
    "x'28b52ffd2006310000736f75726365');";

class MigrationTest : public CacheTest {
 protected:
  void make_version_1(const std::string& rows) {
    Database database = raw(SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    database.execute(kVersion1);
    database.execute(rows);
  }
  // A row of version 1 that only differs in what is given.
  static std::string row(const char* device_class, int i, const char* rigor, const char* status,
                         double time_us) {
    return "INSERT INTO tries VALUES ('" + std::string(kProblem) + "', '" + device_class + "', '" +
           config(i) + "', '" + digest_of(config(i)) + "', 'fwd_test', '" + rigor + "', '" +
           status + "', " + std::to_string(time_us) +
           ", 0.01, 9, 0.002, 'log', '12040', '12.4', '2024-05-01T10:00:00Z');";
  }
};

TEST_F(MigrationTest, TheStampIsTheOneThatFilesHave) { EXPECT_EQ(kApplicationId, 1098139239); }

TEST_F(MigrationTest, Version1KeepsItsTries) {
  make_version_1(row(kOldH200, 1, "full", "ok", 10) + row(kOldH200, 2, "quick", "ok", 8) +
                 row(kOldA10, 1, "full", "ok", 50) +
                 row(kOldH200, 3, "exhaustive", "compile_error", 0) +
                 "INSERT INTO cubins VALUES ('d', '90a', '12.4', 'f', x'00', 'source');");
  Cache cache(path(), false, log());
  EXPECT_THAT(messages_, IsEmpty());
  EXPECT_EQ(raw().integer("PRAGMA user_version"), kSchemaVersion);
  EXPECT_EQ(raw().text("PRAGMA integrity_check"), "ok");
  EXPECT_EQ(raw().integer("SELECT count(*) FROM pragma_foreign_key_check"), 0);

  const auto tries = cache.tries(kProblem, kH200);
  ASSERT_THAT(tries, SizeIs(3));
  EXPECT_EQ(tries[0].config, config(2));
  EXPECT_EQ(tries[0].rigor, Rigor::kQuick);
  EXPECT_EQ(tries[0].measurement.time_us, 8);
  EXPECT_EQ(tries[0].measurement.noise, 0.01);
  EXPECT_EQ(tries[0].measurement.samples, 9);
  EXPECT_EQ(tries[0].measurement.max_error, 0.002);
  EXPECT_EQ(tries[0].measurement.detail, "log");
  EXPECT_EQ(tries[0].driver, "12040");
  EXPECT_EQ(tries[0].nvrtc, "12.4");
  EXPECT_EQ(tries[0].measured_at, "2024-05-01T10:00:00Z");
  EXPECT_FALSE(tries[0].estimated);
  EXPECT_EQ(tries[2].measurement.status, Status::kCompileError);

  EXPECT_EQ(cache.best(kProblem, current(), digest_of)->provenance, Provenance::kCompatible);
  EXPECT_EQ(cache.best(kProblem, current("NVIDIA RTX A6000 sm_86 sms=84", 86), digest_of)
                ->best.device_class,
            kA10)
      << "sm was read out of the text";
  EXPECT_FALSE(cache.get_cubin("d", "90a", "12.4")) << "it had no checksum";
}

TEST_F(MigrationTest, TheSameTablesAsInANewFile) {
  make_version_1(row(kOldH200, 1, "full", "ok", 10));
  Cache migrated(path());
  const std::string fresh_path = folder_.path("fresh.db");
  Cache fresh(fresh_path);
  const char* schema =
      "SELECT group_concat(sql, ';') FROM (SELECT sql FROM sqlite_master ORDER BY type, name)";
  EXPECT_EQ(raw().text(schema), Database(fresh_path, SQLITE_OPEN_READONLY).text(schema));
}

TEST_F(MigrationTest, RowsThatAreRefusedTodayStayBehind) {
  make_version_1(row(kOldH200, 1, "full", "ok", 10) + row(kOldH200, 2, "full", "ok", 0) +
                 row(kOldH200, 3, "full", "odd", 1) + row(kOldH200, 4, "odd", "ok", 1));
  Cache cache(path(), false, log());
  EXPECT_THAT(cache.tries(kProblem, kH200), SizeIs(1));
  EXPECT_THAT(messages_, IsEmpty());
}

class MigrationFrom2Test : public MigrationTest {
 protected:
  void make_version_2() {
    Database database = raw(SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    database.execute(kVersion2);
    database.execute(std::string("INSERT INTO problems VALUES (3, '") + kProblem +
                     "'); INSERT INTO device_classes VALUES (5, '" + kOldH200 +
                     "', 90); INSERT INTO tries VALUES (7, 3, 5, '" + config(1) + "', '" +
                     digest_of(config(1)) +
                     "', 'fwd_test', 'full', 9.0, 0, 'ok', 10.0, 0.01, 27, 0.001, 1755.0, '', "
                     "'13000', '13.0 cl-36424714', 'GPU-0123', '0.1.0', '2025-03-14T09:26:53Z');"
                     "INSERT INTO searches VALUES (3, 5, 'full', '" +
                     config(1) + "', '2025-03-14T09:26:53Z');" + kVersion2Cubin);
  }
};

TEST_F(MigrationFrom2Test, EverythingStays) {
  make_version_2();
  Cache cache(path(), false, log());
  EXPECT_THAT(messages_, IsEmpty());
  EXPECT_EQ(raw().integer("PRAGMA user_version"), kSchemaVersion);
  EXPECT_THAT(cache_verify(path()), IsEmpty());
  const auto winner = cache.best(kProblem, current(), digest_of);
  ASSERT_TRUE(winner);
  EXPECT_EQ(winner->best.config, config(1));
  EXPECT_EQ(winner->provenance, Provenance::kMeasured);
  EXPECT_EQ(winner->rigor, Rigor::kFull);
  const auto kernel = cache.get_cubin("d", "90a", kNvrtc);
  ASSERT_TRUE(kernel) << "nothing has to be compiled again";
  EXPECT_EQ(kernel->bytes, cubin("d", 100).bytes);
}

TEST_F(MigrationFrom2Test, TheSameTablesAsInANewFile) {
  make_version_2();
  Cache migrated(path());
  const std::string fresh_path = folder_.path("fresh.db");
  Cache fresh(fresh_path);
  const char* schema =
      "SELECT group_concat(sql, ';') FROM (SELECT sql FROM sqlite_master ORDER BY type, name)";
  EXPECT_EQ(raw().text(schema), Database(fresh_path, SQLITE_OPEN_READONLY).text(schema));
}

TEST_F(MigrationFrom2Test, ACubinThatIsNotItsChecksumsIsNotBlessed) {
  make_version_2();
  raw().execute("UPDATE cubins SET code = zeroblob(30)");
  EXPECT_FALSE(Cache(path(), false, log()).get_cubin("d", "90a", kNvrtc));
  EXPECT_THAT(messages_, ::testing::ElementsAre(HasSubstr("does not match its checksum")));
}

// Such a file can no longer be copied as it is: it is set aside, and what is sound goes into a new
// one.
TEST_F(MigrationFrom2Test, ADamagedOneIsSetAsideAndItsSoundRowsStay) {
  make_version_2();
  {
    Database database = raw();
    database.execute("PRAGMA foreign_keys = OFF");
    database.execute(
        "INSERT INTO tries SELECT 8, 99, 5, config, digest, family, rigor, estimate_us, "
        "estimated, status, time_us, noise, samples, max_error, clock_mhz, detail, "
        "driver, nvrtc, uuid, attnforge_version, measured_at FROM tries");
  }
  Cache cache(path(), false, log());
  EXPECT_EQ(cache.path(), path());
  EXPECT_THAT(messages_,
              ::testing::ElementsAre(HasSubstr("1 try, 1 search and 0 cubins could be")));
  EXPECT_TRUE(cache.best(kProblem, current(), digest_of));
}

// The tables of version 3 are today's; its configs repeated their problem.
class MigrationFrom3Test : public MigrationTest {
 protected:
  static constexpr const char* kOldConfig =
      "fwd_test dtype=2 head_dim=128 head_dim_v=128 right_bound=1 left_bound=0 softcap=0 lse=0 "
      "alignment=16 rope=0 rope_dim=0 block_m=1";
  void make_version_3() {
    {
      Cache cache(path());
      cache.put({good_try(1, 10), good_try(2, 20)});
      cache.finish(kProblem, kH200, Rigor::kFull, config(1));
      cache.put_cubin(cubin("d", 100), "source", "kernel");
    }
    Database database = raw();
    const std::string old = std::string("'") + kOldConfig + "' WHERE ";
    database.execute("UPDATE tries SET config = " + old + "config = '" + config(1) +
                     "'; UPDATE searches SET winner = " + old + "winner = '" + config(1) +
                     "'; UPDATE device_classes SET text = '" + kOldH200 +
                     "'; PRAGMA user_version = 3;");
  }
};

TEST_F(MigrationFrom3Test, ConfigsLoseWhatTheProblemSaysAndTheWinnerStays) {
  make_version_3();
  Cache cache(path(), false, log());
  EXPECT_THAT(messages_, IsEmpty());
  EXPECT_EQ(raw().integer("PRAGMA user_version"), kSchemaVersion);
  EXPECT_THAT(cache_verify(path()), IsEmpty());
  const auto tries = cache.tries(kProblem, kH200);
  ASSERT_THAT(tries, SizeIs(2));
  EXPECT_EQ(tries[0].config, config(1));
  EXPECT_EQ(tries[0].measurement.time_us, 10);
  EXPECT_EQ(tries[1].config, config(2));
  const auto winner = cache.best(kProblem, current(), digest_of);
  ASSERT_TRUE(winner);
  EXPECT_EQ(winner->best.config, config(1));
  EXPECT_EQ(winner->rigor, Rigor::kFull);
  EXPECT_TRUE(cache.get_cubin("d", "90a", kNvrtc));
}

TEST_F(MigrationFrom3Test, TwoRowsThatBecomeOneKeepTheFirst) {
  make_version_3();
  raw().execute("UPDATE tries SET digest = 'd'");
  raw().execute(std::string("UPDATE tries SET config = '") + kOldConfig +
                " block_n=2' WHERE time_us = 10; UPDATE tries SET config = 'fwd_test block_m=1 "
                "block_n=2' WHERE time_us = 20");
  Cache cache(path(), false, log());
  EXPECT_THAT(messages_, IsEmpty());
  const auto tries = cache.tries(kProblem, kH200);
  ASSERT_THAT(tries, SizeIs(1));
  EXPECT_EQ(tries[0].config, "fwd_test block_m=1 block_n=2");
}

// The tables of version 4 are today's; its GPU classes spelt their archs without an underscore.
class MigrationFrom4Test : public MigrationTest {
 protected:
  void make_version_4() {
    {
      Cache cache(path());
      Try neighbour = good_try(3, 30);
      neighbour.device_class = kA10;
      cache.put({good_try(1, 10), good_try(2, 20), neighbour});
      cache.finish(kProblem, kH200, Rigor::kQuick, config(1));
      cache.finish(kProblem, kH200, Rigor::kFull, config(2));
      cache.put_cubin(cubin("d", 100), "source", "kernel");
    }
    raw().execute(
        "UPDATE device_classes SET text = replace(text, 'sm_', 'sm');"
        "INSERT INTO leases SELECT 'p', text, 'o', 'h', 'b', 'n', 1, 1, 1e12 "
        "FROM device_classes; PRAGMA user_version = 4;");
  }
  static std::string exported(const std::string& path) {
    std::ostringstream lines;
    cache_export(path, lines);
    return lines.str();
  }
  static void import_text(const std::string& path, const std::string& text) {
    std::istringstream lines(text);
    cache_import(path, lines);
  }
};

TEST_F(MigrationFrom4Test, ArchsGetTheirUnderscoreAndNothingElseChanges) {
  make_version_4();
  EXPECT_EQ(raw().text("SELECT text FROM device_classes WHERE sm = 90"), kOldH200);
  Cache cache(path(), false, log());
  EXPECT_THAT(messages_, IsEmpty());
  EXPECT_EQ(raw().integer("PRAGMA user_version"), kSchemaVersion);
  EXPECT_THAT(cache_verify(path()), IsEmpty());
  EXPECT_EQ(raw().integer("SELECT count(*) FROM device_classes NOT INDEXED"), 2);
  EXPECT_THAT(cache.tries(kProblem, kH200), SizeIs(2));
  EXPECT_THAT(cache.tries(kProblem, kA10), SizeIs(1));
  const auto winner = cache.best(kProblem, current(), digest_of);
  ASSERT_TRUE(winner);
  EXPECT_EQ(winner->best.config, config(2));
  EXPECT_EQ(winner->rigor, Rigor::kFull);
  EXPECT_EQ(winner->provenance, Provenance::kMeasured);
  EXPECT_TRUE(cache.get_cubin("d", "90a", kNvrtc)) << "its key names no class";
  EXPECT_EQ(raw().integer("SELECT count(*) FROM leases"), 0)
      << "who holds them cannot store what it finds";
}

TEST_F(MigrationFrom4Test, AClassInBothSpellingsBecomesOneAsInAnImport) {
  make_version_4();
  const std::string lines = [&] {
    const std::string newer = folder_.path("newer.db");
    Try estimate = good_try(1, 1, Rigor::kExhaustive);
    estimate.estimated = true, estimate.measurement = {};
    Try later = good_try(2, 15);
    later.measured_at = "2026-01-01T00:00:00Z";
    Cache cache(newer);
    cache.put({estimate, later, good_try(4, 40)});
    cache.finish(kProblem, kH200, Rigor::kQuick, config(4));
    cache.finish(kProblem, kH200, Rigor::kFull, config(4));
    Database(newer, SQLITE_OPEN_READWRITE)
        .execute(
            "UPDATE searches SET finished_at = iif(rigor = 'full', '2001', '2999') || "
            "'-01-01T00:00:00Z'");
    return exported(newer);
  }();
  const std::string migrated_first = folder_.path("migrated_first.db");
  write_file(migrated_first, read_file(path()));
  Cache(migrated_first, false, log());
  import_text(migrated_first, lines);

  // The attnforge of version 4 took such lines as they are.
  raw().execute(fmt::format("PRAGMA user_version = {}", kSchemaVersion));
  import_text(path(), lines);
  raw().execute("PRAGMA user_version = 4");
  EXPECT_EQ(raw().integer("SELECT count(*) FROM device_classes NOT INDEXED"), 3);
  Cache cache(path(), false, log());
  EXPECT_THAT(messages_, IsEmpty());
  EXPECT_THAT(cache_verify(path()), IsEmpty());
  EXPECT_EQ(raw().integer("SELECT count(*) FROM device_classes NOT INDEXED"), 2);
  EXPECT_EQ(exported(path()), exported(migrated_first));

  const auto tries = cache.tries(kProblem, kH200);
  ASSERT_THAT(tries, SizeIs(3));
  EXPECT_EQ(tries[0].config, config(1));
  EXPECT_FALSE(tries[0].estimated) << "a measurement stays before an estimate";
  EXPECT_EQ(tries[1].config, config(2));
  EXPECT_EQ(tries[1].measurement.time_us, 15) << "the later one";
  EXPECT_EQ(tries[2].config, config(4));
  EXPECT_EQ(raw().text("SELECT winner FROM searches WHERE rigor = 'full'"), config(2));
  EXPECT_EQ(raw().text("SELECT winner FROM searches WHERE rigor = 'quick'"), config(4));
}

// The index that the migration must change is lost: the file is set aside, and its rows are read
// from the tables.
TEST_F(MigrationFrom4Test, ADamagedOneIsSetAsideAndItsRowsAreSpeltAsToday) {
  make_version_4();
  const auto page = static_cast<std::size_t>(
      raw().integer("SELECT rootpage FROM sqlite_master WHERE type = 'index' AND tbl_name = "
                    "'device_classes'"));
  std::string file = read_file(path());
  constexpr std::size_t kPage = 4096;
  file.replace((page - 1) * kPage, kPage, kPage, '\xA5');
  write_file(path(), file);
  Cache cache(path(), false, log());
  EXPECT_EQ(cache.path(), path());
  EXPECT_THAT(messages_,
              ::testing::ElementsAre(HasSubstr("3 tries, 2 searches and 1 cubin could be")));
  EXPECT_THAT(cache_verify(path()), IsEmpty());
  EXPECT_THAT(cache.tries(kProblem, kH200), SizeIs(2));
  EXPECT_EQ(cache.best(kProblem, current(), digest_of)->best.config, config(2));
}

TEST_F(MigrationFrom4Test, ReadingOnlyDoesNotMigrate) {
  make_version_4();
  const std::string before = read_file(path());
  Cache cache(path(), true, log());
  EXPECT_EQ(cache.path(), ":memory:");
  EXPECT_THAT(messages_, ::testing::ElementsAre(HasSubstr("older schema version 4")));
  EXPECT_EQ(read_file(path()), before);
}

TEST_F(MigrationTest, Version1LosesThoseWordsToo) {
  make_version_1(row(kOldH200, 1, "full", "ok", 10));
  raw().execute("UPDATE tries SET config = 'fwd_test head_dim=128 block_m=1'");
  EXPECT_EQ(Cache(path(), false, log()).tries(kProblem, kH200).at(0).config, config(1));
  EXPECT_THAT(messages_, IsEmpty());
}

TEST_F(MigrationTest, AnEmptyVersion1) {
  make_version_1("");
  Cache cache(path(), false, log());
  cache.put({good_try(1, 10)});
  EXPECT_TRUE(cache.best(kProblem, current(), digest_of));
  EXPECT_THAT(messages_, IsEmpty());
}

TEST_F(MigrationTest, AFailedMigrationLeavesTheFileAsItWas) {
  make_version_1(row(kOldH200, 1, "full", "ok", 10) + "CREATE TABLE leases (in_the_way TEXT);");
  const std::string before = read_file(path());
  Cache cache(path(), false, log());
  EXPECT_EQ(cache.path(), ":memory:");
  EXPECT_THAT(messages_, ::testing::ElementsAre(HasSubstr("leases")));
  EXPECT_EQ(read_file(path()), before);
}

TEST_F(MigrationTest, SeveralProcessesMigrateOnce) {
  std::string rows;
  for (int i = 0; i < 200; ++i) rows += row(kOldH200, i, "full", "ok", 10 + i);
  make_version_1(rows);
  std::vector<pid_t> children;
  for (int i = 0; i < 5; ++i)
    children.push_back(start_child([&] {
      std::vector<std::string> said;
      Cache cache(path(), false,
                  [&](LogLevel, std::string_view message) { said.emplace_back(message); });
      for (const std::string& message : said) std::fprintf(stderr, "%s\n", message.c_str());
      return said.empty() && cache.tries(kProblem, kH200).size() == 200;
    }));
  for (const pid_t child : children) EXPECT_EQ(wait_for(child), 0);
}

TEST_F(MigrationTest, ReadingOnlyDoesNotMigrate) {
  make_version_1(row(kOldH200, 1, "full", "ok", 10));
  Cache cache(path(), true, log());
  EXPECT_EQ(cache.path(), ":memory:");
  EXPECT_THAT(messages_, ::testing::ElementsAre(HasSubstr("older schema version 1")));
  EXPECT_EQ(raw().integer("PRAGMA user_version"), 1);
}

TEST_F(MigrationTest, TheFunctionsForPeopleMigrateToo) {
  make_version_1(row(kOldH200, 1, "full", "ok", 10));
  EXPECT_EQ(cache_list(path()).at(0).config, config(1));
  EXPECT_EQ(cache_stats(path()).schema_version, kSchemaVersion);
}

}  // namespace
}  // namespace attnforge::testing
