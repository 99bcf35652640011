// page_report_test.cpp - a database at a glance.
#include "cli/page/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

namespace attnforge::cli {
namespace {

using testing::HasSubstr;

const char* const kLines =
    R"({"kind":"try","problem":"p","device_class":"NVIDIA H200 sm_90a sms=132","config":"f a=1","estimate_us":20,"estimated":false,"status":"ok","time_us":30}
{"kind":"try","problem":"p","device_class":"NVIDIA H200 sm_90a sms=132","config":"f a=2","estimate_us":10,"estimated":false,"status":"ok","time_us":24}
{"kind":"try","problem":"p","device_class":"NVIDIA H200 sm_90a sms=132","config":"f a=3","estimate_us":5,"estimated":false,"status":"compile_error","time_us":0}
{"kind":"try","problem":"p","device_class":"NVIDIA H200 sm_90a sms=132","config":"f a=4","estimate_us":4,"estimated":true,"status":"ok","time_us":0}
{"kind":"try","problem":"p","device_class":"NVIDIA H200 sm_90a sms=132","config":"f a=5","estimate_us":12,"estimated":false,"status":"ok","time_us":20}
{"kind":"search","problem":"p","device_class":"NVIDIA H200 sm_90a sms=132","rigor":"full","winner":"f a=5"}
{"kind":"search","problem":"p","device_class":"NVIDIA H200 sm_90a sms=132","rigor":"quick","winner":"f a=2"}
{"kind":"try","problem":"of another GPU","device_class":"x","config":"f a=1","estimate_us":1,"estimated":false,"status":"ok","time_us":1}
)";

Report small_report() {
  CacheEntry entry;
  entry.problem = "p";
  entry.device_class = "NVIDIA H200 sm_90a sms=132";
  entry.config = "f a=5";
  entry.time_us = 20;
  entry.tries = 5;
  entry.failures = 1;
  entry.measured_at = "2026-01-02T03:04:05Z";
  std::istringstream lines(kLines);
  Report report;
  report.rows = report_rows({entry}, lines);
  return report;
}

TEST(Report, UntunedIsTheMeasuredTryThatTheModelLikedMost) {
  const Report report = small_report();
  const ReportRow& row = report.rows.at(0);
  EXPECT_EQ(row.untuned, "f a=2") << "neither the failed one nor the one that never ran";
  EXPECT_DOUBLE_EQ(row.gain(), 24.0 / 20.0);
  EXPECT_EQ(row.points.size(), 3u);
  EXPECT_EQ(row.rigor, "full") << "the most rigorous";
}

TEST(Report, WhatWasNeverMeasuredHasNoGain) {
  ReportRow row;
  row.untuned_us = 10;
  row.best.time_us = 5;
  row.best.estimated = true;
  EXPECT_EQ(row.gain(), 0);
}

TEST(Report, DatesNoEstimateUnderMeasured) {
  Report report = small_report();
  report.stats.tries = 1;
  report.rows[0].best.estimated = true;
  report.rows[0].best.measured_at = "2026-01-02T03:04:05Z";  // when it was written down
  const std::string text = report_text(report);
  EXPECT_THAT(text, HasSubstr("estimate"));
  EXPECT_THAT(text, testing::Not(HasSubstr("2026")));
  EXPECT_THAT(text, HasSubstr("\n1 problem, 1 try"));
}

TEST(Report, TextAndJsonSayTheSame) {
  Report report = small_report();
  report.rows[0].state = "stale";
  const std::string text = report_text(report);
  for (const char* part :
       {"20.00", "1.20x", "full", "2026-01-02", "stale", "NVIDIA H200", "1 stale"})
    EXPECT_THAT(text, HasSubstr(part));
  const Json json = report_json(report, "2026-02-01T00:00:00Z");
  EXPECT_EQ(json.at("rows")[0].at("state"), "stale");
  EXPECT_DOUBLE_EQ(json.at("rows")[0].at("gain").get<double>(), 1.2);
  EXPECT_EQ(json.at("stale"), 1);
  EXPECT_THAT(text, HasSubstr("\n1 problem, 0 tries; "));
  EXPECT_EQ(report_text({}), "no problem in the database matches\n");
}

}  // namespace
}  // namespace attnforge::cli
