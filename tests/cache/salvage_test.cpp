// salvage_test.cpp - damage costs the rows that it hit, and nothing goes on failing because of it.
#include <fmt/format.h>

#include <sstream>

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
using ::testing::SizeIs;

constexpr const char* kOtherProblem = "fwd fp16 batch=2 num_heads_q=8 num_heads_kv=8";
constexpr std::size_t kPage = 4096;

class SalvageTest : public CacheTest {
 protected:
  void make_file(int tries) {
    Cache cache(path());
    std::vector<Try> batch;
    for (int i = 0; i < tries; ++i) {
      batch.push_back(good_try(i, 20 + i));
      batch.back().problem = kOtherProblem;
      batch.push_back(good_try(i, 10 + i));
    }
    cache.put(batch);
    cache.finish(kProblem, kH200, Rigor::kFull, config(0));
    cache.finish(kOtherProblem, kH200, Rigor::kFull, config(1));
    cache.put_cubin(cubin("d"), "source", "f");
  }

  // The row of kProblem gets another number in its table, but not in its index.
  void renumber_problem() {
    constexpr char kTableLeaf = 0x0d;
    std::string file = read_file(path());
    bool done = false;
    for (std::size_t at = file.find(kProblem); at != file.npos; at = file.find(kProblem, at + 1)) {
      if (file[at / kPage * kPage] != kTableLeaf) continue;
      char& id = file[at - 5];  // before a record header of 4 bytes
      ASSERT_EQ(id, 2);
      id = 9;
      done = true;
    }
    ASSERT_TRUE(done);
    write_file(path(), file);
  }
  bool was_set_aside() const { return folder_.files().size() > 2; }
};

TEST_F(SalvageTest, AProblemThatItsIndexDoesNotFindStopsNoTuning) {
  make_file(3);
  renumber_problem();
  Cache cache(path(), false, log());
  cache.put({good_try(7, 1)});
  cache.finish(kProblem, kH200, Rigor::kFull, config(7));
  EXPECT_TRUE(was_set_aside());
  EXPECT_THAT(messages_, ElementsAre(AllOf(HasSubstr("is damaged"), HasSubstr(".corrupt-20"),
                                           HasSubstr("1 cubin could be saved"))));
  EXPECT_EQ(cache.best(kProblem, current(), digest_of)->best.config, config(7));
  EXPECT_THAT(cache.tries(kOtherProblem, kH200), SizeIs(3));
  EXPECT_EQ(cache.best(kOtherProblem, current(), digest_of)->best.config, config(1))
      << "searches stay too";
  EXPECT_TRUE(cache.get_cubin("d", "90a", kNvrtc));
  EXPECT_THAT(cache_verify(path()), IsEmpty());
}

TEST_F(SalvageTest, ARowThatRefersToNothingStopsNoTuning) {
  make_file(3);
  {
    Database database = raw();
    database.execute("PRAGMA foreign_keys = OFF; DELETE FROM rigors");
  }
  Cache cache(path(), false, log());
  cache.put({good_try(7, 1)});
  EXPECT_TRUE(was_set_aside());
  EXPECT_THAT(Cache(path()).tries(kProblem, kH200), SizeIs(4));
}

TEST_F(SalvageTest, AColumnThatNobodyMadeStopsNoTuning) {
  make_file(3);
  raw().execute(
      "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = replace(sql, 'noise ', 'noisd "
      "') "
      "WHERE name = 'tries'");
  Cache cache(path(), false, log());
  cache.put({good_try(7, 1)});
  EXPECT_TRUE(was_set_aside());
  EXPECT_TRUE(Cache(path()).best(kProblem, current(), digest_of));
}

TEST_F(SalvageTest, ALostPageCostsItsRowsOnly) {
  make_file(400);
  std::string file = read_file(path());
  const std::size_t page = file.size() / kPage / 2;
  std::size_t lost = page;
  while (file[lost * kPage] != 0x0d) ++lost;  // a leaf of a table
  for (std::size_t i = 0; i < kPage; ++i) file[lost * kPage + i] = static_cast<char>(0xA5);
  write_file(path(), file);
  std::vector<std::string> left_out;
  std::ostringstream lines;
  EXPECT_GT(cache_export(path(), lines, "", &left_out), 700);
  EXPECT_THAT(left_out, ::testing::Not(IsEmpty()));
  EXPECT_FALSE(cache_stats(path()).healthy);

  Cache cache(path(), false, log());
  cache.tries(kProblem, kH200);
  cache.tries(kOtherProblem, kH200);
  EXPECT_TRUE(was_set_aside());
  EXPECT_GT(cache_stats(path()).tries, 700);
  EXPECT_EQ(cache_stats(path()).cubins, 1);
  EXPECT_THAT(cache_verify(path()), IsEmpty());
}

TEST_F(SalvageTest, OneBadRowHidesNoOther) {
  make_file(3);
  {
    Database database = raw();
    database.execute(
        "PRAGMA ignore_check_constraints = ON; UPDATE tries SET status = 'oj' WHERE id = 3");
    database.execute("PRAGMA foreign_keys = OFF; UPDATE tries SET problem_id = 77 WHERE id = 2");
  }
  std::vector<std::string> left_out;
  std::ostringstream lines;
  EXPECT_EQ(cache_export(path(), lines, "", &left_out), 4 + 2);
  EXPECT_THAT(left_out, ElementsAre(HasSubstr("try 2: it has no problem"),
                                    AllOf(HasSubstr("try 3: "), HasSubstr("'oj'"))));
  EXPECT_THAT(cache_show(path(), "", &left_out), SizeIs(4));
  EXPECT_THAT(left_out, SizeIs(2));
  EXPECT_THAT(cache_list(path(), "", &left_out), SizeIs(2));
  EXPECT_THAT(left_out, SizeIs(2));
  EXPECT_FALSE(cache_stats(path()).healthy);
  EXPECT_THAT(cache_verify(path()), ::testing::Contains(HasSubstr("'oj'")));
  Cache cache(path(), false, log());
  EXPECT_THAT(cache.tries(kProblem, kH200), SizeIs(2));
  EXPECT_TRUE(cache.best(kProblem, current(), digest_of));
}

// ---- what may be renamed or written at all ----

TEST_F(SalvageTest, AFileThatIsNoDatabaseStaysAsItIs) {
  const std::string text = "# Read me first\n";
  for (const std::string& bytes :
       {std::string("\x93NUMPY\x01\0v\0{'descr': '<f4'}", 27), text, std::string("x"),
        std::string(10'000, 'x'), std::string("SQLite format 2") + text}) {
    const std::string file = folder_.path("q.npy");
    write_file(file, bytes);
    messages_.clear();
    {
      Cache cache(file, false, log());
      EXPECT_EQ(cache.path(), ":memory:");
      EXPECT_THAT(messages_,
                  ElementsAre(HasSubstr("is not a SQLite database and is left as it is")));
      cache.put({good_try(1, 10)});
      EXPECT_TRUE(cache.best(kProblem, current(), digest_of));
    }
    std::istringstream nothing;
    EXPECT_THROW(cache_import(file, nothing), Error);
    EXPECT_THROW(cache_list(file), Error);
    EXPECT_THROW(cache_stats(file), Error);
    EXPECT_THROW(cache_verify(file), Error);
    EXPECT_THROW(cache_clear(file, ""), Error);
    EXPECT_THAT(cache_objection(file), HasSubstr("is not a SQLite database"));
    EXPECT_THAT(folder_.files(), ElementsAre("q.npy"));
    EXPECT_TRUE(read_file(file) == bytes);
  }
}

TEST_F(SalvageTest, ADamagedDatabaseOfOursIsSetAsideUnderAnyName) {
  make_file(400);
  const std::string file = folder_.path("winners.sqlite");
  fs::rename(path(), file);
  std::string bytes = read_file(file);
  for (std::size_t i = kPage; i < bytes.size() / 2; ++i) bytes[i] = 'x';
  write_file(file, bytes);
  Cache cache(file, false, log());
  cache.put({good_try(1, 10)});
  EXPECT_EQ(cache.path(), file);
  EXPECT_TRUE(Cache(file).best(kProblem, current(), digest_of));
  EXPECT_THAT(messages_, ElementsAre(HasSubstr("winners.sqlite.corrupt-20")));
}

TEST_F(SalvageTest, ADamagedDatabaseOfAnotherApplicationStaysAsItIs) {
  const std::string file = folder_.path("mail.db");
  Database(file, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE)
      .execute("PRAGMA application_id = 1234; CREATE TABLE mail (text);");
  std::string bytes = read_file(file);
  for (std::size_t i = 100; i < bytes.size(); ++i) bytes[i] = 'x';
  write_file(file, bytes);
  Cache cache(file, false, log());
  EXPECT_EQ(cache.path(), ":memory:");
  EXPECT_THAT(messages_, SizeIs(1));
  EXPECT_THAT(folder_.files(), ElementsAre("mail.db"));
  EXPECT_TRUE(read_file(file) == bytes);
}

}  // namespace
}  // namespace attnforge::testing
