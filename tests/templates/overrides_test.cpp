// overrides_test.cpp - what is forced, applied to every family.
#include "generator/overrides.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "attnforge/error.h"
#include "generator/arch.h"
#include "generator/candidates.h"
#include "templates/embedded.h"
#include "templates/registry.h"

namespace attnforge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const Problem kProblem = parse_problem("fwd fp16 num_heads=2 seqlen=512 head_dim=64");

std::vector<TemplateFile> embedded() {
  std::vector<TemplateFile> headers;
  for (const Header& header : embedded_headers())
    headers.push_back({std::string(header.path), std::string(header.text)});
  return headers;
}

/// A family with a problem and a GPU that it serves, and its first config.
struct Served {
  const Family* family;
  Problem problem;
  DeviceFacts device;
  Config config;
};

std::vector<Served> all_served() {
  std::vector<Served> all;
  for (const Family* family : registry()) {
    for (const char* text : {"fwd fp16 num_heads=2 seqlen=512 head_dim=64",
                             "fwd fp32 num_heads=2 seqlen=512 head_dim=64",
                             "bwd fp16 num_heads=2 seqlen=512 head_dim=64",
                             "merge fp16 num_heads=2 seqlen=512 head_dim=64 parts=2",
                             "append fp16 num_heads=2 seqlen=512 head_dim=64"}) {
      const Problem problem = parse_problem(text);
      const DeviceFacts device = typical_device("90");
      if (!rejection(*family, problem, device.arch).empty()) continue;
      all.push_back({family, problem, device, candidates(*family, problem, device).at(0).config});
      break;
    }
  }
  EXPECT_EQ(all.size(), registry().size());
  return all;
}

TEST(Overrides, NothingForcedChangesNothing) {
  EXPECT_EQ(forced_text({}), "");
  EXPECT_EQ(stored_as(kProblem, {}), to_string(kProblem));
  for (const Served& each : all_served())
    EXPECT_EQ(digest(render(*each.family, each.config, each.problem, {})),
              digest(each.family->render(each.config, each.problem)));
}

TEST(Overrides, TextNamesWhatDecidesOnKernels) {
  Overrides o;
  o.print_launch = true;
  EXPECT_EQ(forced_text(o), "") << "printing forces nothing";
  o.family = "fwd_naive";
  o.block_n = 64;
  o.smem_bytes = 49152;
  o.own_templates = true;
  o.kernel_name = "mine";
  EXPECT_EQ(forced_text(o),
            "forced family=fwd_naive block_n=64 smem_bytes=49152 own_templates kernel_name=mine");
  EXPECT_EQ(stored_as(kProblem, o), to_string(kProblem) + " " + forced_text(o));
}

TEST(Overrides, BudgetOnlyTakesAway) {
  Overrides o;
  o.smem_bytes = 40000;
  const DeviceFacts& device = typical_device("90");
  EXPECT_EQ(limited(device, o).arch.smem_per_block_bytes, 40000);
  EXPECT_EQ(device_class(limited(device, o)), device_class(device));
  o.smem_bytes = 1 << 30;
  EXPECT_EQ(limited(device, o).arch.smem_per_block_bytes, device.arch.smem_per_block_bytes);
}

TEST(Overrides, BudgetCutsCandidatesOfEveryFamily) {
  Overrides o;
  o.smem_bytes = 32 * 1024;
  for (const Served& each : all_served()) {
    const DeviceFacts device = limited(each.device, o);
    for (const Candidate& candidate : candidates(*each.family, each.problem, device)) {
      for (const LaunchStep& step :
           each.family->launch(candidate.config, each.problem, device).steps)
        EXPECT_LE(step.smem_bytes, o.smem_bytes) << to_string(candidate.config);
    }
  }
}

TEST(Overrides, ForcedBlockNIsInEveryCandidateOrTheFamilySaysWhyNot) {
  Overrides o;
  o.block_n = 32;
  int with_block_n = 0;
  for (const Served& each : all_served()) {
    Cuts cuts;
    const auto kept = candidates(*each.family, each.problem, each.device, &cuts, o);
    for (const Candidate& candidate : kept) EXPECT_EQ(candidate.config.get("block_n"), 32);
    with_block_n += !kept.empty();
    const auto axes = each.family->axes(each.problem, each.device);
    const bool has_axis = std::any_of(axes.begin(), axes.end(),
                                      [](const Axis& axis) { return axis.name == "block_n"; });
    if (has_axis) continue;
    EXPECT_TRUE(kept.empty()) << each.family->name;
    ASSERT_EQ(cuts.configs.size(), 1u);
    EXPECT_EQ(cuts.configs[0].reason, "has no block_n, which is forced to 32");
  }
  EXPECT_GE(with_block_n, 1);
}

TEST(Overrides, ForcedBlockNMayBeOneThatNoSearchTries) {
  const Family& family = *find_family("fwd_mma_sm80");
  const DeviceFacts& device = typical_device("86");
  Overrides o;
  o.block_n = 80;
  for (const Axis& axis : family.axes(kProblem, device)) {
    if (axis.name != "block_n") continue;
    ASSERT_EQ(std::count(axis.values.begin(), axis.values.end(), o.block_n), 0);
  }
  const auto kept = candidates(family, kProblem, device, nullptr, o);
  ASSERT_FALSE(kept.empty());
  EXPECT_EQ(kept[0].config.get("block_n"), 80);
}

TEST(Overrides, ForcedBlockNThatAFamilyDoesNotTakeCutsItsConfigs) {
  Overrides o;
  for (const int block_n : {-64, 36, 1 << 30}) {
    o.block_n = block_n;
    Cuts cuts;
    const Family& family = *find_family("fwd_mma_sm80");
    EXPECT_TRUE(candidates(family, kProblem, typical_device("86"), &cuts, o).empty());
    ASSERT_FALSE(cuts.configs.empty());
    EXPECT_THAT(cuts.configs[0].reason, HasSubstr("must be a multiple of 16 from 16 to 256"));
  }
}

TEST(Overrides, ConfigOfTheCallersMustNotContradict) {
  const Config config = parse_config("fwd_mma_sm80 block_m=64 block_n=64");
  Overrides o;
  EXPECT_EQ(contradiction(config, o), "");
  o.block_n = 64;
  EXPECT_EQ(contradiction(config, o), "");
  o.block_n = 32;
  EXPECT_THAT(contradiction(config, o), HasSubstr("ATTNFORGE_BLOCK_N"));
  o = {};
  o.family = "fwd_naive";
  EXPECT_THAT(contradiction(config, o), HasSubstr("ATTNFORGE_FAMILY"));
}

TEST(Overrides, KernelsOfEveryFamilyCanBeRenamed) {
  Overrides o;
  o.kernel_name = "mine";
  o.headers = embedded();
  for (const Served& each : all_served()) {
    const Source own = each.family->render(each.config, each.problem);
    const Source source = render(*each.family, each.config, each.problem, o);
    EXPECT_NE(digest(source), digest(own));
    EXPECT_EQ(source.name, "mine");
    EXPECT_FALSE(source.renamed.empty());
    bool has_it = false;
    for (const LaunchStep& step :
         each.family->launch(each.config, each.problem, each.device).steps) {
      const std::string symbol = symbol_of(step.kernel, source);
      EXPECT_THAT(symbol, testing::StartsWith("mine"));
      // As a word: a second kernel's own name is the end of its new one.
      const std::string as_a_word = "[^A-Za-z0-9_]" + step.kernel + "\\(";
      EXPECT_THAT(source.text,
                  AllOf(HasSubstr(symbol + "("), Not(testing::ContainsRegex(as_a_word))))
          << each.family->name;
      has_it |= symbol == "mine";
    }
    EXPECT_TRUE(has_it) << each.family->name << " has no kernel of its source's name";
  }
}

TEST(Overrides, OwnTemplatesReplaceHeadersByPath) {
  Overrides o;
  o.own_templates = true;
  o.headers = embedded();
  for (const Served& each : all_served()) {
    // The same headers give the same source: a family's text is its entry and the headers.
    EXPECT_EQ(digest(render(*each.family, each.config, each.problem, o)),
              digest(each.family->render(each.config, each.problem)))
        << each.family->name;
  }
  for (TemplateFile& file : o.headers) file.text += "struct AnOwnLine;\n";
  for (const Served& each : all_served()) {
    const Source source = render(*each.family, each.config, each.problem, o);
    EXPECT_THAT(source.text, HasSubstr("struct AnOwnLine;"));
    EXPECT_NE(digest(source), digest(each.family->render(each.config, each.problem)));
  }
}

TEST(Overrides, OwnTemplateThatIncludesWhatIsNotThereIsTheCallersError) {
  Overrides o;
  o.own_templates = true;
  o.headers = embedded();
  for (TemplateFile& file : o.headers) file.text += "#include \"no/such.cuh\"\n";
  const Served each = all_served().front();
  try {
    render(*each.family, each.config, each.problem, o);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("ATTNFORGE_TEMPLATES"), HasSubstr("no/such.cuh")));
  }
}

}  // namespace
}  // namespace attnforge
