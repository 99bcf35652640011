// recorded_spaces_test.cpp - what each rigor of a search finds in spaces whose every config was
// measured on a GPU, and after how many evaluations. The table of recorded_search.csv is
// --gtest_also_run_disabled_tests --gtest_filter='*RecordedTable'.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <numeric>
#include <sstream>
#include <vector>

#include "cache/cache.h"
#include "tests/tuner/recorded_spaces.h"
#include "tuner/search/tune.h"

namespace attnforge {
namespace {

using namespace testing;

const DeviceFacts& kDevice = typical_device("90a");

const std::vector<RecordedSpace>& recorded() {
  static const std::vector<RecordedSpace> spaces = [] {
    std::ifstream file(ATTNFORGE_RECORDED_SPACES);
    return read_spaces(file);
  }();
  return spaces;
}

/// candidates_of() each space; made once, since it takes most of the time here.
const std::vector<std::vector<Candidate>>& recorded_candidates() {
  static const std::vector<std::vector<Candidate>> all = [] {
    std::vector<std::vector<Candidate>> result;
    for (const RecordedSpace& space : recorded()) result.push_back(candidates_of(space, kDevice));
    return result;
  }();
  return all;
}

struct Found {
  double to_best = 0;       // the winner's recorded time / the best of all
  std::size_t evaluations;  // configs that were proved
  RecordedGpu gpu;
};

Found search(std::size_t place, Rigor rigor, FakeClock& clock, unsigned seed = 1) {
  const RecordedSpace& space = recorded()[place];
  RecordedGpu gpu(clock, space, seed);
  Cache empty{":memory:"};
  TuneOptions options;
  options.rigor = rigor;
  options.seed = seed;
  const TuneResult result = tune_problem(space.problem, kDevice, empty, gpu,
                                         recorded_candidates()[place], options, environment(clock));
  const double us = result.winner.empty() ? std::numeric_limits<double>::infinity()
                                          : gpu.us(parse_config(result.winner));
  return {us / space.best_us, gpu.proved_us.size(), std::move(gpu)};
}

// A recording of which today's generator reaches less says nothing of a search: record anew.
TEST(RecordedSpaces, TodaysGeneratorReachesThemAndTheirBest) {
  ASSERT_EQ(recorded().size(), 12u);
  for (std::size_t i = 0; i < recorded().size(); ++i) {
    const RecordedSpace& space = recorded()[i];
    const std::vector<Candidate>& today = recorded_candidates()[i];
    EXPECT_GE(today.size(), 0.8 * static_cast<double>(space.us.size())) << to_string(space.problem);
    double best_us = std::numeric_limits<double>::infinity();
    for (const Candidate& each : today) {
      const double us = space.us.at(name_of(each.config));
      if (us < best_us) best_us = us;
    }
    EXPECT_LE(best_us, 1.02 * space.best_us) << to_string(space.problem);
  }
}

// With three seeds, of noise and of the order of rounds.
TEST(RecordedSpaces, QuickIsWithinTwoPercentOfTheBestOnNineOfTenWith24Evaluations) {
  std::size_t within = 0, searches = 0;
  for (std::size_t i = 0; i < recorded().size(); ++i) {
    for (const unsigned seed : {1u, 2u, 3u}) {
      FakeClock clock;
      const Found found = search(i, Rigor::kQuick, clock, seed);
      EXPECT_LE(found.evaluations, 24u) << to_string(recorded()[i].problem);
      if (found.to_best > 1.02)
        std::printf("%.3f, seed %u: %s\n", found.to_best, seed,
                    to_string(recorded()[i].problem).c_str());
      within += found.to_best <= 1.02;
      ++searches;
    }
  }
  EXPECT_GE(within * 10, searches * 9) << within << " of " << searches;
}

TEST(RecordedSpaces, FullAndExhaustiveEndAtTheBest) {
  for (std::size_t i = 0; i < recorded().size(); ++i) {
    FakeClock clock;
    EXPECT_LE(search(i, Rigor::kFull, clock).to_best, 1.02) << to_string(recorded()[i].problem);
    EXPECT_LE(search(i, Rigor::kExhaustive, clock).to_best, 1.02)
        << to_string(recorded()[i].problem);
  }
}

TEST(RecordedSpaces, TextIsReadWithFieldsThatAreOffLeftOut) {
  std::istringstream text(
      "# made up\nspace fwd bf16 seqlen=64 head_dim=64\ngpu a GPU\nfamily fake a b\n12.5 1 0\n"
      "- 2 3\n");
  const std::vector<RecordedSpace> spaces = read_spaces(text);
  ASSERT_EQ(spaces.size(), 1u);
  EXPECT_EQ(spaces[0].us.at("fake a=1"), 12.5);
  EXPECT_TRUE(std::isnan(spaces[0].us.at("fake a=2 b=3")));
  EXPECT_EQ(spaces[0].best_us, 12.5);
  EXPECT_EQ(name_of(parse_config("fake c=0 a=1")), "fake a=1");
  std::istringstream short_line("space fwd bf16 seqlen=64 head_dim=64\nfamily fake a b\n1 1\n");
  EXPECT_THROW(read_spaces(short_line), std::runtime_error);
}

TEST(RecordedSpaces, DISABLED_RecordedTable) {
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
  std::printf("rigor,evaluations,spaces,mean,worst,within_2_percent\n");
  for (const Rigor rigor : {Rigor::kQuick, Rigor::kFull, Rigor::kExhaustive}) {
    for (const std::size_t evaluations : {1ul, 2ul, 4ul, 8ul, 12ul, 24ul, 48ul, 96ul, kMost}) {
      double sum = 0, worst = 0;
      std::size_t within = 0, most = 0;
      for (std::size_t i = 0; i < recorded().size(); ++i) {
        FakeClock clock;
        const Found found = search(i, rigor, clock);
        const double ratio = evaluations == kMost
                                 ? found.to_best
                                 : found.gpu.best_us(evaluations) / recorded()[i].best_us;
        sum += std::log(ratio);
        worst = std::max(worst, ratio);
        within += ratio <= 1.02;
        most = std::max(most, found.evaluations);
      }
      const auto count = static_cast<double>(recorded().size());
      std::printf("%s,%s,%zu,%.3f,%.3f,%zu\n", std::string(to_string(rigor)).c_str(),
                  evaluations == kMost ? ("winner of " + std::to_string(most)).c_str()
                                       : std::to_string(evaluations).c_str(),
                  recorded().size(), std::exp(sum / count), worst, within);
    }
  }
}

}  // namespace
}  // namespace attnforge
