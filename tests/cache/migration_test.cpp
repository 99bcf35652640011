// migration_test.cpp - files of every past version are brought up to date.
#include "attnforge/cache.h"
#include "cache/open.h"
#include "support.h"

namespace attnforge::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

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
  make_version_1(row(kH200, 1, "full", "ok", 10) + row(kH200, 2, "quick", "ok", 8) +
                 row(kA10, 1, "full", "ok", 50) + row(kH200, 3, "exhaustive", "compile_error", 0) +
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

  EXPECT_EQ(cache.best(kProblem, current(), digest_of)->fit, Fit::kCompatible);
  EXPECT_EQ(cache.best(kProblem, current("NVIDIA RTX A6000 sm86 sms=84", 86), digest_of)
                ->best.device_class,
            kA10)
      << "sm was read out of the text";
  EXPECT_FALSE(cache.get_cubin("d", "90a", "12.4")) << "it had no checksum";
}

TEST_F(MigrationTest, TheSameTablesAsInANewFile) {
  make_version_1(row(kH200, 1, "full", "ok", 10));
  Cache migrated(path());
  const std::string fresh_path = folder_.path("fresh.db");
  Cache fresh(fresh_path);
  const char* schema =
      "SELECT group_concat(sql, ';') FROM (SELECT sql FROM sqlite_master ORDER BY type, name)";
  EXPECT_EQ(raw().text(schema), Database(fresh_path, SQLITE_OPEN_READONLY).text(schema));
}

TEST_F(MigrationTest, RowsThatAreRefusedTodayStayBehind) {
  make_version_1(row(kH200, 1, "full", "ok", 10) + row(kH200, 2, "full", "ok", 0) +
                 row(kH200, 3, "full", "odd", 1) + row(kH200, 4, "odd", "ok", 1));
  Cache cache(path(), false, log());
  EXPECT_THAT(cache.tries(kProblem, kH200), SizeIs(1));
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
  make_version_1(row(kH200, 1, "full", "ok", 10) + "CREATE TABLE leases (in_the_way TEXT);");
  const std::string before = read_file(path());
  Cache cache(path(), false, log());
  EXPECT_EQ(cache.path(), ":memory:");
  EXPECT_THAT(messages_, ::testing::ElementsAre(HasSubstr("leases")));
  EXPECT_EQ(read_file(path()), before);
}

TEST_F(MigrationTest, SeveralProcessesMigrateOnce) {
  std::string rows;
  for (int i = 0; i < 200; ++i) rows += row(kH200, i, "full", "ok", 10 + i);
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
  make_version_1(row(kH200, 1, "full", "ok", 10));
  Cache cache(path(), true, log());
  EXPECT_EQ(cache.path(), ":memory:");
  EXPECT_THAT(messages_, ::testing::ElementsAre(HasSubstr("older schema version 1")));
  EXPECT_EQ(raw().integer("PRAGMA user_version"), 1);
}

TEST_F(MigrationTest, TheFunctionsForPeopleMigrateToo) {
  make_version_1(row(kH200, 1, "full", "ok", 10));
  EXPECT_EQ(cache_list(path()).at(0).config, config(1));
  EXPECT_EQ(cache_stats(path()).schema_version, kSchemaVersion);
}

}  // namespace
}  // namespace attnforge::testing
