// plot_landscape_test.cpp - tries as a map over two fields.
#include "cli/plot/landscape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attnforge/error.h"

namespace attnforge::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Optional;

Trial trial(const std::string& config, double time_us, Status status = Status::kOk) {
  Trial trial;
  trial.config = config;
  trial.measurement.time_us = time_us;
  trial.measurement.status = status;
  return trial;
}

const std::vector<Trial> kTrials = {
    trial("fwd_a head_dim=64 block_m=64 block_n=32 stages=1", 30),
    trial("fwd_a head_dim=64 block_m=64 block_n=32 stages=2", 20),
    trial("fwd_a head_dim=64 block_m=64 block_n=64 stages=2", 15),
    trial("fwd_a head_dim=64 block_m=128 block_n=32 stages=1", 10),
    trial("fwd_a head_dim=64 block_m=128 block_n=64 stages=1", 1, Status::kWrongResult),
    trial("fwd_b block_m=8 num_threads=64", 100)};

std::string error_of(const LandscapeOptions& options) {
  try {
    landscapes("fwd fp16", kTrials, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(PlotLandscape, CellIsTheBestOverTheOtherFields) {
  const std::vector<HeatMap> maps = landscapes("fwd fp16", kTrials, {});
  ASSERT_EQ(maps.size(), 1u) << "fwd_b has one config: no map";
  const HeatMap& map = maps[0];
  EXPECT_EQ(map.file, "landscape_fwd_a");
  EXPECT_EQ(map.x_name, "block_n");
  EXPECT_EQ(map.y_name, "block_m");
  EXPECT_THAT(map.xs, ElementsAre(32, 64));
  EXPECT_THAT(map.ys, ElementsAre(64, 128));
  EXPECT_THAT(map.cells[0], ElementsAre(Optional(20.0), Optional(15.0)));
  EXPECT_THAT(map.cells[1][0], Optional(10.0));
  EXPECT_FALSE(map.cells[1][1]) << "a wrong result has no time";
}

TEST(PlotLandscape, WinnerIsMarked) {
  const HeatMap map = landscapes("fwd fp16", kTrials, {})[0];
  EXPECT_EQ(map.winner_x, 0u);
  EXPECT_EQ(map.winner_y, 1u);
  EXPECT_THAT(map.title, HasSubstr("10 us"));
}

TEST(PlotLandscape, AxesCanBeChosen) {
  const HeatMap map = landscapes("fwd fp16", kTrials, landscape_options("stages,block_n"))[0];
  EXPECT_EQ(map.x_name, "stages");
  EXPECT_EQ(map.y_name, "block_n");
  EXPECT_THAT(map.cells[0], ElementsAre(Optional(10.0), Optional(20.0)));
}

TEST(PlotLandscape, AxisThatDoesNotVaryIsRefusedWithThoseThatDo) {
  const std::string error = error_of(landscape_options("head_dim,block_n"));
  EXPECT_THAT(error, HasSubstr("head_dim and block_n"));
  EXPECT_THAT(error, HasSubstr("fwd_a: block_m, block_n, stages"));
}

TEST(PlotLandscape, AxesAreTwo) {
  for (const char* axes : {"block_n", "block_n,", "block_n,block_n"})
    EXPECT_THROW(landscape_options(axes), Error) << axes;
}

}  // namespace
}  // namespace attnforge::cli
