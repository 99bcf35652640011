// bench_rows_test.cpp - rows of a sweep as tables, files and JSON.
#include "cli/output/bench_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/temporary_folder.h"

namespace attnforge::cli {
namespace {

using ::testing::HasSubstr;

BenchRow good() {
  BenchRow row;
  row.problem = parse_problem("fwd fp32 batch=2 num_heads=4 seqlen=256 head_dim=72 causal");
  row.config = "fwd_a block_m=64";
  row.provenance = "measured";
  row.result.time_us = 12.5;
  row.result.samples = 7;
  row.result.memory = {
      .inputs = 300, .outputs = 100, .workspace = 50, .peak = 450, .driver = 2 << 20};
  return row;
}
BenchRow bad() {
  BenchRow row;
  row.problem = parse_problem("fwd fp16 seqlen=64");
  row.asked = "fwd_b";
  row.error = "no kernel family serves it:\n  fwd_b: \"why\"";
  row.code = ErrorCode::kUnsupported;
  return row;
}
BenchOrigin origin() {
  BenchOrigin origin;
  origin.device.name = "NVIDIA H200";
  origin.date = "2026-01-31T12:00:00Z";
  return origin;
}

std::string cell(const Table& table, std::size_t row, const std::string& column) {
  const auto found = std::find_if(table.columns.begin(), table.columns.end(),
                                  [&](const Column& each) { return each.name == column; });
  EXPECT_NE(found, table.columns.end()) << column;
  return table.rows.at(row).at(static_cast<std::size_t>(found - table.columns.begin()));
}

TEST(BenchRows, EveryFieldOfTheProblemIsAColumn) {
  const Table table = full_table({good()}, origin());
  EXPECT_EQ(cell(table, 0, "dtype"), "fp32");
  EXPECT_EQ(cell(table, 0, "batch"), "2");
  EXPECT_EQ(cell(table, 0, "num_heads_q"), "4");
  EXPECT_EQ(cell(table, 0, "seqlen_kv"), "256");
  EXPECT_EQ(cell(table, 0, "head_dim"), "72");
  EXPECT_EQ(cell(table, 0, "causal"), "1");
  EXPECT_EQ(cell(table, 0, "family"), "fwd_a");
  EXPECT_EQ(cell(table, 0, "asked"), "any");
  EXPECT_EQ(cell(table, 0, "time_us"), "12.5");
  EXPECT_EQ(cell(table, 0, "padding_waste"), "0.4375");
  EXPECT_EQ(cell(table, 0, "peak_bytes"), "450");
  EXPECT_EQ(cell(table, 0, "gpu"), "NVIDIA H200");
}

TEST(BenchRows, ARopeSaysHowManyElementsRotate) {
  BenchRow row = good();
  row.problem.rope = Rope::kHalf;
  const Table table = full_table({good(), row}, origin());
  EXPECT_EQ(cell(table, 0, "rope"), "none");
  EXPECT_EQ(cell(table, 0, "rope_dim"), "0");
  EXPECT_EQ(cell(table, 1, "rope"), "half");
  EXPECT_EQ(cell(table, 1, "rope_dim"), "72");
}

TEST(BenchRows, QuadraticMemoryIsTheTensorsAndAScoreMatrix) {
  const Problem problem = parse_problem("fwd fp32 batch=2 num_heads=4 seqlen=256 head_dim=64");
  EXPECT_DOUBLE_EQ(quadratic_bytes(problem), 4.0 * 2 * 4 * (4 * 256 * 64 + 256 * 256));
}

TEST(BenchRows, FailedRowsHaveTheReasonAndNoTime) {
  const Table table = full_table({bad()}, origin());
  EXPECT_EQ(cell(table, 0, "status"), "unsupported");
  EXPECT_EQ(cell(table, 0, "family"), "fwd_b");
  EXPECT_EQ(cell(table, 0, "time_us"), "");
  EXPECT_THAT(cell(table, 0, "error"), HasSubstr("fwd_b: \"why\""));
  const std::string readable = aligned(readable_table({bad()}));
  EXPECT_THAT(readable, HasSubstr("failed"));
  EXPECT_THAT(readable, HasSubstr("fwd_b: no kernel family serves it:"));
}

TEST(BenchRows, WorkThatNobodyCanCountHasNoThroughput) {
  BenchRow row = good();
  row.result.work_unknown = "only the GPU knows how long its sequences are";
  EXPECT_EQ(cell(full_table({row}, origin()), 0, "tflops_per_s"), "");
  EXPECT_EQ(cell(full_table({row}, origin()), 0, "flops_unknown"), row.result.work_unknown);
  EXPECT_EQ(cell(readable_table({row}), 0, "TFLOP/s"), "-");
  EXPECT_EQ(uncounted_text({row, good(), row}),
            "no TFLOP/s: only the GPU knows how long its sequences are\n");
  EXPECT_TRUE(to_json({row}, origin(), false)["results"][0]["tflops_per_s"].is_null());
  row.result.work_unknown.clear();
  EXPECT_TRUE(to_json({row}, origin(), false)["results"][0]["tflops_per_s"].is_number());
}

TEST(BenchRows, JsonHasTheColumnsAsKeysAndErrorsAsObjects) {
  const Json json = to_json({good(), bad()}, origin(), true);
  EXPECT_TRUE(json.at("interrupted").get<bool>());
  const Json& rows = json.at("results");
  EXPECT_EQ(rows[0].at("time_us").get<double>(), 12.5);
  EXPECT_EQ(rows[0].at("peak_bytes").get<int>(), 450);
  EXPECT_EQ(rows[0].at("batch").get<int>(), 2);
  EXPECT_FALSE(rows[0].contains("error"));
  EXPECT_EQ(rows[1].at("error").at("code").get<std::string>(), "unsupported");
  EXPECT_FALSE(rows[1].contains("time_us"));
}

TEST(BenchFiles, CsvGrowsWithEachRowAndJsonComesAtTheEnd) {
  TemporaryFolder folder;
  const std::string csv_path = folder.file("sweep.csv"), json_path = folder.file("sweep.json");
  BenchFiles files({csv_path, json_path});
  files.add(good(), origin());
  EXPECT_EQ(read_sweep(csv_path).rows.size(), 1u);
  files.add(bad(), origin());
  const Table table = read_sweep(csv_path);
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(cell(table, 1, "error"), bad().error) << "lines and quotes of a reason survive";
  files.finish({good(), bad()}, origin(), false);
  std::ifstream file(json_path);
  EXPECT_EQ(Json::parse(file).at("results").size(), 2u);
}

TEST(BenchFiles, NamesMustSayTheFormat) {
  EXPECT_THROW(BenchFiles({"sweep.txt"}), Error);
  EXPECT_THROW(BenchFiles({"/no/such/folder/sweep.csv"}), Error);
  EXPECT_THROW(read_sweep("/no/such/sweep.csv"), Error);
}

}  // namespace
}  // namespace attnforge::cli
