// portable_test.cpp - export and import: a merge that is the same in any order and any number of
// times.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "attnforge/cache.h"
#include "attnforge/error.h"
#include "support.h"

// Needs gtest before it.
#include <rapidcheck/gtest.h>

namespace attnforge::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class PortableTest : public CacheTest {
 protected:
  std::string other() const { return folder_.path("other.db"); }
};

std::string exported(const std::string& path, const std::string& filter = "") {
  std::ostringstream out;
  cache_export(path, out, filter);
  return out.str();
}

int import_text(const std::string& path, const std::string& text) {
  std::istringstream in(text);
  return cache_import(path, in);
}

TEST_F(PortableTest, AnotherDatabaseGetsTheSameRows) {
  {
    Cache cache(path());
    Try odd = failed_try(3, Status::kWrongResult, "row 7: \"nan\"\n\xC3\xA9");
    odd.measurement.max_error = std::nan("");
    Try estimate = good_try(4, 1);
    estimate.estimated = true;
    estimate.measurement = {};
    cache.put({good_try(1, 0.1 + 0.2), good_try(2, 20, Rigor::kQuick), odd, estimate});
    cache.finish(kProblem, kH200, Rigor::kFull, config(2));
    cache.finish(kProblem, kH200, Rigor::kQuick, "");
    cache.put_cubin(cubin("d"), "source", "f");
  }
  const std::string text = exported(path());
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6);
  EXPECT_EQ(import_text(other(), text), 6);
  EXPECT_EQ(exported(other()), text);
  Cache cache(other());
  EXPECT_EQ(cache.best(kProblem, current(), digest_of)->best.config, config(2));
  EXPECT_EQ(cache.best(kProblem, current(), digest_of)->rigor, Rigor::kFull);
  EXPECT_FALSE(cache.get_cubin("d", "90a", kNvrtc)) << "cubins stay where they were compiled";
}

TEST_F(PortableTest, ALineSaysWhatItIs) {
  Cache(path()).put({good_try(1, 10)});
  const auto line = nlohmann::json::parse(exported(path()));
  EXPECT_EQ(line.at("kind"), "try");
  EXPECT_EQ(line.at("format"), 1);
  EXPECT_EQ(line.at("problem"), kProblem);
  EXPECT_EQ(line.at("device_class"), kH200);
  EXPECT_EQ(line.at("config"), config(1));
  EXPECT_EQ(line.at("rigor"), "full");
  EXPECT_EQ(line.at("status"), "ok");
  EXPECT_EQ(line.at("time_us"), 10);
}

TEST_F(PortableTest, FilterTakesAPartOfTheProblem) {
  Cache cache(path());
  Try t = good_try(1, 10);
  t.problem = "fwd fp16 batch=2";
  cache.put({good_try(1, 10), t});
  cache.finish(t.problem, kH200, Rigor::kFull, config(1));
  std::ostringstream out;
  EXPECT_EQ(cache_export(path(), out, "fp16"), 2);
  EXPECT_EQ(cache_export(path(), out, "no such"), 0);
  EXPECT_EQ(cache_export(path(), out, "%"), 0) << "a substring, not a pattern";
}

TEST_F(PortableTest, ImportMakesTheFileAndItsFolder) {
  Cache(path()).put({good_try(1, 10)});
  const std::string fresh = folder_.path("new/folder/attnforge.db");
  EXPECT_EQ(import_text(fresh, exported(path())), 1);
  EXPECT_THAT(cache_list(fresh), SizeIs(1));
}

TEST_F(PortableTest, MoreRigorousAndNewerWin) {
  Try mine = good_try(1, 10, Rigor::kFull);
  mine.measured_at = "2025-02-01T00:00:00Z";
  const auto after_import_of = [&](Rigor rigor, const char* date) {
    std::filesystem::remove(path());
    std::filesystem::remove(other());
    Try theirs = good_try(1, 20, rigor);
    theirs.measured_at = date;
    Cache(path()).put({mine});
    Cache(other()).put({theirs});
    import_text(path(), exported(other()));
    return Cache(path()).tries(kProblem, kH200).at(0).measurement.time_us;
  };
  EXPECT_EQ(after_import_of(Rigor::kQuick, "2025-03-01T00:00:00Z"), 10);
  EXPECT_EQ(after_import_of(Rigor::kExhaustive, "2025-01-01T00:00:00Z"), 20);
  EXPECT_EQ(after_import_of(Rigor::kFull, "2025-03-01T00:00:00Z"), 20);
  EXPECT_EQ(after_import_of(Rigor::kFull, "2025-01-01T00:00:00Z"), 10);
}

struct BadLine {
  const char* name;
  std::function<std::string(nlohmann::json)> spoil;
  const char* says;
};
void PrintTo(const BadLine& line, std::ostream* out) { *out << line.name; }
class BadLineTest : public PortableTest, public ::testing::WithParamInterface<BadLine> {};

TEST_P(BadLineTest, ThrowsWithItsNumberAndTakesNothing) {
  Cache(other()).put({good_try(1, 10)});
  const std::string good = exported(other());
  Try second = good_try(2, 20);
  Cache(path()).put({second});
  const std::string before = exported(path());
  const std::string text = good + "\n" + GetParam().spoil(nlohmann::json::parse(good)) + "\n" +
                           good;
  try {
    import_text(path(), text);
    FAIL() << "imported " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCache);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("line 3 "), HasSubstr(GetParam().says),
                                    HasSubstr("Nothing was imported")));
  }
  EXPECT_EQ(exported(path()), before);
}

template <class Value>
std::function<std::string(nlohmann::json)> set(const char* field, Value value) {
  return [=](nlohmann::json line) {
    line[field] = value;
    return line.dump();
  };
}

INSTANTIATE_TEST_SUITE_P(
    Portable, BadLineTest,
    ::testing::Values(
        BadLine{"no_json", [](const nlohmann::json&) { return "measured 10 us"; },
                "it is not a whole JSON object, as attnforge cache export"},
        BadLine{"cut", [](const nlohmann::json& line) { return line.dump().substr(0, 40); },
                "not a whole JSON object"},
        BadLine{"array", [](const nlohmann::json&) { return "[1]"; }, "not a whole JSON object"},
        BadLine{"database", [](const nlohmann::json&) { return "SQLite format 3"; },
                "it is a database"},
        BadLine{"no_config", [](nlohmann::json line) { return line.erase("config"), line.dump(); },
                "\"config\""},
        BadLine{"empty_problem", set("problem", ""), "\"problem\" is empty"},
        BadLine{"number_as_text", set("digest", 7), "\"digest\" is 7"},
        BadLine{"bad_status", set("status", "fine"), "fine"},
        BadLine{"bad_rigor", set("rigor", "total"), "total"},
        BadLine{"text_as_number", set("time_us", "10"), "\"time_us\""},
        BadLine{"negative", set("time_us", -1.0), "\"time_us\""},
        BadLine{"no_time", set("time_us", 0), "\"time_us\""},
        BadLine{"fraction_of_a_sample", set("samples", 1.5), "\"samples\""},
        BadLine{"too_many_samples", set("samples", 5'000'000'000), "\"samples\""},
        BadLine{"flag_as_number", set("estimated", 1), "\"estimated\""},
        BadLine{"zero_byte", set("driver", std::string("a\0b", 3)), "zero byte"},
        BadLine{"faster_than_light", set("time_us", 1e-300), "it is from 0.001 to"},
        BadLine{"slower_than_history", set("time_us", 1e300), "it is from 0.001 to"},
        BadLine{"no_date", set("measured_at", "yesterday"), "\"measured_at\" is \"yesterday\""},
        BadLine{"no_such_month", set("measured_at", "2025-13-01T00:00:00Z"), "not a date"},
        BadLine{"no_such_day", set("measured_at", "2026-02-30T00:00:00Z"), "not a date"},
        BadLine{"a_date_and_more", set("measured_at", "2025-03-14T09:26:53Z or so"), "not a date"},
        BadLine{"escapes", set("config", "fwd \x1b[2J"),
                "\"fwd \\u001b[2J\", with control characters"},
        BadLine{"two_lines", set("device_class", "H200\nok"), "control characters"},
        BadLine{"a_text_of_a_megabyte", set("detail", std::string(1 << 20, 'x')),
                "longer than 64 KiB"},
        BadLine{"a_long_number_as_text", set("digest", std::vector<int>(1000, 7)),
                "bytes), not a string"},
        BadLine{"newer_format", set("format", 2),
                "format is 2, this attnforge reads 1: use a newer"},
        BadLine{"no_format", set("format", 0), "format is 0, this attnforge reads 1"},
        BadLine{"other_kind", set("kind", "cubin"), "\"cubin\""}),
    [](const auto& info) { return std::string(info.param.name); });

/// "a" without an end, and how much of it was read.
class Endless : public std::streambuf {
 public:
  explicit Endless(std::string piece) : piece_(std::move(piece)) {}
  std::size_t read = 0;

 private:
  int_type underflow() override {
    read += piece_.size();
    setg(piece_.data(), piece_.data(), piece_.data() + piece_.size());
    return traits_type::to_int_type(piece_.front());
  }
  std::string piece_;
};

TEST_F(PortableTest, EndlessInputEnds) {
  const std::string one_line(1 << 16, 'a'), blank_lines = std::string((1 << 16) - 1, ' ') + "\n";
  for (const std::string& piece : {one_line, blank_lines}) {
    Endless endless(piece);
    std::istream in(&endless);
    try {
      cache_import(path(), in);
      FAIL() << piece.front();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(piece == one_line ? "line 1 " : "larger than 256 MiB"));
    }
    EXPECT_LE(endless.read, std::size_t{257} << 20);
  }
  EXPECT_THAT(folder_.files(), IsEmpty());
}

TEST_F(PortableTest, ExportsAreAsciiSoThatTheyCanBeShown) {
  Try t = failed_try(1, Status::kWrongResult,
                     "red \x1b[31m, \xc2\x9b"
                     "1m, \x7f, \u00e9");
  Cache(path()).put({t});
  const std::string text = exported(path());
  EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return c == '\n' || (c >= 0x20 && c < 0x7f);
  })) << text;
  import_text(other(), text);
  EXPECT_EQ(Cache(other()).tries(kProblem, kH200).at(0).measurement.detail, t.measurement.detail);
}

TEST_F(PortableTest, AMissingOrReadOnlyTargetIsAnError) {
  std::ostringstream out;
  EXPECT_THROW(cache_export(folder_.path("none.db"), out), Error);
  EXPECT_THAT(folder_.files(), IsEmpty());
  EXPECT_THROW(cache_show(folder_.path("none.db"), ""), Error);
  out.setstate(std::ios::badbit);
  Cache(path()).put({good_try(1, 10)});
  EXPECT_THROW(cache_export(path(), out), Error);
}

TEST_F(PortableTest, ShowIsTheSameLinesBestFirst) {
  Cache cache(path());
  cache.put({failed_try(1, Status::kTimedOut), good_try(2, 20), good_try(3, 10)});
  const auto lines = cache_show(path(), "bf16");
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_THAT(lines[0], HasSubstr(config(3)));
  EXPECT_THAT(lines[1], HasSubstr(config(2)));
  EXPECT_THAT(lines[2], HasSubstr("timed_out"));
  for (const std::string& line : lines) EXPECT_THAT(exported(path()), HasSubstr(line));
}

// ---- laws of the merge ----

rc::Gen<Try> any_try() {
  return rc::gen::exec([] {
    const int which = *rc::gen::inRange(0, 3);
    Try t = *rc::gen::arbitrary<bool>()
                ? good_try(which, *rc::gen::inRange(1, 4))
                : failed_try(which, *rc::gen::element(Status::kWrongResult, Status::kTimedOut));
    t.rigor = *rc::gen::element(Rigor::kQuick, Rigor::kFull, Rigor::kExhaustive);
    t.measured_at = *rc::gen::element<std::string>("", "2025-01-01T00:00:00Z",
                                                   "2025-01-02T00:00:00Z");
    t.device_class = *rc::gen::element<std::string>(kH200, kA10);
    t.driver = *rc::gen::element<std::string>("12040", "13000");
    t.measurement.detail = *rc::gen::arbitrary<std::string>();
    if (*rc::gen::inRange(0, 4) == 0) t.measurement.max_error = std::nan("");
    if (*rc::gen::inRange(0, 4) == 0) {
      t.estimated = true;
      t.measurement.status = Status::kOk;
    }
    return t;
  });
}

struct Found {
  std::vector<Try> tries;
  std::vector<std::pair<Rigor, int>> searches;
};

rc::Gen<Found> any_contents() {
  return rc::gen::exec([] {
    Found found;
    found.tries = *rc::gen::container<std::vector<Try>>(any_try());
    found.searches = *rc::gen::container<std::vector<std::pair<Rigor, int>>>(
        rc::gen::pair(rc::gen::element(Rigor::kQuick, Rigor::kFull), rc::gen::inRange(0, 3)));
    return found;
  });
}

// The export of a database with these rows.
std::string text_of(const Found& found) {
  const Folder folder;
  const std::string path = folder.path("a.db");
  Cache cache(path);
  cache.put(found.tries);
  for (const auto& [rigor, winner] : found.searches)
    cache.finish(kProblem, kH200, rigor, config(winner));
  return exported(path);
}

// The export of a database after these imports.
std::string merged(const std::vector<std::string>& texts) {
  const Folder folder;
  const std::string path = folder.path("m.db");
  for (const std::string& text : texts) import_text(path, text);
  return exported(path);
}

RC_GTEST_PROP(MergeLaws, TwiceIsOnce, ()) {
  const std::string a = text_of(*any_contents());
  RC_ASSERT(merged({a, a}) == a);
}

RC_GTEST_PROP(MergeLaws, AnyOrder, ()) {
  const std::string a = text_of(*any_contents());
  const std::string b = text_of(*any_contents());
  const std::string c = text_of(*any_contents());
  const std::string all = merged({a, b, c});
  RC_ASSERT(all == merged({c, b, a}));
  RC_ASSERT(all == merged({a, merged({b, c})}));
}

}  // namespace
}  // namespace attnforge::testing
