// messages_test.cpp - messages and tables with texts of strangers in them.
#include "cli/terminal/terminal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "cli/output/json.h"
#include "cli/output/table.h"
#include "cli/plot/figure.h"
#include "cli/plot/landscape.h"
#include "cli/verbs/memory_check.h"
#include "tests/generator/expect_error.h"

namespace attnforge::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Messages, OnlyTheFirstLineBeginsAtTheLeft) {
  EXPECT_EQ(message_text("no kernel:\nfwd_naive: why\nattnforge: all is well\n\n"),
            "no kernel:\n  fwd_naive: why\n  attnforge: all is well");
  EXPECT_EQ(message_text("a \x1b[2Jb"), "a \\x1b[2Jb");
}

TEST(Messages, AHelpFitsTheColumnsButForItsExamples) {
  const std::string option = "  --lse NPY                   Where the log-sum-exp";
  EXPECT_EQ(
      wrapped_help("Runs one.\nUsage: run\n\nOptions:\n" + option +
                       " goes: float32\n  --top N                     Few\n\nProgress goes "
                       "to the\nstandard error, results to standard output. Then\nit ends.\n"
                       "Two.\n\nExamples:\n  attnforge run a b c d e f g h i j k l m n o p q\n",
                   51),
      "Runs one.\nUsage: run\n\nOptions:\n" + option + "\n" + std::string(30, ' ') +
          "goes: float32\n  --top N                     Few\n\nProgress goes to the standard "
          "error, results to\nstandard output. Then it ends.\nTwo.\n\nExamples:\n"
          "  attnforge run a b c d e f g h i j k l m n o p q\n");
  EXPECT_EQ(wrapped_help("a_word_that_is_longer and more\n", 10),
            "a_word_that_is_longer\nand more\n");
}

TEST(Messages, OutputFitsTheColumnsBelowItsCells) {
  EXPECT_EQ(wrapped("short\n\nab  one two three four five six\n", 16),
            "short\n\nab  one two\n    three four\n    five six\n");
  // A last cell that begins too far at the right; colours take no columns.
  EXPECT_EQ(wrapped("  1 2 3 4 5 6 7 8  \x1b[1mone\x1b[0m two", 20),
            "  1 2 3 4 5 6 7 8\n      \x1b[1mone\x1b[0m two");
  EXPECT_EQ(wrapped("Next: attnforge tune fwd bf16 causal", 30),
            "Next: attnforge tune fwd \\\n    bf16 causal");
  EXPECT_EQ(wrapped("a_word_that_is_longer_than_it", 10), "a_word_that_is_longer_than_it");
}

TEST(Messages, ACellOfATableIsOneLine) {
  const Table table{{{"config"}}, {{"fwd\n\x1b[31mwinner"}}};
  EXPECT_EQ(aligned(table), "config\nfwd\\n\\x1b[31mwinner\n");
}

TEST(Messages, JsonIsAscii) {
  const std::string text = json_text(Json{{"detail", "\x1b[2J \x7f \xc2\x9b \xff \u00e9"}});
  for (const char c : text) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << text;
  EXPECT_EQ(Json::parse(text).at("detail"), "\x1b[2J \x7f \xc2\x9b \ufffd \u00e9");
}

TEST(Messages, GnuplotRunsNoCommandOfATitle) {
  Figure figure;
  figure.file = "latency";
  figure.title = "a `touch /tmp/x` \"quoted\" \\ title\n\x1b[0m";
  figure.curves.push_back({.name = "`id`", .points = {}});
  const std::string script = picture_of(figure).script;
  EXPECT_THAT(script, Not(HasSubstr("`")));
  EXPECT_THAT(script, Not(HasSubstr("\x1b")));
  EXPECT_THAT(script, HasSubstr("a \\140touch /tmp/x\\140 \\\"quoted\\\" \\\\ title"));
}

TEST(Messages, AFamilyOfADatabaseNamesNoFileElsewhere) {
  std::vector<Trial> trials(4);
  for (int i = 0; i < 4; ++i) {
    trials[static_cast<std::size_t>(i)].config = "../../etc/`x` block_m=" +
                                                 std::to_string(64 + i % 2) +
                                                 " block_n=" + std::to_string(32 + i / 2);
    trials[static_cast<std::size_t>(i)].measurement.time_us = 1 + i;
  }
  const std::vector<HeatMap> maps = landscapes("fwd", trials, LandscapeOptions{});
  ASSERT_FALSE(maps.empty());
  for (const HeatMap& map : maps)
    EXPECT_EQ(map.file.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-"),
              std::string::npos)
        << map.file;
}

TEST(MemoryCheck, SaysWhichMemoryHowMuchIsNeededAndHowMuchThereIs) {
  const Problem giant = parse_problem("fwd bf16 batch=64 num_heads=64 seqlen=65536 head_dim=128");
  EXPECT_THAT(
      error_message(ErrorCode::kUnsupported, [&] { require_host_memory(giant, 32.0 * (1 << 30)); }),
      HasSubstr("its tensors take 256.0 GiB of host memory, and there are 32.0 GiB"));
  DeviceFacts device = typical_device("sm_90");
  device.memory_bytes = std::int64_t{80} << 30;
  EXPECT_THAT(error_message(ErrorCode::kUnsupported, [&] { require_gpu_memory(giant, device); }),
              HasSubstr("256.0 GiB of GPU memory, and the GPU has 80.0 GiB"));
  require_host_memory(giant, 0);  // unknown
  require_host_memory(parse_problem("fwd bf16 seqlen=64"));
  EXPECT_GT(available_host_bytes(), 1 << 20);
}

TEST(MemoryCheck, CountsWhatTheReferenceTakesBesideTheTensors) {
  const auto refused = [](const char* text, double gib) {
    const Problem problem = parse_problem(text);
    require_host_memory(problem, gib * (1 << 30));
    return error_message(ErrorCode::kUnsupported,
                         [&] { require_reference_memory(problem, gib * (1 << 30)); });
  };
  // 2 GiB of bf16 each, and o in fp64: 8 GiB.
  EXPECT_THAT(refused("fwd bf16 batch=128 num_heads=16 seqlen=4096 head_dim=128", 9),
              AllOf(HasSubstr("its tensors, and the reference in fp64, take 1"),
                    HasSubstr("GiB of host memory, and there are 9.0 GiB")));
  // Three gradients.
  EXPECT_THAT(refused("bwd bf16 batch=128 num_heads=16 seqlen=4096 head_dim=128", 30),
              HasSubstr("there are 30.0 GiB"));
  // One row of scores of each thread, in blocks of 16.
  EXPECT_THAT(refused("fwd bf16 num_heads=1 seqlen=1:134217728 head_dim=8", 8),
              HasSubstr("there are 8.0 GiB"));
  require_reference_memory(
      parse_problem("fwd bf16 num_heads=1 seqlen=1:134217728 head_dim=8 window_left=4095 causal"),
      8.0 * (1 << 30));
  require_reference_memory(parse_problem("fwd bf16 seqlen=64"));
}

}  // namespace
}  // namespace attnforge::cli
