// plot_figure_test.cpp - figures as gnuplot's scripts and data.
#include "cli/plot/figure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace attnforge::cli {
namespace {

using ::testing::HasSubstr;

Figure latency() {
  return {.file = "latency",
          .title = "Latency \"here\"",
          .subtitle = "fwd fp16",
          .note = "NVIDIA H200, 2026-01-31",
          .x = {"sequence length (tokens)", Unit::kNone, true},
          .y = {"time of a call", Unit::kSeconds, true},
          .curves = {{"fwd_a", {{512, 1e-5}, {1024, 3.5e-5}}},
                     {"fwd_b", {{512, 2e-5}}},
                     {"O(L^2)", {{512, 1}, {768, 2}}, Curve::Look::kComputed}}};
}

TEST(PlotFigure, DataHasABlockALine) {
  const Picture picture = picture_of(latency());
  EXPECT_EQ(picture.file, "latency");
  EXPECT_THAT(picture.data,
              HasSubstr("\"fwd_a\"\n512 1e-05\n1024 3.5e-05\n\n\n\"fwd_b\"\n512 2e-05\n"));
}

TEST(PlotFigure, ScriptDrawsBothFormatsFromTheData) {
  const std::string script = picture_of(latency()).script;
  EXPECT_THAT(script, HasSubstr("set output \"latency.png\""));
  EXPECT_THAT(script, HasSubstr("set output \"latency.svg\"\nreplot"));
  EXPECT_THAT(script, HasSubstr("\"latency.dat\" index 0 using 1:2 with linespoints"));
  EXPECT_THAT(script, HasSubstr("\"latency.dat\" index 2 using 1:2 with lines "));
}

TEST(PlotFigure, ScriptNamesAxesUnitsLinesGpuAndDate) {
  const std::string script = picture_of(latency()).script;
  EXPECT_THAT(script, HasSubstr("set xlabel \"sequence length (tokens)\""));
  EXPECT_THAT(script, HasSubstr("set format y \"%.0s %cs\""));  // "100 us"
  EXPECT_THAT(script, HasSubstr("title \"fwd_b\""));
  EXPECT_THAT(script, HasSubstr("NVIDIA H200, 2026-01-31"));
  EXPECT_THAT(script, HasSubstr("\"Latency \\\"here\\\"\"")) << "quotes of a title are kept";
}

TEST(PlotFigure, TicksStandAtMeasuredPointsOnly) {
  EXPECT_THAT(picture_of(latency()).script, HasSubstr("set xtics (512, 1024)\n"));
}

TEST(PlotFigure, TicksTooCloseToBeReadAreLeftOut) {
  Figure figure = latency();
  figure.curves = {{"a", {{1000, 1}, {1001, 1}, {16000, 1}}}};
  EXPECT_THAT(picture_of(figure).script, HasSubstr("set xtics (1000, 16000)\n"));
}

TEST(PlotFigure, AFewDecadesHaveTicksBetween) {
  EXPECT_THAT(picture_of(latency()).script, ::testing::Not(HasSubstr("set ytics")));
  Figure figure = latency();
  figure.curves = {{"a", {{512, 3e-5}, {1024, 2e-4}}}};
  EXPECT_THAT(picture_of(figure).script, HasSubstr("set ytics (1e-05, 2e-05, 5e-05, 0.0001, "));
}

TEST(PlotFigure, LinesDifferInMoreThanColour) {
  Figure figure = latency();
  figure.curves = {{"a", {{1, 1}}}, {"b", {{1, 1}}}};
  const std::string script = picture_of(figure).script;
  EXPECT_THAT(script, HasSubstr("dashtype 1 linewidth 1.5 pointtype 6"));
  EXPECT_THAT(script, HasSubstr("dashtype 2 linewidth 1.5 pointtype 4"));
}

TEST(PlotFigure, PointsHaveErrorBarsWhereTheirSpreadIsKnown) {
  Figure figure = latency();
  figure.curves = {{"a", {{1, 10}, {2, 20}}}, {"b", {{1, 1}, {2, 2}}}};
  figure.curves[0].errors = {0.5, 1};
  const Picture picture = picture_of(figure);
  EXPECT_THAT(picture.data, HasSubstr("\"a\"\n1 10 0.5\n2 20 1\n"));
  EXPECT_THAT(picture.script, HasSubstr("index 0 using 1:($2-$3):(0):(2*$3) with vectors heads"));
  EXPECT_THAT(picture.script, ::testing::Not(HasSubstr("index 1 using 1:2:3")));
}

TEST(PlotFigure, ALineThatJumpsHasAGap) {
  Figure figure = latency();
  figure.curves = {{"a", {{1, 10}, {1, std::nan("")}, {1, 20}}, Curve::Look::kComputed}};
  const Picture picture = picture_of(figure);
  EXPECT_THAT(picture.data, HasSubstr("1 10\n\n1 20\n"));
  EXPECT_THAT(picture.script, HasSubstr("set yrange [6.25:32]"));
}

HeatMap map() {
  HeatMap map;
  map.file = "landscape";
  map.x_name = "block_n";
  map.y_name = "block_m";
  map.z_name = "best time (us)";
  map.xs = {32, 64};
  map.ys = {64, 128};
  map.cells = {{{20.0}, {15.0}}, {{10.0}, std::nullopt}};
  map.winner_x = 0;
  map.winner_y = 1;
  return map;
}

TEST(PlotHeatMap, DataHasEveryCell) {
  EXPECT_THAT(picture_of(map()).data, HasSubstr("0 0 20\n1 0 15\n0 1 10\n1 1 NaN\n"));
}

TEST(PlotHeatMap, ScriptFramesTheWinnerAndNamesTheValues) {
  const std::string script = picture_of(map()).script;
  EXPECT_THAT(script, HasSubstr("rectangle center 0,1 "));
  EXPECT_THAT(script, HasSubstr("set xtics (\"32\" 0, \"64\" 1)"));
  EXPECT_THAT(script, HasSubstr("set ytics (\"64\" 0, \"128\" 1)"));
  EXPECT_THAT(script, HasSubstr("set cbrange [10:20]"));
}

}  // namespace
}  // namespace attnforge::cli
