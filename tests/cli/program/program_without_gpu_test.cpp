// program_without_gpu_test.cpp - what works without a GPU, and what is said of the rest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "cli/files/npy.h"
#include "tests/cli/program/program.h"
#include "tests/cli/program/program_fixture.h"
#include "tests/cli/temporary_folder.h"

namespace attnforge::cli {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::json;

TEST_F(Program, WithoutAGpuExitCode5AndWhatToDo) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"tune", "fwd seqlen=64"},
        {"bench", "fwd seqlen=64"},
        {"inspect", "fwd seqlen=64"},
        {"run", "--random", "1", "fwd seqlen=64"},
        {"tune", "--gpu", "all", "fwd seqlen=64"}}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 5) << testing::PrintToString(arguments) << outcome.err;
    EXPECT_THAT(outcome.err, StartsWith("attnforge: "));
    EXPECT_EQ(outcome.out, "");
  }
  EXPECT_THAT(run({"tune", "fwd seqlen=64"}).err, HasSubstr("tune --arch"));
  EXPECT_THAT(run({"inspect", "fwd seqlen=64"}).err, HasSubstr("--arch"));
  EXPECT_THAT(run({"bench", "fwd seqlen=64"}).err, HasSubstr("tune --arch"));
  EXPECT_THAT(run({"run", "--random", "1", "fwd seqlen=64"}).err, HasSubstr("run --cpu"));
}

TEST_F(Program, ABenchThatFindsNoGpuLeavesItsFilesAsTheyWere) {
  const std::string csv = folder_.write("sweep.csv", "of yesterday"),
                    json = folder_.write("sweep.json", "{}");
  EXPECT_EQ(run({"bench", "--out", csv, "--out", json, "fwd seqlen=64"}).exit_code, 5);
  EXPECT_EQ(read_file(csv), "of yesterday");
  EXPECT_EQ(read_file(json), "{}");
}

TEST_F(Program, TheReferenceRunsWithoutAGpu) {
  const std::string o = folder_.file("o.npy");
  const Outcome outcome = run(
      {"run", "--cpu", "--random", "1", "--check", "--json", "--o", o,
       "fwd bf16 batch=2 num_heads=4:2 seqlen=33:65 head_dim=40 causal lse"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["device"], "cpu");
  EXPECT_EQ(json["check"]["rows_checked"], 2 * 4 * 33);
  EXPECT_GT(json["check"]["max_error"], 0.0);  // bf16 rounds
  EXPECT_TRUE(std::filesystem::exists(o));
  EXPECT_EQ(run({"run", "--cpu", "--gpu", "0", "--random", "1", "fwd seqlen=8"}).exit_code, 2);
  EXPECT_EQ(run({"run", "--cpu", "--repeat", "7", "--random", "1", "fwd seqlen=8"}).exit_code, 2)
      << "nothing is timed";
}

TEST_F(Program, TheReferenceReadsTexts) {
  const std::vector<float> values = {0.5f, -0.25f};
  const std::string slope = folder_.file("slope.npy"), o = folder_.file("o.npy"),
                    expected = folder_.file("expected.npy");
  write_npy(slope, "<f4", std::vector<std::int64_t>{2}, std::as_bytes(std::span(values)));
  const auto on_cpu = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"run", "--cpu", "--random", "1", "--check"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  constexpr const char* kSizes = "fwd fp32 num_heads=2 seqlen=33:65 head_dim=40";
  const Outcome masked = on_cpu({"--mask", "k <= q + seqlen_kv - seqlen_q", "--o", o, kSizes});
  EXPECT_EQ(masked.exit_code, 0) << masked.err;
  EXPECT_EQ(on_cpu({"--o", expected, kSizes, "causal"}).exit_code, 0);
  EXPECT_EQ(read_npy(o).data, read_npy(expected).data) << "the window that the text is";
  const Outcome scored = on_cpu(
      {"--score", "s + slope[head] * (k - q)", "--arg", "slope=" + slope, kSizes});
  EXPECT_EQ(scored.exit_code, 0) << scored.err;
  const Outcome gradients = on_cpu(
      {"bwd fp32 num_heads=2 seqlen=17 head_dim=16 score=\"s + w[q] * k\" "
       "args=\"float* w[seqlen_q]\" dargs=w"});
  EXPECT_EQ(gradients.exit_code, 0) << gradients.err << gradients.out;
  const Outcome unknown = on_cpu({"--score", "s + sinpif(s)", kSizes});
  EXPECT_EQ(unknown.exit_code, 3);
  EXPECT_THAT(unknown.err, HasSubstr("it calls sinpif, at line 1, column 5"));
  const Outcome blocks = on_cpu({"--mask", "k <= q", kSizes, "blocks=16"});
  EXPECT_EQ(blocks.exit_code, 2);
  EXPECT_THAT(blocks.err, HasSubstr("leave out blocks="));
}

TEST_F(Program, ABlockMaskComesFromFilesOrIsRandom) {
  const std::vector<int> values = {0, 2, 1, 2, 3, 2, 0, 0, 0, 5};
  const std::string runs = folder_.file("runs.npy");
  write_npy(runs, "<i4", std::vector<std::int64_t>{5, 2}, std::as_bytes(std::span(values)));
  const auto masked = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"run", "--cpu", "--random", "1", "--check"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const Outcome of_file = masked({"--bsr", runs, "fwd bf16 num_heads=2 seqlen=80 head_dim=40 lse"});
  EXPECT_EQ(of_file.exit_code, 0) << of_file.err;
  EXPECT_THAT(of_file.out, HasSubstr("44% of 25 blocks of 16 x 16 are present: 11 full"));
  const Outcome random = masked(
      {"--mask-random", "0.3", "fwd bf16 num_heads=2 seqlen=300 head_dim=40 blocks=64:32 causal"});
  EXPECT_EQ(random.exit_code, 0) << random.err;
  EXPECT_THAT(random.out, HasSubstr("blocks of 64 x 32 are present"));
  EXPECT_EQ(masked({"fwd seqlen=100 blocks=32 mask_bits"}).exit_code, 0) << "of the density";
  EXPECT_THAT(masked({"--bsr", runs, "fwd seqlen=81"}).err, HasSubstr("5 rows of blocks are not"));
  EXPECT_EQ(masked({"--mask-random", "2", "fwd seqlen=80"}).exit_code, 2);
  EXPECT_EQ(masked({"--mask-random", "0.5", "--bsr", runs, "fwd seqlen=80"}).exit_code, 2);
}

TEST_F(Program, ARopeHasItsUsualTablesOrThoseOfFiles) {
  const auto rope = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {
        "run", "--cpu",   "--random",
        "1",   "--check", "fwd bf16 num_heads=2 seqlen=33:65 head_dim=40 causal"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  EXPECT_EQ(rope({"rope=half"}).exit_code, 0);
  EXPECT_EQ(rope({"rope=interleaved", "rope_dim=16", "--rope-offset", "9"}).exit_code, 0);
  for (const char* offset : {"4611686018427387904", "9223372036854775807", "1073741760"}) {
    const Outcome far = rope({"rope=half", "--rope-offset", offset});
    EXPECT_EQ(far.exit_code, 2) << far.err;
    EXPECT_THAT(far.err, AllOf(HasSubstr(std::string("rope_offset=") + offset),
                               HasSubstr("at most 1073741759")));
  }
  EXPECT_THAT(rope({"--rope-offset", "9"}).err, HasSubstr("need a problem with rope=half"));
  EXPECT_THAT(rope({"rope=half", "--rope-cos", "cos.npy"}).err, HasSubstr("belong together"));
  EXPECT_EQ(rope({"rope=half", "--rope-cos", "cos.npy"}).exit_code, 2);
  const std::string file = folder_.write("cos.npy", "no array");
  EXPECT_THAT(rope({"rope=half", "--rope-cos", file, "--rope-sin", file}).err,
              HasSubstr("cos.npy"));
}

TEST_F(Program, RunRefusesBadFilesBeforeItLooksForAGpu) {
  const std::string text = folder_.write("q.npy", "not an npy file");
  const Outcome bad = run({"run", "--q", text, "--k", text, "--v", text});
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_THAT(bad.err, HasSubstr(text + ": it is not an .npy file"));
  const Outcome missing = run({"run", "--q", text, "--k", text});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.err, HasSubstr("--v is missing"));
  EXPECT_EQ(run({"run", "--random", "1", "--q", text, "fwd"}).exit_code, 2);
}

// ---- list, doctor ----

TEST_F(Program, ListAsTextAndJson) {
  const Outcome text = run({"list"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, HasSubstr("fwd_mma_sm80"));
  EXPECT_THAT(text.out, HasSubstr("fwd_naive"));
  EXPECT_THAT(text.out, HasSubstr("sm_90a"));

  const Json json = Json::parse(run({"list", "--json"}).out);
  EXPECT_GE(json.at("families").size(), 2u);
  EXPECT_EQ(json.at("families").back().at("name"), "bwd_naive") << "best first, naive last";
  EXPECT_EQ(json.at("devices"), Json::array());
  EXPECT_GE(json.at("archs").size(), 6u);
  EXPECT_EQ(Json::parse(run({"list", "families", "--json"}).out).count("archs"), 0u);
}

TEST_F(Program, DoctorReportsChecksAndEnvironment) {
  const Outcome text = run({"doctor"});
  EXPECT_EQ(text.exit_code, 5) << "no GPU can be seen";
  for (const char* part : {"driver", "nvrtc", "database", "disk", "ATTNFORGE_CACHE", "-> "}) {
    EXPECT_THAT(text.out, HasSubstr(part));
  }
  const Json json = Json::parse(run({"doctor", "--json"}).out);
  EXPECT_FALSE(json.at("checks").empty());
  for (const Json& check : json.at("checks")) {
    EXPECT_THAT((std::vector<std::string>{"ok", "warning", "failed"}),
                testing::Contains(check.at("state")));
    EXPECT_TRUE(check.at("state") != "failed" || check.at("advice") != "") << check.dump();
  }
  bool found = false;
  for (const Json& variable : json.at("environment")) {
    if (variable.at("name") != "ATTNFORGE_CACHE") continue;
    found = true;
    EXPECT_EQ(variable.at("value"), database());
  }
  EXPECT_TRUE(found);
}

TEST_F(Program, ColoursOnATerminalUnlessNoColor) {
  if (!has_terminals()) GTEST_SKIP() << "no pseudo-terminals";
  EXPECT_THAT(run_on_terminal(80, {"list"}, environment({{"TERM", "xterm"}, {"NO_COLOR", ""}})).out,
              HasSubstr("\x1b[1m"));
  EXPECT_THAT(
      run_on_terminal(80, {"list"}, environment({{"TERM", "xterm"}, {"NO_COLOR", "1"}})).out,
      Not(HasSubstr("\x1b[")));
  EXPECT_THAT(run_on_terminal(80, {"list"}, environment({{"TERM", "dumb"}, {"NO_COLOR", ""}})).out,
              Not(HasSubstr("\x1b[")));
}

TEST_F(Program, AFullDiskIsAFailure) {
  const pid_t process = start_program({"list", "archs"}, environment(), "/dev/full",
                                      folder_.file("err"));
  EXPECT_EQ(exit_code_of(process), 1);
  EXPECT_THAT(read_file(folder_.file("err")), HasSubstr("could not be written"));
}

}  // namespace
}  // namespace attnforge::cli
