// splits_test.cpp - keys split among several blocks: numbers of splits that a search would not try,
// too, over lengths around tiles, with every part of a problem that decides which keys are seen.
// The workspace is full of NaN, and a second run must give the same bits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "reference/attention.h"
#include "reference/compare/outputs.h"
#include "templates/registry.h"
#include "tests/conformance/proof.h"
#include "tests/support/captured_graph.h"

namespace attnforge {
namespace {

using namespace test;

/// Families with the axis.
std::vector<const Family*> splitting_families() {
  std::vector<const Family*> families;
  for (const Family* family : registry()) {
    if (std::ranges::any_of(family->fields,
                            [](const FieldRule& rule) { return rule.name == "num_splits"; }))
      families.push_back(family);
  }
  return families;
}

Candidate with_splits(Candidate candidate, int splits) {
  for (auto& [name, value] : candidate.config.fields)
    if (name == "num_splits") value = splits;
  return candidate;
}

/// Some of these configs with shares of the keys in place of splits, where that is legal.
std::vector<Candidate> with_shares(const Family& family, std::vector<Candidate> all,
                                   const Problem& problem) {
  constexpr std::size_t kMost = 4;
  constexpr int kShares = 3;
  std::vector<Candidate> found;
  std::mt19937 random(kConformanceSeed);
  std::shuffle(all.begin(), all.end(), random);
  for (Candidate& each : all) {
    if (family.name != "fwd_wgmma_sm90a" || found.size() == kMost) break;
    for (auto& [name, value] : each.config.fields) {
      if (name == "grid") value = kShares;
      if (name == "num_splits") value = 1;
      if (name == "q_stages") value = each.config.get("q_in_regs") ? 1 : 1 + int(random() % 2);
    }
    if (illegal(family, each.config, problem, gpu_facts()).empty()) found.push_back(each);
  }
  return found;
}

/// The config used when nothing was measured and another, each with so many splits: one cubin
/// serves all of them.
std::vector<Compiled> compile_splits(const Family& family, const Problem& problem,
                                     const std::vector<int>& counts) {
  std::vector<Candidate> all = candidates(family, problem, gpu_facts());
  // Blocks with several query tiles do not split keys, nor does the family of wgmma split lists.
  std::erase_if(all, [](const Candidate& candidate) {
    return std::ranges::any_of(candidate.config.fields, [](const auto& field) {
      return field.first == "grid" && field.second != 0;
    });
  });
  if (family.name == "fwd_wgmma_sm90a" && problem.mask_block_q != 0) all.clear();
  std::vector<Compiled> compiled;
  if (all.empty()) return compiled;
  for (const Candidate& each : with_shares(family, all, problem))
    compiled.push_back(compile_candidate(each, problem));
  const std::size_t other = std::mt19937(kConformanceSeed)() % all.size();
  for (const std::size_t at : {std::size_t{0}, other}) {
    const Compiled first = compile_candidate(with_splits(all[at], counts.front()), problem);
    for (const int splits : counts) {
      compiled.push_back(first);
      compiled.back().candidate = with_splits(all[at], splits);
      compiled.back().launch = family.launch(compiled.back().candidate.config, problem,
                                             gpu_facts());
    }
  }
  return compiled;
}

struct SplitCase {
  const char* name;
  std::vector<std::string> problems;
  Inputs inputs = Inputs::kNormal;
  std::vector<int> counts = {2, 5, 40};
};
void PrintTo(const SplitCase& c, std::ostream* out) {
  for (const std::string& problem : c.problems) *out << "\n  " << problem;
}

class SplitKeys : public testing::TestWithParam<SplitCase> {};

TEST_P(SplitKeys, MatchTheOracle) {
  const std::string unusable = gpu_problem();
  if (!unusable.empty()) GTEST_SKIP() << unusable;
  ScopedContext context(gpu_context());
  for (const std::string& text : GetParam().problems) {
    const Problem problem = parse_problem(text);
    const Expectation expected(problem, {GetParam().name, {text}, GetParam().inputs});
    GpuProblem gpu(expected.host);
    int tried = 0;
    for (const Family* family : splitting_families()) {
      for (const Compiled& compiled : compile_splits(*family, problem, GetParam().counts)) {
        SCOPED_TRACE(fmt::format("{}\n  {}", text, to_string(compiled.candidate.config)));
        EXPECT_EQ(fault_of(compiled, expected, gpu), "");
        ++tried;
      }
    }
    EXPECT_GT(tried, 0) << "no family that splits keys serves " << text;
  }
}

/// One captured run, whose launch has nothing of the lengths, and other lengths in their arrays.
TEST(SplitKeysOfAGraph, FollowTheLengthsOfEachRun) {
  const std::string unusable = gpu_problem();
  if (!unusable.empty()) GTEST_SKIP() << unusable;
  ScopedContext context(gpu_context());
  for (const char* text :
       {"fwd bf16 batch=37 num_heads=8:2 seqlen=1:700 head_dim=128 lengths=used page_size=16 lse",
        "fwd fp16 batch=37 num_heads=8:1 seqlen=3:700 head_dim=64 lengths=used causal lse"}) {
    const Problem problem = parse_problem(text);
    std::vector<HostProblem> hosts;
    std::vector<Reference> references;
    for (const unsigned seed : {1u, 2u, 3u}) {
      hosts.push_back(make_host_problem(problem, seed));
      references.push_back(reference_attention(problem, hosts.back().tensors()));
    }
    GpuProblem gpu(hosts.front());
    for (const Family* family : splitting_families()) {
      for (const Compiled& compiled : compile_splits(*family, problem, {2, 5})) {
        SCOPED_TRACE(fmt::format("{}\n  {}", text, to_string(compiled.candidate.config)));
        ASSERT_EQ(compiled.failure, "");
        const Loaded loaded(compiled);
        const Buffer workspace = loaded.make_workspace();
        const Stream stream;
        const Graph graph(stream, [&](CUstream to) { loaded.run(gpu.tensors, workspace, to); });
        for (std::size_t i = 0; i < hosts.size(); ++i) {
          gpu.upload(hosts[i]);
          check(driver().cuCtxSynchronize(), "wait for the uploads");
          graph.launch(stream.get());
          stream.synchronize();
          HostProblem after = hosts[i];
          gpu.download(after);
          const Verdict verdict = compare(problem, after.tensors(), references[i]);
          EXPECT_EQ(after.trespass() + (verdict.passed() ? "" : to_string(verdict)), "")
              << "run " << i;
        }
      }
    }
  }
}

std::vector<std::string> problems_around_tiles() {
  std::vector<std::string> problems;
  for (const int keys : {1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 700})
    problems.push_back(fmt::format("fwd {} batch=2 num_heads=8:2 seqlen=1:{} head_dim=64 lse",
                                   keys % 2 ? "bf16" : "fp16", keys));
  return problems;
}

std::vector<SplitCase> cases() {
  const std::string few = " batch=3 num_heads=8:2 seqlen=3:700 head_dim=64 lse ";
  return {
      {"LengthsAroundTiles", problems_around_tiles()},
      {"ManySplitsOfFewKeys",
       {"fwd bf16 batch=2 num_heads=8:2 seqlen=1:100 head_dim=128 lse",
        "fwd fp16 batch=1 num_heads=2 seqlen=5:40 head_dim=64"},
       Inputs::kNormal,
       {17, 129, 256}},
      {"NoKeys",
       {"fwd bf16 batch=2 num_heads=4:2 seqlen=2:0 head_dim=64 lse",
        "fwd bf16 batch=0 num_heads=4:2 seqlen=2:100 head_dim=64 lse",
        "fwd bf16 batch=2 num_heads=4:2 seqlen=0:100 head_dim=64 lse",
        "fwd bf16 batch=3 num_heads=4:2 seqlen=2:0 head_dim=64 lengths=used lse",
        "fwd bf16 batch=0 num_heads=4:2 seqlen=2:100 head_dim=64 lengths=used lse",
        "fwd bf16 batch=2 num_heads=4:2 seqlen=0:100 head_dim=64 lengths=used lse"}},
      // One tile a head: splits follow the lengths, of more sequences than a warp has lanes and of
      // more than blocks read the lengths of. The first sequence is full, the second empty.
      {"UnequalSequences",
       {"fwd bf16 batch=1 num_heads=8:2 seqlen=1:3000 head_dim=128 lengths=used lse",
        "fwd fp16 batch=2 num_heads=8:2 seqlen=1:3000 head_dim=64 lengths=used lse",
        "fwd bf16 batch=31 num_heads=8:2 seqlen=1:900 head_dim=64 lengths=used page_size=16 lse",
        "fwd bf16 batch=70 num_heads=8:1 seqlen=4:300 head_dim=64 lengths=used causal lse",
        ("fwd fp16 batch=33 num_heads=4:2 seqlen=2:700 head_dim=64 lengths=used window_left=60 "
         "sinks "
         "lse"),
        "fwd bf16 batch=40 num_heads=2 seqlen=7:500 head_dim=64 lengths=used softcap=20",
        "fwd bf16 batch=9 num_heads=8:2 seqlen=1:700 head_dim=64 lengths=used batch_invariant lse",
        "fwd bf16 batch=300 num_heads=2:1 seqlen=1:200 head_dim=64 lengths=used lse"},
       Inputs::kNormal,
       {2, 3, 20}},
      // Of two warpgroups' rows and more: shares finish the query tiles that they do not cut.
      {"UnequalSequencesOfManyRows",
       {"fwd bf16 batch=60 num_heads=32:2 seqlen=7:900 head_dim=128 lengths=used causal lse",
        "fwd fp16 batch=33 num_heads=16:1 seqlen=8:700 head_dim=64 lengths=used page_size=16 sinks",
        "fwd bf16 batch=5 num_heads=48:1 seqlen=4:3000 head_dim=128 causal lse",
        "fwd bf16 batch=150 num_heads=32:2 seqlen=5:200 head_dim=64 lengths=used sinks"},
       Inputs::kNormal,
       {2, 3, 20}},
      // Teams of all heads, which leave some blocks over.
      {"HeadsWhoseRowsSharePiecesOfMemory",
       {"fwd bf16 batch=9 num_heads=20:5 seqlen=1:900 head_dim=80 lengths=used lse",
        "fwd fp16 batch=20 num_heads=10 seqlen=3:1200 head_dim=72 lengths=used page_size=64 causal",
        "fwd bf16 batch=40 num_heads=21:7 seqlen=2:700 head_dim=136:72 lengths=used causal lse",
        "fwd fp16 batch=12 num_heads=48:3 seqlen=6:1500 head_dim=88 causal sinks"},
       Inputs::kNormal,
       {2, 3, 20}},
      {"Masks",
       {"fwd bf16" + few + "causal", "fwd fp16" + few + "window_left=9",
        "fwd bf16" + few + "window_left=100 window_right=5", "fwd fp16" + few + "softcap=20 causal",
        "fwd bf16 batch=1 num_heads=4:2 seqlen=300:70 head_dim=128 causal lse",
        ("fwd fp16 batch=1 num_heads=2 seqlen=200:333 head_dim=64 window_left=17 window_right=33 "
         "lse"),
        "fwd bf16 batch=1 num_heads=4:1 seqlen=130:1000 head_dim=128 causal"}},
      {"Lengths",
       {"fwd bf16 batch=7 num_heads=8:2 seqlen=1:700 head_dim=128 lengths=used lse",
        "fwd fp16 batch=7 num_heads=8:2 seqlen=5:700 head_dim=64 lengths=used causal lse",
        "fwd bf16 batch=7 num_heads=4 seqlen=70:300 head_dim=64 lengths=used window_left=40 lse",
        "fwd bf16 batch=7 num_heads=16:2 seqlen=3:700 head_dim=128 lengths=packed causal lse",
        "fwd fp16 batch=6 num_heads=4:2 seqlen=200 tokens=700 head_dim=64 lengths=packed lse"}},
      {"Pages",
       {"fwd bf16 batch=7 num_heads=8:2 seqlen=1:700 head_dim=128 lengths=used page_size=16 lse",
        "fwd fp16 batch=7 num_heads=16:1 seqlen=1:700 head_dim=64 lengths=used page_size=64 lse",
        "fwd bf16 batch=7 num_heads=8:2 seqlen=5:700 head_dim=64 lengths=used page_size=24 causal",
        ("fwd fp16 batch=7 num_heads=4 seqlen=70:300 head_dim=64 lengths=used page_size=256 "
         "window_left=40 lse"),
        ("fwd bf16 batch=7 num_heads=8:2 seqlen=3:300 head_dim=128 lengths=used page_size=8 sinks "
         "window_left=5 layout=bhsd lse"),
        ("fwd bf16 batch=7 num_heads=8:2 seqlen=3:700 head_dim=64 lengths=packed page_size=16 "
         "causal "
         "lse"),
        "fwd bf16 batch=2 num_heads=4:2 seqlen=2:0 head_dim=64 lengths=used page_size=16 lse"}},
      {"GroupsOfAnySize",
       {"fwd bf16 batch=3 num_heads=28:4 seqlen=1:700 head_dim=128 lse",
        "fwd fp16 batch=7 num_heads=24:8 seqlen=4:700 head_dim=64 lengths=used causal lse",
        "fwd bf16 batch=5 num_heads=10:2 seqlen=1:700 head_dim=128 lengths=used page_size=16 lse",
        "fwd bf16 batch=2 num_heads=71:1 seqlen=1:900 head_dim=64 lengths=used sinks lse",
        "fwd fp16 batch=2 num_heads=71:1 seqlen=8:900 head_dim=64 causal lse",
        ("fwd bf16 batch=5 num_heads=48:1 seqlen=5:700 head_dim=128 lengths=used page_size=16 "
         "causal "
         "lse"),
        "fwd bf16 batch=4 num_heads=40:8 seqlen=7:700 head_dim=128 lengths=used causal lse",
        "fwd fp16 batch=2 num_heads=36:4 seqlen=9:500 head_dim=64 lengths=packed causal lse",
        "fwd bf16 batch=1 num_heads=14:2 seqlen=3:500 head_dim=128 window_left=99 softcap=20"}},
      {"HeadDims",
       {"fwd bf16 batch=1 num_heads=4:1 seqlen=3:500 head_dim=8 lse",
        "fwd fp16 batch=1 num_heads=6:2 seqlen=3:500 head_dim=72 causal lse",
        "fwd bf16 batch=1 num_heads=8:1 seqlen=2:500 head_dim=256 lse",
        "fwd fp16 batch=1 num_heads=4:1 seqlen=2:500 head_dim=512:504 lse",
        "fwd bf16 batch=1 num_heads=4:2 seqlen=2:500 head_dim=192:128",
        "fwd bf16 batch=2 num_heads=4:2 seqlen=3:500 head_dim=40:104 alignment=4 layout=bhsd lse"}},
      {"BlockMasks",
       {"fwd bf16 batch=2 num_heads=4:2 seqlen=200:700 head_dim=64 blocks=64:16 lse",
        "fwd fp16 batch=1 num_heads=8:1 seqlen=1:1001 head_dim=128 blocks=16:64 mask_bits lse",
        "fwd bf16 batch=4 num_heads=4:2 seqlen=150:600 head_dim=64 lengths=used blocks=32 lse"}},
      {"Rope",
       {"fwd bf16 batch=2 num_heads=8:2 seqlen=3:700 head_dim=128 causal rope=half lse",
        "fwd fp16 batch=2 num_heads=8:2 seqlen=1:300 head_dim=64 rope=interleaved"}},
      {"Sinks",
       {"fwd bf16 batch=2 num_heads=8:2 seqlen=3:700 head_dim=128 sinks causal lse",
        "fwd fp16 batch=3 num_heads=8:2 seqlen=5:300 head_dim=64 lengths=used sinks lse",
        "fwd bf16 batch=2 num_heads=4:2 seqlen=2:0 head_dim=64 sinks lse"}},
      {"GrowingScores",
       {"fwd bf16 batch=1 num_heads=8:2 seqlen=3:1100 head_dim=128 causal lse"},
       Inputs::kGrowingToFirst},
      {"StronglyNegativeScores",
       {"fwd bf16 batch=1 num_heads=8:2 seqlen=3:700 head_dim=64 lse"},
       Inputs::kStronglyNegative},
      {"LargeInputs",
       {"fwd fp16 batch=1 num_heads=8:2 seqlen=3:700 head_dim=64 lse"},
       Inputs::kLarge},
      {"KeysWithScoresOfMinusInfinity",
       {"fwd bf16 batch=1 num_heads=2 seqlen=65:129 head_dim=128 lse"},
       Inputs::kInfiniteKeys},
      {"OneQueryOfManyKeys",
       {"fwd bf16 batch=1 num_heads=32:8 seqlen=1:65536 head_dim=128 lse",
        "fwd bf16 batch=8 num_heads=16:1 seqlen=1:8192 head_dim=128"},
       Inputs::kNormal,
       {16, 33, 128}},
  };
}
INSTANTIATE_TEST_SUITE_P(HardCases, SplitKeys, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace attnforge
