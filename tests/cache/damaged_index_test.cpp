// damaged_index_test.cpp - an index that names a wrong row: SQLite believes it, so every row that
// is read must itself say that it is the one that was asked for.
#include <fmt/format.h>

#include <cstdlib>
#include <set>

#include "attnforge/cache.h"
#include "attnforge/error.h"
#include "support.h"

namespace attnforge::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kOtherProblem = "fwd bf16 batch=1 num_heads_q=32 num_heads_kv=8 full";

std::string text_of(const Try& t) {
  return fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}", t.problem, t.device_class, t.config, t.digest,
                     t.family, to_string(t.rigor), to_string(t.measurement.status),
                     t.measurement.time_us, t.measured_at);
}

class DamagedIndexTest : public CacheTest {
 protected:
  // Two problems on two GPU classes, three kernels that can be told apart by their sizes.
  void SetUp() override {
    {
      Cache cache(path());
      int i = 0;
      for (const char* problem : {kProblem, kOtherProblem})
        for (const char* device_class : {kH200, kA10})
          for (int n = 0; n < 3; ++n, ++i) {
            Try t = good_try(i % 4, 10 + i);
            t.problem = problem;
            t.device_class = device_class;
            stored_.insert(text_of(t));
            cache.put({t});
          }
      cache.finish(kProblem, kH200, Rigor::kFull, config(1));
      cache.finish(kOtherProblem, kA10, Rigor::kFull, config(2));
      for (int kernel = 0; kernel < 3; ++kernel)
        cache.put_cubin(cubin(fmt::format("d{}", kernel), bytes_of(kernel)), "source", "f");
    }
    whole_ = read_file(path());
  }
  static std::size_t bytes_of(int kernel) { return 100 + 10 * static_cast<std::size_t>(kernel); }

  // All that a plan may ask, as one text; "" for an answer that nobody stored.
  std::string answers(Cache& cache) const {
    std::string all;
    const auto add = [&](const Try& t, const char* problem, const char* device_class) {
      const bool right = t.problem == problem && t.device_class == device_class &&
                         stored_.count(text_of(t)) == 1;
      all += text_of(t) + "\n";
      return right;
    };
    for (const char* problem : {kProblem, kOtherProblem})
      for (const char* device_class : {kH200, kA10}) {
        const int sm = device_class == kH200 ? 90 : 86;
        const auto winner = cache.best(problem, current(device_class, sm), digest_of);
        if (winner && !add(winner->best, problem, device_class)) return "";
        for (const Try& t : cache.tries(problem, device_class))
          if (!add(t, problem, device_class)) return "";
      }
    for (int kernel = 0; kernel < 3; ++kernel)
      for (const char* nvrtc : {kNvrtc, ""}) {
        const auto found = cache.get_cubin(fmt::format("d{}", kernel), "90a", nvrtc);
        if (found && found->bytes != cubin("", bytes_of(kernel)).bytes) return "";
        all += found ? "kernel\n" : "no kernel\n";
      }
    return all;
  }

  std::set<std::string> stored_;
  std::string whole_;
};

TEST_F(DamagedIndexTest, NoFlippedBitGivesAnotherRowAndHealthSaysSo) {
  Cache undamaged(path(), true);
  const std::string right = answers(undamaged);
  ASSERT_NE(right, "");
  const std::vector<std::size_t> bits = index_bits(path());
  ASSERT_GT(bits.size(), 5'000u);
  BitFlipper flipper(path());
  int changed = 0;
  // Coprime to 8: every bit of a byte has its turn. 1 flips them all, in minutes.
  const char* asked = std::getenv("ATTNFORGE_FLIP_STRIDE");
  const std::size_t stride = asked ? std::strtoul(asked, nullptr, 10) : 13;
  ASSERT_GT(stride, 0u);
  for (std::size_t i = 0; i < bits.size(); i += stride) {
    flipper.flip(bits[i]);
    Cache cache(path(), true);
    const std::string given = answers(cache);
    ASSERT_NE(given, "") << "a wrong row, by bit " << bits[i];
    if (given != right) {
      ++changed;
      ASSERT_FALSE(cache_stats(path()).healthy) << "bit " << bits[i];
    }
    flipper.flip(bits[i]);
  }
  RecordProperty("flipped", static_cast<int>(bits.size() / stride));
  RecordProperty("answers_changed", changed);
  EXPECT_GT(changed, 100);
  EXPECT_TRUE(read_file(path()) == whole_) << "readers change nothing";
}

// Searches and leases are kept like indexes, but are the data themselves: a flip may make another
// config of the problem the winner, never one of another problem.
TEST_F(DamagedIndexTest, NoFlippedBitOfATableWithoutRowidGivesAnotherProblemsRow) {
  const std::vector<std::size_t> bits = index_bits(path(), true);
  BitFlipper flipper(path());
  for (std::size_t i = 0; i < bits.size(); i += 29) {
    flipper.flip(bits[i]);
    Cache cache(path(), true);
    ASSERT_NE(answers(cache), "") << "a wrong row, by bit " << bits[i];
    flipper.flip(bits[i]);
  }
}

// The writer's side: what is sound goes into a new file, nothing is overwritten.
TEST_F(DamagedIndexTest, AWritableFileIsReplacedAndKeepsItsRows) {
  const std::vector<std::size_t> bits = index_bits(path());
  int replaced = 0;
  for (std::size_t i = 0; i < bits.size(); i += 167) {
    for (const std::string& name : folder_.files()) std::filesystem::remove(folder_.path(name));
    write_file(path(), whole_);
    BitFlipper(path()).flip(bits[i]);
    messages_.clear();
    {
      Cache cache(path(), false, log());
      ASSERT_NE(answers(cache), "") << "bit " << bits[i];
      Try again = good_try(0, 5);
      cache.put({again});
      cache.put_cubin(cubin("d0", bytes_of(0)), "source", "f");
      stored_.insert(text_of(again));
      ASSERT_NE(answers(cache), "") << "bit " << bits[i];
    }
    if (folder_.files().size() <= 2) continue;
    ++replaced;
    EXPECT_THAT(messages_, Contains(HasSubstr("could be saved"))) << "bit " << bits[i];
    EXPECT_EQ(cache_stats(path()).tries, 12) << "bit " << bits[i];
    EXPECT_EQ(cache_stats(path()).cubins, 3) << "bit " << bits[i];
    EXPECT_THAT(cache_verify(path()), IsEmpty()) << "bit " << bits[i];
  }
  EXPECT_GT(replaced, 10);
}

TEST_F(DamagedIndexTest, VerifyNamesTheIndex) {
  EXPECT_THAT(cache_verify(path()), IsEmpty());
  // The index of one table is that of another.
  raw().execute(
      "PRAGMA writable_schema = ON;"
      "UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master WHERE name = "
      "'sqlite_autoindex_problems_1') WHERE name = 'sqlite_autoindex_device_classes_1'");
  const std::vector<std::string> faults = cache_verify(path());
  EXPECT_THAT(faults, Contains(HasSubstr("sqlite_autoindex_device_classes_1")));
  EXPECT_FALSE(cache_stats(path()).healthy);
}

}  // namespace
}  // namespace attnforge::testing
