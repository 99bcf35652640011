// program_inspect_test.cpp - attnforge inspect: every hop, as text, JSON, source and PTX.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/program/program_fixture.h"

namespace attnforge::cli {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::json;

const std::vector<std::string> kInspect = {"inspect",     "--arch",      "sm_86",
                                           "fwd",         "fp16",        "num_heads=8:2",
                                           "seqlen=1024", "head_dim=64", "causal"};

std::vector<std::string> inspect_with(std::vector<std::string> more) {
  more.insert(more.begin(), kInspect.begin(), kInspect.end());
  return more;
}

TEST_F(Program, InspectIsOneScreen) {
  for (const char* problem :
       {"fwd fp16 num_heads=8:2 seqlen=1024 head_dim=64 causal", "fwd fp32 seqlen=1:8192",
        "fwd bf16 batch=4 seqlen=512 head_dim=128 lengths=packed", "fwd bf16 seqlen=0"}) {
    const Outcome outcome = run({"inspect", "--arch", "sm_90a", problem});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const auto lines = std::count(outcome.out.begin(), outcome.out.end(), '\n');
    EXPECT_LE(lines, 40) << outcome.out;
    EXPECT_GE(lines, 20) << outcome.out;
    for (const char* hop : {"Problem ", "GPU ", "Candidates ", "Config ", "Source ", "Code ",
                            "Launch ", "Database ", "--section"})
      EXPECT_THAT(outcome.out, HasSubstr(hop));
    EXPECT_THAT(outcome.out, Not(HasSubstr("wgmma.mma_async"))) << "operands are asked for";
    EXPECT_THAT(outcome.out, Not(HasSubstr("\x1b["))) << "no colour in a file";
  }
}

TEST_F(Program, InspectCountsWhatATextLetsThrough) {
  const auto screen = [&](std::vector<std::string> words, const char* seqlen = "seqlen=4096") {
    words.insert(words.begin(), {"inspect", "--no-compile", "--arch", "sm_90a"});
    words.insert(words.end(), {"fwd", "bf16", "num_heads=16", seqlen, "head_dim=128"});
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  };
  const std::string text = screen({"--mask", "k <= q && q - k < 1024"});
  EXPECT_THAT(text, HasSubstr("30.07 GFLOP"));
  EXPECT_THAT(text, HasSubstr("a query sees 1023 keys before and 0 after its position\n"));
  // These are asked of each pair.
  const std::string hidden = screen({"--mask", "k <= q && (k & 1) == 0"}, "seqlen=2048");
  EXPECT_THAT(hidden, HasSubstr("8.598 GFLOP"));
  EXPECT_THAT(hidden, HasSubstr("but for those that the mask hides"));
  EXPECT_THAT(hidden, HasSubstr("as if the text hid nothing more"));
  const std::string called = screen({"--mask", "k <= q && tanhf((q - k) * 0.001f) < 0.76f"},
                                    "seqlen=2048");
  EXPECT_THAT(called, HasSubstr("12.66 GFLOP")) << "q - k is at most 996";
  const std::string unknown = screen({"--mask", "k <= q && [&] { return k % 2 == 0; }()"});
  EXPECT_THAT(unknown, HasSubstr("GFLOP not known (its mask text is not counted: it has \"[\")"));
  EXPECT_THAT(unknown, Not(HasSubstr("TFLOP/s")));
  EXPECT_THAT(screen({"--mask", "k < q - 5 && k > q - 100"}),
              HasSubstr("a query sees keys from 99 before its position to 6 before its position"));
}

TEST_F(Program, InspectOfNothingNeedsNoSequenceToDrawATextFor) {
  for (const char* sizes : {"batch=0 seqlen=200", "batch=0 seqlen=200 blocks=64", "seqlen=0",
                            "seqlen=0:64", "seqlen=64:0"}) {
    for (const std::vector<std::string>& form :
         {std::vector<std::string>{}, {"--json"}, {"--html", folder_.file("page.html")}}) {
      std::vector<std::string> words = {"inspect",     "--no-compile", "--arch", "sm_90a",
                                        "--mask",      "k <= q",       "fwd",    "bf16",
                                        "num_heads=2", "head_dim=64",  sizes};
      words.insert(words.begin() + 1, form.begin(), form.end());
      const Outcome outcome = run(words);
      EXPECT_EQ(outcome.exit_code, 0) << sizes << outcome.err;
    }
  }
}

TEST_F(Program, InspectShowsSectionsInFull) {
  const Outcome all = run(inspect_with({"--section", "all"}));
  ASSERT_EQ(all.exit_code, 0) << all.err;
  for (const char* heading : {"1. Problem", "2. GPU", "3. Candidates", "Cuts", "4. Config",
                              "5. Source", "6. Code", "7. Launch", "8. Database"}) {
    EXPECT_THAT(all.out, HasSubstr(heading));
  }
  const Outcome two = run(inspect_with({"--section", "launch,gpu", "--no-compile"}));
  EXPECT_THAT(two.out, HasSubstr("7. Launch"));
  EXPECT_THAT(two.out, HasSubstr("2. GPU"));
  EXPECT_THAT(two.out, Not(HasSubstr("Candidates")));
  const Outcome wrong = run(inspect_with({"--section", "lunch"}));
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("problem, gpu, candidates"));
}

TEST_F(Program, WhatAQuerySeesIsSaidInWords) {
  const struct {
    const char *mask, *said;
  } masks[] = {{"", "a query sees every key\n"},
               {"causal", "a query sees every key up to its own position\n"},
               {"causal window_left=127", "a query sees 127 keys before and 0 after its position"},
               {"window_left=8", "a query sees 8 keys before and all after its position"}};
  for (const auto& each : masks) {
    const Outcome outcome = run(
        {"inspect", "--arch", "sm_86", "--no-compile", std::string("fwd seqlen=512 ") + each.mask});
    EXPECT_THAT(outcome.out, HasSubstr(each.said));
  }
}

TEST_F(Program, ConfigsAreShownInWordsOrInFull) {
  const std::string config = Json::parse(run(inspect_with({"--json", "--no-compile"})).out)
                                 .at("config");
  const Outcome words = run(inspect_with({"--no-compile"}));
  EXPECT_THAT(words.out, Not(HasSubstr("num_warps=")));
  EXPECT_THAT(words.out, HasSubstr(describe_config(config)));
  const Outcome full = run(inspect_with({"--no-compile", "--full"}));
  EXPECT_THAT(full.out, HasSubstr(config));
}

TEST_F(Program, CutsHaveAnExampleEach) {
  const Outcome outcome = run(inspect_with({"--no-compile", "--section", "cuts"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, ContainsRegex("cut: .*\n            as  fwd_"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("#"))) << "real numbers";
}

TEST_F(Program, InspectSaysWhereAGridCannotFillTheGpu) {
  const Outcome few = run({"inspect", "--arch", "sm_90a", "--no-compile",
                           "fwd bf16 num_heads=4 seqlen=64 head_dim=128"});
  EXPECT_THAT(few.out, ContainsRegex("4 of 132 SMs, [0-9]+% of the memory bound"));
  const Outcome prefill = run({"inspect", "--arch", "sm_90a", "--no-compile",
                               "fwd bf16 num_heads=32:8 seqlen=8192 head_dim=128"});
  EXPECT_THAT(prefill.out, HasSubstr("132 of 132 SMs"));
  EXPECT_THAT(prefill.out, Not(HasSubstr("memory bound")));
}

TEST_F(Program, InspectDrawsABlockMask) {
  const std::vector<std::string> words = {
      "inspect",       "--arch",   "sm_90",
      "--no-compile",  "--family", "fwd_naive",
      "--mask-random", "0",        "fwd bf16 seqlen=200 head_dim=64 blocks=64"};
  const Outcome text = run(words);
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("25% of 16 blocks of 64 x 64 are present: 4 full, 0 partial, 12 "
                                  "empty\n  |#   |\n  | #  |\n  |  # |\n  |   #|\n"));
  std::vector<std::string> more = words;
  more.emplace_back("--json");
  const Json json = Json::parse(run(more).out).at("block_mask");
  EXPECT_EQ(json.at("full"), 4);
  EXPECT_EQ(json.at("merged"), 4);
  more.back() = "--html";
  more.push_back(folder_.file("page.html"));
  ASSERT_EQ(run(more).exit_code, 0);
  EXPECT_THAT(read_file(folder_.file("page.html")), HasSubstr("shape-rendering"));
}

TEST_F(Program, InspectDrawsTheBlocksOfAMaskText) {
  const auto inspected = [&](const char* mask, std::vector<std::string> more) {
    std::vector<std::string> words = {"inspect",
                                      "--arch",
                                      "sm_90",
                                      "--no-compile",
                                      "--mask",
                                      mask,
                                      "fwd bf16 seqlen=512 head_dim=64"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const Outcome text = inspected("k <= q || k < 100", {});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("\nMask: 62.5% of 16 blocks of 128 x 128 are present: 6 full, 4 "
                                  "partial, 6 empty\n"));
  const Outcome diagonal = inspected("k <= q && q - k < 128", {});
  EXPECT_THAT(diagonal.out, HasSubstr("\n  |+   |\n  |++  |\n  | ++ |\n  |  ++|\n"));
  const Json json = Json::parse(inspected("(k - q) % 2 == 0", {"--json"}).out).at("block_mask");
  EXPECT_EQ(json.at("partial"), 16);
  EXPECT_EQ(json.at("sampled"), false);
  ASSERT_EQ(inspected("k <= q", {"--html", folder_.file("page.html")}).exit_code, 0);
  EXPECT_THAT(read_file(folder_.file("page.html")), HasSubstr("shape-rendering"));
  EXPECT_THAT(inspected("k < first[batch]", {"--arg", "first=random"}).out,
              HasSubstr("\nMask: not drawn, for it reads first, whose elements are not given\n"));
}

TEST_F(Program, TextsOfOptionsAreInTheSource) {
  const Outcome outcome = run({"inspect", "--arch", "sm_90", "--entry", "--score", "s * scale",
                               "--mask", "k <= q && q - k < window", "--arg", "scale=0.5", "--arg",
                               "window=64", "fwd bf16 seqlen=200 head_dim=64"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("#line 1 \"score\"\ns * scale "));
  EXPECT_THAT(outcome.out, HasSubstr("#line 1 \"mask\"\n1      && q - k < window "));
  EXPECT_THAT(outcome.out, HasSubstr("const int window = "));
  const Outcome wrong = run({"inspect", "--arch", "sm_90", "--mask", "k < window", "--arg",
                             "window=", "fwd bf16 seqlen=200"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--arg window= must be NAME=VALUE"));
}

TEST_F(Program, InspectAsJson) {
  const Outcome outcome = run(inspect_with({"--json", "--candidates", "3", "--no-compile"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json.at("device").at("arch"), "sm_86");
  EXPECT_EQ(json.at("candidates").size(), 3u);
  EXPECT_GT(json.at("num_candidates").get<int>(), 100) << "the search space of a usual problem";
  EXPECT_EQ(json.at("cut").size(), 0u);
  EXPECT_GT(json.at("num_cut").get<int>(), 0);
  EXPECT_EQ(json.at("config"), json.at("candidates")[0].at("config"))
      << "the model's first choice, as nothing is measured";
  EXPECT_TRUE(json.at("compiled").is_null());
  EXPECT_FALSE(json.at("source").get<std::string>().empty());
  EXPECT_FALSE(json.at("launches").empty());
}

TEST_F(Program, InspectRefusesConfigsWithHostileValues) {
  // The program ended with 136 for most of these.
  for (const char* family :
       {"fwd_mma_sm80", "fwd_flash_vec", "fwd_flash_scalar", "fwd_materialized", "fwd_naive"}) {
    const Outcome shown = run(inspect_with({"--json", "--no-compile", "--family", family}));
    ASSERT_EQ(shown.exit_code, 0) << shown.err;
    const std::string config = Json::parse(shown.out).at("config");
    const std::size_t last = config.find_last_of('=') + 1;  // of a searched field
    for (const char* value : {"0", "-1", "3", "1073741824"}) {
      const std::string bad = config.substr(0, last) + value;
      if (bad.ends_with(" num_splits=3")) continue;  // is allowed, if no search tries it
      const Outcome outcome = run(inspect_with({"--no-compile", "--config", bad}));
      EXPECT_EQ(outcome.exit_code, 2) << bad << outcome.err;
      EXPECT_THAT(outcome.err, HasSubstr(" must be ")) << bad;
    }
  }
}

TEST_F(Program, InspectListsCutsWithReasons) {
  const Outcome outcome = run(inspect_with({"--json", "--cuts", "--no-compile"}));
  const Json json = Json::parse(outcome.out);
  ASSERT_EQ(json.at("cut").size(), json.at("num_cut").get<std::size_t>());
  for (const Json& cut : json.at("cut")) EXPECT_FALSE(cut.at("reason").get<std::string>().empty());
}

TEST_F(Program, InspectSourceIsOnlySourceAndComplete) {
  const Outcome outcome = run(inspect_with({"--source"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("extern \"C\" __global__"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("#include \""))) << "self-contained";
  const Outcome entry = run(inspect_with({"--entry"}));
  EXPECT_THAT(entry.out, HasSubstr("#include \""));
  EXPECT_LT(entry.out.size(), outcome.out.size());
}

TEST_F(Program, InspectTakesAConfigAndAFamily) {
  const Json first = Json::parse(
      run(inspect_with({"--json", "--candidates", "2", "--no-compile"})).out);
  const std::string second = first.at("candidates")[1].at("config");
  const Json forced = Json::parse(
      run(inspect_with({"--json", "--no-compile", "--config", second})).out);
  EXPECT_EQ(forced.at("config"), second);

  const Json naive = Json::parse(
      run(inspect_with({"--json", "--no-compile", "--family", "fwd_naive"})).out);
  EXPECT_THAT(naive.at("config").get<std::string>(), StartsWith("fwd_naive "));

  const Outcome unknown = run(inspect_with({"--family", "fwd_nothing"}));
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("fwd_nothing"));
  EXPECT_EQ(run(inspect_with({"--config", "fwd_naive nonsense"})).exit_code, 2);
}

TEST_F(Program, InspectAnUnknownArch) {
  const Outcome outcome = run({"inspect", "--arch", "sm_13", "fwd seqlen=64"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("13"));
  EXPECT_THAT(outcome.err, HasSubstr("sm_86")) << "the archs that there are";
}

TEST_F(Program, InspectWithoutNvrtcSaysSoAndShowsTheRest) {
  const Outcome outcome = run(kInspect, {{"ATTNFORGE_NVRTC", folder_.file("no_nvrtc.so")}});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("not compiled: "));
  EXPECT_THAT(outcome.out, HasSubstr("Launch "));
  EXPECT_EQ(
      run(inspect_with({"--ptx"}), {{"ATTNFORGE_NVRTC", folder_.file("no_nvrtc.so")}}).exit_code,
      5);
}

TEST_F(Program, InspectsFirstScreenSaysWhatIsWrongInAText) {
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const Outcome outcome = run_with_nvrtc(inspect_with({"--score", "s + slop * 2.0f"}));
  EXPECT_THAT(outcome.out, testing::StartsWith("Code        does not compile\n"));
  EXPECT_THAT(outcome.out, HasSubstr("score, line 1, column 5: identifier \"slop\""));
}

TEST_F(Program, InspectCompilesAndPrintsPtx) {
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const Json json = Json::parse(run_with_nvrtc(inspect_with({"--json"})).out);
  EXPECT_TRUE(json.at("compiled").at("ok").get<bool>()) << json.at("compiled").dump();
  EXPECT_GT(json.at("compiled").at("registers").get<int>(), 0);
  EXPECT_GT(json.at("compiled").at("blocks_per_sm").get<int>(), 0);
  const Outcome ptx = run_with_nvrtc(inspect_with({"--ptx"}));
  EXPECT_EQ(ptx.exit_code, 0) << ptx.err;
  EXPECT_THAT(ptx.out, HasSubstr(".target sm_86"));
}

}  // namespace
}  // namespace attnforge::cli
