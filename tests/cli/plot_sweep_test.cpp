// plot_sweep_test.cpp - which figures a sweep gives, with which lines.
#include "cli/plot/sweep_figures.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "attnforge/error.h"
#include "cli/output/bench_rows.h"

namespace attnforge::cli {
namespace {

using ::testing::Contains;
using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

BenchRow row(const std::string& problem, const std::string& family, double time_us) {
  BenchRow row;
  row.problem = parse_problem(problem);
  row.asked = family;
  row.config = family + " block_m=64";
  row.provenance = "measured";
  row.result.time_us = time_us;
  row.result.tflops_per_s = flops(row.problem) / time_us * 1e-6;
  row.result.memory.peak = 4 * row.problem.seqlen_q;
  return row;
}

BenchOrigin origin() {
  BenchOrigin origin;
  origin.device.name = "NVIDIA H200";
  origin.date = "2026-01-31T12:00:00Z";
  return origin;
}

std::vector<Figure> figures(const std::vector<BenchRow>& rows) {
  // Through a file's text: what is stored can be drawn.
  return sweep_figures(parse_csv(csv(full_table(rows, origin())), "sweep.csv"));
}

std::vector<std::string> files(const std::vector<Figure>& all) {
  std::vector<std::string> names;
  for (const Figure& figure : all) names.push_back(figure.file);
  return names;
}

std::vector<std::string> curves(const Figure& figure) {
  std::vector<std::string> names;
  for (const Curve& curve : figure.curves) names.push_back(curve.name);
  return names;
}

TEST(PlotSweep, WhatNobodyCanCountIsInNoPictureOfThroughput) {
  BenchRow counted = row("fwd fp16 seqlen=512 head_dim=64", "fwd_a", 10),
           longer = row("fwd fp16 seqlen=1024 head_dim=64", "fwd_a", 30),
           unknown = row("fwd fp16 seqlen=2048 head_dim=64", "fwd_a", 90);
  unknown.result.work_unknown = "only a compiler reads its text";
  const auto points_of = [](const std::vector<Figure>& all, const std::string& name) {
    for (const Figure& figure : all)
      if (figure.file == name) return figure.curves.front().points.size();
    return std::size_t{0};
  };
  const std::vector<Figure> all = figures({counted, longer, unknown});
  EXPECT_EQ(points_of(all, "latency"), 3u);
  EXPECT_EQ(points_of(all, "throughput"), 2u);
  for (BenchRow* each : {&counted, &longer}) each->result.work_unknown = "so too";
  EXPECT_THAT(files(figures({counted, longer, unknown})), Not(Contains("throughput")));
}

TEST(PlotSweep, LinesAreFamilies) {
  const auto all = figures({row("fwd fp16 seqlen=512 head_dim=64", "fwd_a", 10),
                            row("fwd fp16 seqlen=512 head_dim=64", "fwd_b", 20),
                            row("fwd fp16 seqlen=1024 head_dim=64", "fwd_a", 30),
                            row("fwd fp16 seqlen=1024 head_dim=64", "fwd_b", 60)});
  ASSERT_THAT(files(all), ElementsAre("latency", "throughput", "memory"));
  EXPECT_THAT(curves(all[0]), ElementsAre("fwd_a", "fwd_b"));
  EXPECT_THAT(all[0].curves[1].points,
              ElementsAre(Pair(512, DoubleEq(20e-6)), Pair(1024, DoubleEq(60e-6))));
  EXPECT_THAT(all[0].subtitle, HasSubstr("fwd fp16 num_heads=1 head_dim=64 batch=1"));
  EXPECT_EQ(all[0].note, "NVIDIA H200, 2026-01-31, tuned");
}

TEST(PlotSweep, TimeAgainstTheDensityOfABlockMask) {
  const std::string problem = "fwd fp16 seqlen=512 head_dim=64";
  const auto all = figures({row(problem, "", 100), row(problem + " blocks=64 density=0.25", "", 40),
                            row(problem + " blocks=64 density=0.5", "", 60),
                            row(problem + " blocks=128:64 mask_bits density=0.5", "", 55)});
  ASSERT_THAT(files(all), ElementsAre("density"));
  EXPECT_THAT(curves(all[0]), ElementsAre("blocks of 64", "blocks of 128:64", "without a mask",
                                          "ideal: that times the density"));
  EXPECT_THAT(all[0].curves[0].points,
              ElementsAre(Pair(25, DoubleEq(40e-6)), Pair(50, DoubleEq(60e-6))));
  EXPECT_THAT(all[0].curves[2].points,
              ElementsAre(Pair(25, DoubleEq(1e-4)), Pair(50, DoubleEq(1e-4))));
  EXPECT_THAT(all[0].curves[3].points,
              ElementsAre(Pair(25, DoubleEq(25e-6)), Pair(50, DoubleEq(50e-6))));
  EXPECT_THAT(all[0].subtitle, HasSubstr("seqlen_q=512"));
}

TEST(PlotSweep, TimeAgainstTheLengthOfACacheBesideTheMemorysLimit) {
  const auto decode = [](const std::string& sizes, double time_us) {
    BenchRow one = row("fwd bf16 num_heads=32:8 head_dim=128 " + sizes, "", time_us);
    one.result.gbytes_per_s = minimum_bytes(one.problem) / time_us * 1e-3;
    return one;
  };
  const auto all = figures({decode("seqlen=1:2048", 10), decode("seqlen=1:65536", 80),
                            decode("seqlen=512:65536", 400), decode("seqlen=1:8192", 20)});
  const Figure& cache = all.back();
  ASSERT_EQ(cache.file, "cache");
  ASSERT_THAT(curves(cache), ElementsAre("best family, 1 query", "memory: 4.9 TB/s, 1 query"));
  EXPECT_THAT(cache.curves[0].points,
              ElementsAre(Pair(2048, DoubleEq(10e-6)), Pair(8192, DoubleEq(20e-6)),
                          Pair(65536, DoubleEq(80e-6))));
  const double limit = cache.curves[1].points.back().second;
  EXPECT_NEAR(limit, 2.0 * 2 * 128 * 8 * 65536 / 4.9e12, 0.05 * limit);
  const auto alone = figures({decode("seqlen=1:2048", 10), decode("seqlen=1:65536", 80)});
  EXPECT_THAT(files(alone), ElementsAre("cache"));
}

TEST(PlotSweep, LinesAreHeadDimsWhereThereIsOneFamily) {
  const auto all = figures({row("fwd fp16 seqlen=512 head_dim=64", "", 10),
                            row("fwd fp16 seqlen=1024 head_dim=64", "", 20),
                            row("fwd fp16 seqlen=512 head_dim=128", "", 30),
                            row("fwd fp16 seqlen=1024 head_dim=128", "", 60)});
  EXPECT_THAT(curves(all[0]), ElementsAre("head_dim 64", "head_dim 128"));
  EXPECT_THAT(all[0].subtitle, HasSubstr("best family"));
}

TEST(PlotSweep, BatchThatFollowsTheLengthMakesNoLines) {
  const auto all = figures({row("fwd fp16 batch=4 seqlen=512 head_dim=64", "fwd_a", 10),
                            row("fwd fp16 batch=2 seqlen=1024 head_dim=64", "fwd_a", 20)});
  EXPECT_THAT(curves(all[0]), ElementsAre("fwd_a"));
}

TEST(PlotSweep, OtherDifferencesMakeFiguresOfTheirOwn) {
  const auto all = figures({row("fwd fp16 seqlen=512 head_dim=64", "fwd_a", 10),
                            row("fwd fp16 seqlen=1024 head_dim=64", "fwd_a", 20),
                            row("fwd bf16 seqlen=512 head_dim=64 causal", "fwd_a", 10),
                            row("fwd bf16 seqlen=1024 head_dim=64 causal", "fwd_a", 20)});
  EXPECT_THAT(files(all), ElementsAre("latency_1", "throughput_1", "memory_1", "latency_2",
                                      "throughput_2", "memory_2"));
  EXPECT_THAT(all[3].subtitle, HasSubstr("causal"));
}

TEST(PlotSweep, MemoryHasTheQuadraticBaselineAndOneLineForEqualOnes) {
  const auto all = figures({row("fwd fp32 seqlen=512 head_dim=64", "fwd_a", 10),
                            row("fwd fp32 seqlen=512 head_dim=64", "fwd_b", 20),
                            row("fwd fp32 seqlen=1024 head_dim=64", "fwd_a", 30),
                            row("fwd fp32 seqlen=1024 head_dim=64", "fwd_b", 60)});
  const Figure& memory = all[2];
  ASSERT_THAT(curves(memory), ElementsAre("fwd_a and 1 more", "O(L^2): scores in fp32"));
  EXPECT_EQ(memory.curves[1].look, Curve::Look::kComputed);
  // q, k, v, o of 512 x 64 floats, and 512 x 512 scores.
  EXPECT_DOUBLE_EQ(memory.curves[1].points[0].second, 4.0 * (4 * 512 * 64 + 512 * 512));
  EXPECT_TRUE(memory.x.logarithmic && memory.y.logarithmic);
}

TEST(PlotSweep, WasteIsTheShareOfThePaddedTime) {
  const auto all = figures({row("fwd fp16 seqlen=512 head_dim=96", "fwd_a", 80),
                            row("fwd fp16 seqlen=512 head_dim=128", "fwd_a", 100)});
  ASSERT_THAT(files(all), ElementsAre("padding_waste"));
  ASSERT_THAT(curves(all[0]), ElementsAre("fwd_a", "1 - D / next power of two"));
  ASSERT_EQ(all[0].curves[0].points.size(), 1u);
  EXPECT_EQ(all[0].curves[0].points[0].first, 96);
  EXPECT_NEAR(all[0].curves[0].points[0].second, 20.0, 1e-9);
  EXPECT_NEAR(all[0].curves[1].points.front().second, 25.0, 1e-9);
}

TEST(PlotSweep, ManyLinesAreAFigureAHeadDim) {
  std::vector<BenchRow> rows;
  for (int head_dim : {64, 128, 256}) {
    for (const char* family : {"fwd_a", "fwd_b", "fwd_c"}) {
      for (int seqlen : {512, 1024})
        rows.push_back(
            row(fmt::format("fwd fp16 seqlen={} head_dim={}", seqlen, head_dim), family, seqlen));
    }
  }
  const auto all = figures(rows);
  EXPECT_EQ(files(all)[0], "latency_d64");
  EXPECT_EQ(files(all)[3], "latency_d128");
  EXPECT_THAT(curves(all[0]), ElementsAre("fwd_a", "fwd_b", "fwd_c"));
}

TEST(PlotSweep, TheFigureSaysWhetherConfigsWereTuned) {
  const auto note = [](const char* first, const char* second) {
    BenchRow a = row("fwd fp16 seqlen=512 head_dim=64", "fwd_a", 10);
    BenchRow b = row("fwd fp16 seqlen=1024 head_dim=64", "fwd_a", 20);
    a.provenance = first;
    b.provenance = second;
    return figures({a, b})[0].note;
  };
  EXPECT_THAT(note("estimated", "estimated"), testing::EndsWith(", untuned"));
  EXPECT_THAT(note("estimated", "measured"), testing::EndsWith(", 1 of 2 tuned"));
}

TEST(PlotSweep, ThroughputHasTheBoundOfAKnownGpu) {
  std::vector<BenchRow> rows = {row("fwd fp16 seqlen=512 head_dim=64", "fwd_a", 10),
                                row("fwd fp16 seqlen=1024 head_dim=64", "fwd_a", 20)};
  rows[0].result.gbytes_per_s = 1e9 * rows[0].result.tflops_per_s;  // hardly any arithmetic
  const Figure throughput = figures(rows)[1];
  ASSERT_THAT(curves(throughput), ElementsAre("fwd_a", "bound: tensor cores, wgmma, memory"));
  const Curve& bound = throughput.curves[1];
  EXPECT_EQ(bound.look, Curve::Look::kComputed);
  EXPECT_LT(bound.points[0].second, 1e-3) << "memory";
  EXPECT_NEAR(bound.points[1].second, 1070, 2) << "132 SMs x 4096 x 1.98 GHz";
  BenchOrigin unknown = origin();
  unknown.device.name = "NVIDIA of tomorrow";
  EXPECT_EQ(sweep_figures(full_table(rows, unknown))[1].curves.size(), 1u);
}

TEST(PlotSweep, TimesHaveTheirSpread) {
  std::vector<BenchRow> rows = {row("fwd fp16 seqlen=512 head_dim=64", "fwd_a", 10),
                                row("fwd fp16 seqlen=1024 head_dim=64", "fwd_a", 20)};
  for (BenchRow& each : rows) each.result.noise = 0.02;
  const auto all = figures(rows);
  EXPECT_THAT(all[0].curves[0].errors, ElementsAre(DoubleEq(10e-6 * 0.01), DoubleEq(20e-6 * 0.01)));
  EXPECT_TRUE(all[2].curves[0].errors.empty()) << "memory is counted";
  rows[0].result.noise = 0;
  EXPECT_TRUE(figures(rows)[0].curves[0].errors.empty()) << "of one point it is not known";
}

TEST(PlotSweep, TheArithmeticOfPaddingJumpsAtPowersOfTwo) {
  const auto all = figures({row("fwd fp16 seqlen=512 head_dim=48", "fwd_a", 40),
                            row("fwd fp16 seqlen=512 head_dim=64", "fwd_a", 50),
                            row("fwd fp16 seqlen=512 head_dim=96", "fwd_a", 80),
                            row("fwd fp16 seqlen=512 head_dim=128", "fwd_a", 100)});
  const auto& points = all[0].curves.back().points;
  const auto at_64 = std::find(points.begin(), points.end(), std::pair(64.0, 0.0));
  ASSERT_NE(at_64, points.end());
  EXPECT_TRUE(std::isnan((at_64 + 1)->second)) << "a gap, no slope";
  EXPECT_EQ(*(at_64 + 2), std::pair(64.0, 50.0));
}

TEST(PlotSweep, PeersAreLinesBesideAttnforge) {
  const Table rows = parse_csv(
      "impl,dtype,batch,num_heads_q,num_heads_kv,seqlen_q,seqlen_kv,head_dim,head_dim_v,causal,ms,"
      "tflops,spread,gpu\n"
      "attnforge,bf16,4,16,16,512,512,128,128,1,0.1,300,0.01,NVIDIA H200\n"
      "fa3,bf16,4,16,16,512,512,128,128,1,0.11,280,0.01,NVIDIA H200\n"
      "flex,bf16,4,16,16,512,512,128,128,1,,,,NVIDIA H200\n"
      "attnforge,bf16,2,16,16,1024,1024,128,128,1,0.2,400,0.01,NVIDIA H200\n"
      "fa3,bf16,2,16,16,1024,1024,128,128,1,0.21,390,0.01,NVIDIA H200\n",
      "peers.csv");
  const auto all = sweep_figures(rows);
  ASSERT_THAT(files(all), ElementsAre("latency", "throughput")) << "memory is not known";
  EXPECT_THAT(curves(all[1]), ElementsAre("attnforge, tuned", "fa3", "bound: tensor cores, wgmma"));
  EXPECT_THAT(all[0].curves[0].points[0], Pair(512, DoubleEq(100e-6)));
  EXPECT_EQ(all[1].curves[0].errors.size(), 2u);
  EXPECT_EQ(all[1].subtitle,
            "fwd bf16 num_heads=16 causal head_dim=128, 2048 tokens at each length");
  EXPECT_EQ(all[1].note, "NVIDIA H200");
}

TEST(PlotSweep, FailedRowsAreLeftOut) {
  BenchRow failed = row("fwd fp16 seqlen=2048 head_dim=64", "fwd_a", 0);
  failed.error = "no kernel";
  const auto all = figures({row("fwd fp16 seqlen=512 head_dim=64", "fwd_a", 10),
                            row("fwd fp16 seqlen=1024 head_dim=64", "fwd_a", 20), failed});
  EXPECT_EQ(all[0].curves[0].points.size(), 2u);
}

TEST(PlotSweep, SaysWhatIsMissing) {
  const auto message = [](const Table& rows) -> std::string {
    try {
      sweep_figures(rows);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message(full_table({row("fwd fp16 seqlen=512 head_dim=64", "fwd_a", 10)}, origin())),
              HasSubstr("two sequence lengths"));
  EXPECT_THAT(message(parse_csv("time_us\n1\n", "x.csv")), HasSubstr("column status"));
}

}  // namespace
}  // namespace attnforge::cli
