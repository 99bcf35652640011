// inspect_test.cpp - what can be known without a GPU: support, inspection, ranking, doctor.
#include "attnforge/inspect.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "attnforge/cache.h"
#include "attnforge/error.h"
#include "attnforge/json.h"
#include "cache/cache.h"
#include "generator/arch.h"
#include "generator/candidates.h"
#include "generator/problem/bucket.h"
#include "plan/plan_state.h"
#include "plan/tools/compile_info.h"
#include "runtime/compile/compiler.h"
#include "templates/registry.h"

namespace attnforge {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;
namespace fs = std::filesystem;

const char* const kArchs[] = {"86", "89", "90a"};
const Problem kProblem = parse_problem(
    "fwd bf16 batch=2 num_heads=8:2 seqlen=700 head_dim=64 causal");

class Folder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              ("attnforge_inspect_test_" + std::to_string(getpid()) + "_" +
               ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }

 private:
  fs::path folder_;
};
using InspectTest = Folder;
using RankTest = Folder;

TEST_F(InspectTest, SaysWhichPartsPutTheKernelTogether) {
  const Problem problem = parse_problem(
      "fwd bf16 batch=64 num_heads=8:2 seqlen=700 head_dim=64 lengths=packed softcap=20 "
      "score=\"s + k\"");
  InspectOptions options{.cache_path = path("none.db"), .compile = false};
  const Inspection inspection = inspect(problem, typical_device("90a"), options);
  const AssemblyInfo& assembly = inspection.assembly;
  std::vector<std::string> pieces, steps, members;
  for (const PieceInfo& piece : assembly.pieces)
    pieces.push_back(fmt::format("{}: {}", piece.slot, fmt::join(piece.changes, ", ")));
  for (const StepInfo& step : assembly.steps) steps.push_back(step.part + " " + step.kernel);
  std::size_t bytes = 0;
  for (const ArgumentInfo& member : assembly.argument) {
    members.push_back(member.part);
    bytes += member.bytes;
  }
  EXPECT_THAT(pieces, UnorderedElementsAre("lengths: lengths fills", "order: queue fills",
                                           "score: softcap fills, user_code wraps"));
  EXPECT_THAT(steps, ElementsAre("queue tile_queue"));
  EXPECT_THAT(members, ElementsAre("FwdWgmmaSm90aParams", "lengths", "user_code"));
  EXPECT_THAT(inspection.source_entry, HasSubstr(fmt::format(") == {});", (bytes + 63) / 64 * 64)));
}
using DoctorTest = Folder;

// ---- Support and strides ----

TEST(Supported, NamesTheFirstFamilyThatServes) {
  for (const char* arch : kArchs) {
    const Support support = supported(kProblem, typical_device(arch));
    EXPECT_TRUE(support.supported);
    EXPECT_NE(find_family(support.family), nullptr);
    EXPECT_EQ(support.reason, "");
  }
}

TEST(Supported, GivesAReasonForEachFamilyWhenNoneServes) {
  DeviceFacts old = typical_device("86");
  old.arch = Arch{};
  old.arch.sm = 50;
  const Support support = supported(kProblem, old);
  if (support.supported) GTEST_SKIP() << support.family << " runs everywhere";
  for (const Family* family : registry()) {
    if (!family->only_named && family->op == kProblem.op) {
      EXPECT_THAT(support.reason, HasSubstr(std::string(family->name) + ": "));
    }
  }
}

TEST(Supported, IsNeverByAFamilyThatMustBeNamed) {
  for (const char* words : {"bf16", "bf16 alignment=2", "bf16 q=fp32", "fp32 alignment=4"}) {
    const Support support = supported(
        parse_problem(std::string("fwd head_dim=64 seqlen=64 ") + words), typical_device("90a"));
    EXPECT_TRUE(support.supported);
    EXPECT_NE(support.family, "fwd_materialized") << words;
  }
}

TEST(Supported, RefusesInvalidProblems) {
  Problem bad = kProblem;
  bad.head_dim = 12;
  EXPECT_THROW(supported(bad, typical_device("90a")), Error);
}

TEST(WorkspaceBound, OfEveryFamilyNeverShrinksWithTheSizes) {
  for (const char* arch : kArchs) {
    const DeviceFacts& device = typical_device(arch);
    for (const Family* family : registry()) {
      if (!rejection(*family, bucket(kProblem), device.arch).empty()) continue;
      const std::vector<Candidate> all = candidates(*family, bucket(kProblem), device);
      ASSERT_THAT(all, Not(IsEmpty()));
      for (const Candidate& candidate : {all.front(), all[all.size() / 2], all.back()}) {
        const std::string config = to_string(candidate.config);
        std::size_t before = 0;
        for (const std::int64_t size : {1, 2, 63, 64, 700, 4096, 100000}) {
          Problem largest = kProblem;
          largest.batch = std::min<std::int64_t>(size, 512);
          largest.seqlen_q = largest.seqlen_kv = size;
          const std::size_t now = workspace_bound(largest, config, device);
          EXPECT_GE(now, before) << config << " at " << size;
          before = now;
        }
      }
    }
  }
}

TEST(WorkspaceBound, OfSplitKeysSufficesForEverySmallerBatch) {
  const DeviceFacts& device = typical_device("90a");
  for (const char* words : {"seqlen=1:32768", "seqlen=1:32768 lengths=used", "seqlen=4:32768",
                            "seqlen=1:32768 lengths=packed tokens_q=9"}) {
    const Problem problem = parse_problem(
        fmt::format("fwd bf16 batch=12 num_heads=2 head_dim=128 {}", words));
    for (const Candidate& candidate : candidates(registry(), bucket(problem), device)) {
      if (candidate.config.get("num_splits") < 2) continue;
      const std::string config = to_string(candidate.config);
      const Family& family = *find_family(candidate.config.family);
      std::size_t most = 0;
      for (std::int64_t batch = 9; batch <= 33; ++batch) {
        Problem exact = problem;
        exact.batch = batch;
        most = std::max(most, family.launch(candidate.config, exact, device).workspace_bytes);
        EXPECT_GE(workspace_bound(exact, config, device), most)
            << to_string(exact) << ' ' << config;
      }
    }
  }
}

TEST(WorkspaceBound, OfSplitKeysSufficesForFewerQueriesToo) {
  const DeviceFacts& device = typical_device("90a");
  const Problem problem = parse_problem(
      "fwd bf16 batch=11 num_heads=71:1 seqlen=8:7769 head_dim=64 causal");
  for (const Candidate& candidate : candidates(registry(), bucket(problem), device)) {
    if (candidate.config.get("num_splits") < 2) continue;
    const std::string config = to_string(candidate.config);
    std::size_t most = 0;
    for (std::int64_t queries = 1; queries <= 40; ++queries) {
      Problem exact = problem;
      exact.seqlen_q = queries;
      most = std::max(most,
                      candidate.family->launch(candidate.config, exact, device).workspace_bytes);
      EXPECT_GE(workspace_bound(exact, config, device), most) << queries << ' ' << config;
    }
  }
}

TEST(WorkspaceBound, OfSizesThatNoKernelServesIsRefusedAndNoAssertion) {
  const DeviceFacts& device = typical_device("sm_90");
  Problem many = kProblem;
  const std::string config = to_string(untuned(registry(), bucket(many), device).config);
  many.batch = 1 << 18;
  many.seqlen_q = many.seqlen_kv = 1 << 16;
  try {
    workspace_bound(many, config, device);
    FAIL() << "2^31 query tiles";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
  }
}

TEST(WorkspaceBound, OfPackedQkvMayHaveTwoLengths) {
  const DeviceFacts& device = typical_device("sm_90");
  const Problem packed = parse_problem(
      "bwd bf16 batch=1 num_heads=8 seqlen=1024 head_dim=64 layout=packed_qkv");
  const std::string config = to_string(untuned(registry(), bucket(packed), device).config);
  Problem apart = packed;
  apart.layout = Layout::kBshd;
  apart.seqlen_q = 2048;
  Problem longer = packed;
  longer.seqlen_q = 2048;
  EXPECT_GT(workspace_bound(longer, config, device), workspace_bound(packed, config, device));
  EXPECT_EQ(workspace_bound(longer, config, device), workspace_bound(apart, config, device));
}

// ---- Inspection ----

TEST_F(InspectTest, ShowsEveryHopForGpusThatAreNotHere) {
  const bool compiles = nvrtc_facts().available;
  for (const char* arch : kArchs) {
    const DeviceFacts& device = typical_device(arch);
    const Inspection found = inspect(
        kProblem, device,
        {.config = "", .family = "", .cache_path = path("none.db"), .compile = compiles});
    EXPECT_EQ(found.problem, kProblem);
    EXPECT_EQ(found.config, to_string(untuned(registry(), bucket(kProblem), device).config));
    EXPECT_THAT(found.why, HasSubstr("nothing was measured"));
    ASSERT_THAT(found.candidates, Not(IsEmpty()));
    EXPECT_EQ(found.candidates.front().cut, "");
    EXPECT_THAT(found.source, HasSubstr("__global__"));
    EXPECT_THAT(found.source_entry, HasSubstr(found.config));
    EXPECT_THAT(found.digest, SizeIs(32));
    ASSERT_THAT(found.launches, Not(IsEmpty()));
    EXPECT_GT(found.launches[0].grid[0] * found.launches[0].block[0], 0);
    EXPECT_THAT(found.measured, IsEmpty());
    EXPECT_EQ(found.sass, "");
    if (!compiles) continue;
    EXPECT_TRUE(found.compiled.ok) << found.compiled.log;
    EXPECT_GT(found.compiled.registers, 0);
    EXPECT_GT(found.compiled.blocks_per_sm, 0);
    EXPECT_GT(found.compiled.occupancy, 0);
    EXPECT_LE(found.compiled.occupancy, 1);
    EXPECT_GT(found.compiled.cubin_bytes, 0u);
  }
  EXPECT_FALSE(fs::exists(path("none.db"))) << "looking must not create a database";
}

/// One query row has hundreds of thousands of configs, of which a screen shows ten.
TEST_F(InspectTest, MakesNoTextsOfCutCandidatesThatNobodyAskedFor) {
  const Inspection found = inspect(
      parse_problem("fwd bf16 num_heads=32:8 seqlen=1:8192 head_dim=128"), typical_device("90a"),
      {.cache_path = ":memory:", .compile = false, .cut_candidates = false});
  EXPECT_GT(found.num_cut, 100000);
  EXPECT_EQ(found.candidates.size(), static_cast<std::size_t>(found.num_candidates));
  int counted = 0;
  for (const CutCount& each : found.cuts) {
    counted += each.count;
    EXPECT_NE(each.example.cut, "");
    EXPECT_TRUE(each.example.config.starts_with("fwd_")) << each.example.config;
  }
  EXPECT_EQ(counted, found.num_cut);
  EXPECT_TRUE(std::ranges::is_sorted(found.cuts, std::greater(), &CutCount::count));
  EXPECT_LT(found.cuts.size(), 100u);
}

TEST_F(InspectTest, ListsCutCandidatesWithTheirReasons) {
  const Inspection all = inspect(
      kProblem, typical_device("86"),
      {.config = "", .family = "", .cache_path = ":memory:", .compile = false});
  std::size_t cut = 0;
  bool in_order = true;
  for (const CandidateInfo& each : all.candidates) {
    if (!each.cut.empty()) ++cut;
    if (each.cut.empty() && cut > 0) in_order = false;
  }
  EXPECT_TRUE(in_order) << "kept ones come first";
  const Inspection few = inspect(kProblem, typical_device("86"),
                                 {.config = "",
                                  .family = "",
                                  .cache_path = ":memory:",
                                  .compile = false,
                                  .ptx = false,
                                  .sass = false,
                                  .max_candidates = 2});
  EXPECT_THAT(few.candidates, SizeIs(2));
  EXPECT_EQ(few.num_candidates, all.num_candidates) << "listed or not";
  EXPECT_EQ(few.num_cut, all.num_cut);
  EXPECT_EQ(static_cast<std::size_t>(all.num_candidates + all.num_cut), all.candidates.size());
}

TEST_F(InspectTest, SaysHowManySmsAGridKeepsBusyAndHowFarMemoryIs) {
  const DeviceFacts& device = typical_device("90a");
  const auto reach = [&](const char* problem, const std::string& cache) {
    return inspect(parse_problem(problem), device,
                   {.cache_path = cache, .compile = false, .cut_candidates = false})
        .reach;
  };
  const Reach few = reach("fwd bf16 num_heads=4 seqlen=256 head_dim=128", ":memory:");
  EXPECT_LE(few.busy_sms, 32);
  EXPECT_FALSE(few.measured);
  EXPECT_GT(few.time_us, 3 * few.memory_us);
  const Reach decode = reach("fwd bf16 num_heads=32:8 seqlen=1:8192 head_dim=128", ":memory:");
  EXPECT_GT(decode.busy_sms, 100) << "of the kernel, not of the step that merges its splits";
  // 2 * 8 * 8192 * 128 elements of K and V at 2 * 3201 MHz * 6144 bits.
  EXPECT_NEAR(decode.memory_us, 33.55e6 / (2 * 3201.0 * 6144 / 8), 0.1);
  EXPECT_EQ(reach("fwd bf16 num_heads=32:8 seqlen=8192 head_dim=128", ":memory:").busy_sms, 132);
  EXPECT_EQ(reach("fwd bf16 seqlen=0", ":memory:").busy_sms, 0);
}

TEST_F(InspectTest, LaunchesHaveRolesAndTheMainOneIsTheConfigsKernel) {
  const struct {
    const char* words;
    std::vector<std::string> roles;
    const char* arch = "90a";
    const char* family = "";
  } cases[] = {
      {"fwd bf16 num_heads=32 seqlen=4096 head_dim=128", {"main"}},
      {"fwd bf16 num_heads=32:8 seqlen=1:8192 head_dim=128", {"main", "merge"}},
      {"fwd bf16 num_heads=32 seqlen=4096 head_dim=128 rope=half", {"prepare", "main"}},
      {"bwd bf16 seqlen=4096 head_dim=128", {"prepare", "main", "finish"}},
      {"bwd bf16 seqlen=4096 head_dim=128 sinks", {"prepare", "main", "finish", "finish"}},
      {"bwd bf16 seqlen=4096 head_dim=128 deterministic",
       {"prepare", "main", "second"},
       "86",
       "bwd_mma_sm80"},
  };
  for (const auto& [words, roles, arch, family] : cases) {
    const Inspection found = inspect(parse_problem(words), typical_device(arch),
                                     {.config = "",
                                      .family = family,
                                      .cache_path = path("none.db"),
                                      .compile = false,
                                      .max_candidates = 1,
                                      .cut_candidates = false});
    std::vector<std::string> seen;
    for (const LaunchInfo& launch : found.launches) {
      seen.push_back(launch.role);
      EXPECT_EQ(launch.own, launch.role == "main") << words;
      if (launch.role == "main")
        EXPECT_THAT(launch.kernel, StartsWith(found.config.substr(0, found.config.find(' '))));
    }
    EXPECT_EQ(seen, roles) << words << "\n" << found.config;
  }
}

TEST_F(InspectTest, ThroughputIsOfWhatTheTimeIsOf) {
  const Problem text = parse_problem(
      "fwd bf16 num_heads=16 seqlen=4096 head_dim=128 mask=\"k <= q && q - k < 1024\"");
  const InspectOptions options{
      .config = "", .family = "", .cache_path = path("none.db"), .compile = false};
  const Inspection found = inspect(text, typical_device("90a"), options);
  EXPECT_EQ(found.work.flops, work_of(text).flops);
  EXPECT_LT(found.reach.work.tflops_per_s(found.reach.time_us), 1000) << "the GPU's 1071";
  EXPECT_EQ(found.sees.left, 1023);
  EXPECT_EQ(found.sees.right, 0);
  EXPECT_FALSE(found.sees.more_hidden);
  const Inspection unknown = inspect(
      parse_problem("fwd bf16 seqlen=64 mask=\"[&] { return k % 2 == 0; }()\""),
      typical_device("90a"), options);
  const auto json = nlohmann::json::parse(to_json(unknown));
  EXPECT_TRUE(json.at("flops").is_null());
  EXPECT_TRUE(json.at("reach").at("flops").is_null());
  EXPECT_THAT(json.at("flops_unknown"), HasSubstr("it has \"[\""));
  EXPECT_TRUE(json.at("sees").at("more_hidden"));
}

TEST_F(InspectTest, LooksAtProductsUnlessAFamilyIsNamedOrNoProductServes) {
  const auto families = [](const Inspection& inspection) {
    std::set<std::string> names;
    for (const CandidateInfo& each : inspection.candidates)
      if (each.cut.empty()) names.insert(each.config.substr(0, each.config.find(' ')));
    return names;
  };
  const auto look = [](const std::string& words, const std::string& family) {
    return inspect(
        parse_problem("fwd bf16 num_heads=4 seqlen=1024 head_dim=64 " + words),
        typical_device("90a"),
        {.family = family, .cache_path = ":memory:", .compile = false, .cut_candidates = false});
  };
  const Inspection usual = look("", "");
  EXPECT_THAT(families(usual), UnorderedElementsAre("fwd_wgmma_sm90a", "fwd_mma_sm80"));
  EXPECT_THAT(usual.rejected_families,
              Contains(StartsWith("fwd_wmma: is a teaching kernel (tier ladder)")));
  EXPECT_THAT(families(look("", "fwd_wmma")), UnorderedElementsAre("fwd_wmma"));
  EXPECT_THAT(families(look("", "fwd_materialized")), UnorderedElementsAre("fwd_materialized"));
  EXPECT_THAT(families(look("alignment=2", "")),
              UnorderedElementsAre("fwd_flash_vec", "fwd_flash_scalar"));
  EXPECT_THAT(families(look("q=fp32", "")), UnorderedElementsAre("fwd_naive"));
}

TEST_F(InspectTest, TilesAreThoseThatTheKernelIsNamedAfter) {
  const Problem gqa = parse_problem("fwd bf16 num_heads=32:8 seqlen=1:4096 head_dim=128");
  const Problem fp32 = parse_problem("fwd fp32 num_heads=4 seqlen=1024 head_dim=64");
  for (const char* family : {"fwd_wgmma_sm90a", "fwd_mma_sm80", "fwd_regtile_f32"}) {
    const Problem& problem = std::string(family) == "fwd_regtile_f32" ? fp32 : gqa;
    const Inspection found = inspect(
        problem, typical_device("90a"),
        {.family = family, .cache_path = ":memory:", .compile = false, .cut_candidates = false});
    EXPECT_EQ(found.measured_as, bucket(problem));
    const auto own = std::ranges::find(found.launches, true, &LaunchInfo::own);
    ASSERT_NE(own, found.launches.end());
    EXPECT_THAT(own->kernel,
                testing::EndsWith(fmt::format("_{}x{}", found.tiles.block_m, found.tiles.block_n)));
    const bool packs = found.config.find("pack_gqa=4") != std::string::npos;
    EXPECT_EQ(found.tiles.pack_gqa, packs ? 4 : 1) << found.config;
  }
}

TEST_F(InspectTest, DigestTodayIsThatOfThePlansSource) {
  const Problem tuned = bucket(kProblem);
  const Inspection found = inspect(
      tuned, typical_device("86"),
      {.config = "", .family = "", .cache_path = ":memory:", .compile = false});
  EXPECT_EQ(digest_today(to_string(tuned), found.config), found.digest);
  EXPECT_EQ(digest_today("no problem", found.config), "");
  EXPECT_EQ(digest_today(to_string(tuned), "fwd_of_tomorrow a=1"), "");
  EXPECT_EQ(digest_today(to_string(tuned), ""), "");
}

TEST_F(InspectTest, ShowsAForcedConfigAndRefusesAnIllegalOne) {
  const DeviceFacts& device = typical_device("89");
  const std::string config = to_string(
      candidates(*find_family("fwd_naive"), bucket(kProblem), device).back().config);
  const Inspection found = inspect(
      kProblem, device,
      {.config = config, .family = "", .cache_path = ":memory:", .compile = false});
  EXPECT_EQ(found.config, config);
  EXPECT_THROW(inspect(kProblem, device,
                       {.config = "fwd_naive nonsense=1",
                        .family = "",
                        .cache_path = ":memory:",
                        .compile = false}),
               Error);
}

TEST_F(InspectTest, ShowsMeasuredTimesOfTheDatabase) {
  const DeviceFacts& device = typical_device("90a");
  const Problem tuned = bucket(kProblem);
  const Candidate candidate = candidates(registry(), tuned, device).at(1);
  Try each;
  each.problem = to_string(tuned);
  each.device_class = device_class(device);
  each.config = to_string(candidate.config);
  each.family = candidate.family->name;
  each.digest = digest(candidate.family->render(candidate.config, tuned));
  each.measurement.time_us = 33;
  {
    Cache cache(path("cache.db"));
    cache.put({each});
    cache.finish(each.problem, each.device_class, Rigor::kQuick, each.config);
  }
  const Inspection found = inspect(
      kProblem, device,
      {.config = "", .family = "", .cache_path = path("cache.db"), .compile = false});
  EXPECT_EQ(found.config, each.config);
  EXPECT_EQ(found.provenance, Provenance::kMeasured);
  EXPECT_THAT(found.why, HasSubstr("quick search"));
  ASSERT_THAT(found.measured, SizeIs(1));
  EXPECT_EQ(found.measured[0].measurement.time_us, 33);
  EXPECT_TRUE(found.reach.measured);
  EXPECT_EQ(found.reach.time_us, 33);
}

TEST_F(InspectTest, JsonHasTheHopsByName) {
  Inspection found = inspect(kProblem, typical_device("90a"),
                             {.cache_path = ":memory:", .compile = false, .cut_candidates = false});
  constexpr int kCut = 7;
  found.num_cut = kCut;
  for (int i = 0; i < kCut; ++i) found.candidates.push_back({"fwd_made up=1", 0, "no good"});
  const nlohmann::json json = nlohmann::json::parse(to_json(found));
  EXPECT_EQ(json["problem"], to_string(kProblem));
  EXPECT_EQ(json["config"], found.config);
  EXPECT_EQ(json["candidates"].size() + json["cut"].size(), found.candidates.size());
  EXPECT_EQ(json["candidates"].size(), json["num_candidates"]);
  EXPECT_EQ(json["cut"].size(), json["num_cut"]);
  EXPECT_EQ(json["device"]["arch"], "sm_90a");
  EXPECT_EQ(json["device"], nlohmann::json::parse(to_json(found.device)));
  EXPECT_TRUE(json["compiled"].is_null());
  EXPECT_EQ(json["not_compiled"], "not asked for");
  ASSERT_THAT(json["launches"], SizeIs(found.launches.size()));
  EXPECT_EQ(json["launches"][0], nlohmann::json::parse(to_json(found.launches[0])));
  Inspection dirty = found;
  dirty.not_compiled = "";
  dirty.compiled.log = "\xff\xfe not UTF-8";
  ASSERT_TRUE(nlohmann::json::accept(to_json(dirty)));
  EXPECT_EQ(nlohmann::json::parse(to_json(dirty))["compiled"],
            nlohmann::json::parse(to_json(dirty.compiled)));
}

TEST(ListFamilies, NamesAllWithArchsAndFeatures) {
  const std::vector<FamilyInfo> families = list_families();
  ASSERT_EQ(families.size(), registry().size());
  EXPECT_EQ(families.back().name, "bwd_naive");
  EXPECT_EQ(families.front().tier, "product");
  EXPECT_EQ(families.back().tier, "oracle");
  for (const FamilyInfo& family : families) {
    EXPECT_THAT(family.summary, Not(IsEmpty()));
    EXPECT_THAT(family.archs, Contains("sm_90a"));
    EXPECT_THAT(family.features, Contains(family.name == "merge_states" ? "lse"
                                          : family.name == "append_kv"  ? "rope"
                                                                        : "causal"));
  }
}

TEST(CompileInfo, IsOfTheConfigsOwnKernelAndNotOfStepsBesideIt) {
  Cubin cubin;
  cubin.registers = 168;
  cubin.spill_store_bytes = 8;
  Launch launch;
  launch.steps.resize(2);
  launch.steps[0].kernel = "before";
  launch.steps[1].kernel = "own";
  launch.steps[1].block.x = 128;
  const Arch& arch = typical_device("90a").arch;
  EXPECT_EQ(describe(cubin, {}, launch, arch).registers, 168) << "stored: the most of any";
  cubin.kernels["before"] = {.registers = 168, .spill_store_bytes = 8};
  cubin.kernels["own"] = {.registers = 40, .smem_static_bytes = 1024};
  const CompileInfo info = describe(cubin, {}, launch, arch);
  EXPECT_EQ(info.registers, 40);
  EXPECT_EQ(info.spill_bytes, 0);
  EXPECT_EQ(info.smem_bytes, 1024);
  EXPECT_EQ(info.blocks_per_sm, 12);  // of 65,536 registers
}

// ---- Ranking without the GPU ----

TEST_F(RankTest, StoresEstimatesAndCodeThatNoPlanTakesForMeasured) {
  if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
  const DeviceFacts& device = typical_device("86");
  int calls = 0, last_done = 0;
  const std::vector<RankedCandidate> ranked = rank_untuned(kProblem, device, 3, path("cache.db"),
                                                           [&](const Progress& progress) {
                                                             ++calls;
                                                             EXPECT_EQ(progress.total, 3);
                                                             EXPECT_GT(progress.done, last_done);
                                                             last_done = progress.done;
                                                           });
  EXPECT_EQ(calls, 3);
  ASSERT_THAT(ranked, SizeIs(3));
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    EXPECT_TRUE(ranked[i].compiled.ok) << ranked[i].compiled.log;
    if (i > 0 && ranked[i].compiled.spill_bytes == 0) {
      EXPECT_LE(ranked[i - 1].estimate_us, ranked[i].estimate_us);
    }
  }
  Cache cache(path("cache.db"));
  const Problem tuned = bucket(kProblem);
  const std::vector<Try> tries = cache.tries(to_string(tuned), device_class(device));
  ASSERT_THAT(tries, SizeIs(3));
  for (const Try& each : tries) {
    EXPECT_TRUE(each.estimated);
    EXPECT_TRUE(cache.get_cubin(each.digest, "86", ""));
  }
  const Cache::Current current{device_class(device), "", "", device.arch.sm};
  EXPECT_FALSE(cache.best(to_string(tuned), current, [](std::string_view) { return "any"; }));
  const Inspection shown = inspect(kProblem, device,
                                   {.cache_path = path("cache.db"), .compile = false});
  EXPECT_EQ(shown.num_estimates, 3);
  EXPECT_THAT(shown.measured, IsEmpty());
}

TEST_F(RankTest, RefusesADatabaseThatCannotBeWritten) {
  try {
    rank_untuned(kProblem, typical_device("86"), 1, "/proc/nowhere/cache.db");
    FAIL() << "nothing would have been stored";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCache);
    EXPECT_THAT(error.what(), HasSubstr("/proc/nowhere/cache.db"));
  }
}

TEST_F(RankTest, RefusesACountBelowOne) {
  EXPECT_THROW(rank_untuned(kProblem, typical_device("86"), 0, path("cache.db")), Error);
}

TEST_F(RankTest, WhatProgressThrowsEndsTheRanking) {
  if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
  EXPECT_THROW(rank_untuned(kProblem, typical_device("86"), 4, path("cache.db"),
                            [](const Progress&) { throw std::runtime_error("enough"); }),
               std::runtime_error);
}

// ---- Doctor ----

const Check& check_named(const std::vector<Check>& checks, std::string_view name) {
  for (const Check& check : checks) {
    if (check.name == name) return check;
  }
  throw std::runtime_error("no check " + std::string(name));
}

TEST_F(DoctorTest, LooksAtDriverCompilerDatabaseAndDisk) {
  const std::vector<Check> checks = doctor(path("new.db"));
  for (const char* name : {"attnforge", "driver", "nvrtc", "database", "disk"}) {
    const Check& check = check_named(checks, name);
    EXPECT_THAT(check.detail, Not(IsEmpty())) << name;
    EXPECT_EQ(check.state == Check::State::kOk, check.advice.empty()) << name;
  }
  EXPECT_EQ(check_named(checks, "database").state, Check::State::kOk);
  EXPECT_THAT(check_named(checks, "database").detail, HasSubstr("will be created"));
  EXPECT_FALSE(fs::exists(path("new.db")));
}

TEST_F(DoctorTest, ReportsWhatIsInTheDatabase) {
  { Cache cache(path("cache.db")); }
  const std::vector<Check> checks = doctor(path("cache.db"));
  EXPECT_EQ(check_named(checks, "database").state, Check::State::kOk);
  EXPECT_THAT(check_named(checks, "database").detail, HasSubstr("0 tries"));
}

TEST_F(DoctorTest, FindsADatabaseThatIsNone) {
  std::ofstream(path("cache.db"))
      << "this is not SQLite, and long enough to be looked at as a header of one: "
         "0123456789012345678901234567890123456789";
  const std::vector<Check> checks = doctor(path("cache.db"));
  const Check& check = check_named(checks, "database");
  EXPECT_EQ(check.state, Check::State::kFailed);
  EXPECT_THAT(check.advice, Not(IsEmpty()));
}

TEST_F(DoctorTest, SaysWhoElseCanWriteTheDatabase) {
  { Cache cache(path("cache.db")); }
  fs::permissions(path("cache.db"), fs::perms(0666));
  const std::vector<Check> checks = doctor(path("cache.db"));
  const Check& check = check_named(checks, "database");
  EXPECT_EQ(check.state, Check::State::kFailed);
  EXPECT_THAT(check.detail, HasSubstr("can be written by every user"));
  EXPECT_THAT(check.detail, HasSubstr("chmod"));
}

TEST_F(DoctorTest, FindsAFolderThatCannotBeWritten) {
  const std::vector<Check> checks = doctor("/proc/nowhere/cache.db");
  EXPECT_NE(check_named(checks, "database").state, Check::State::kOk);
}

TEST_F(DoctorTest, PromisesNoFileThatCannotBeMade) {
  std::ofstream(path("file")) << "text";
  for (const std::string& database :
       {path("file") + "/x.db", path(std::string(300, 'x').c_str())}) {
    const std::vector<Check> checks = doctor(database);
    const Check& check = check_named(checks, "database");
    EXPECT_EQ(check.state, Check::State::kFailed);
    EXPECT_THAT(check.detail, HasSubstr("cannot be made"));
    EXPECT_THAT(check.detail, Not(HasSubstr("will be created")));
  }
}

TEST_F(DoctorTest, FindsAWrongVariable) {
  const char* before = std::getenv("ATTNFORGE_LOG");
  const std::string saved = before == nullptr ? "" : before;
  setenv("ATTNFORGE_LOG", "loud", 1);
  const std::vector<Check> checks = doctor(path("cache.db"));
  before == nullptr ? unsetenv("ATTNFORGE_LOG") : setenv("ATTNFORGE_LOG", saved.c_str(), 1);
  const Check& check = check_named(checks, "environment ATTNFORGE_LOG");
  EXPECT_EQ(check.state, Check::State::kFailed);
  EXPECT_THAT(check.advice, HasSubstr("ATTNFORGE_LOG=loud: it is debug"));
}

TEST(Names, OfPoliciesAndProvenances) {
  EXPECT_EQ(to_string(Policy::kFirstRun), "first_run");
  std::vector<std::string_view> words;
  for (int i = 0; i <= static_cast<int>(Provenance::kForced); ++i)
    words.push_back(to_string(static_cast<Provenance>(i)));
  EXPECT_THAT(words, ElementsAre("measured", "compatible", "stale", "near_device", "near_problem",
                                 "estimated", "forced"));
}

}  // namespace
}  // namespace attnforge
