// candidates_test.cpp - the search space of a small made-up family: what is kept, cut, and first.
#include "generator/candidates.h"

#include <limits>

#include "generator/arch.h"
#include "generator/typed_family.h"
#include "tests/generator/expect_error.h"

namespace attnforge {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string serves_sm86_and_up_to_128(const Problem& problem, const Arch& arch) {
  if (arch.sm < 86) return "needs sm_86 or later";
  return problem.head_dim > 128 ? "head_dim is more than 128" : "";
}

struct TileConfig : Shape {
  int block_m;
  int stages;
};
constexpr Field<TileConfig> kTileFields[] = {{"block_m", &TileConfig::block_m, from_to(64, 128)},
                                             {"stages", &TileConfig::stages, from_to(1, 3)}};

std::vector<Axis> tile_axes(const Problem&, const DeviceFacts&) {
  return {{"block_m", {64, 128}}, {"stages", {1, 2, 3}}};
}

Reason deep_and_large(const TileConfig& c, const Problem&, const DeviceFacts&) {
  return c.block_m == 128 && c.stages == 3 ? "smem is too large" : "";
}
Reason never_illegal(const TileConfig&, const Problem&, const DeviceFacts&) { return ""; }

/// 64: 30, 20, 10 for stages 1, 2, 3; 128: 20, 20.
double estimate_tile(const TileConfig& c, const Problem&, const DeviceFacts&) {
  return c.block_m == 128 ? 20.0 : 10.0 * (4 - c.stages);
}

double estimate_nan(const TileConfig&, const Problem&, const DeviceFacts&) {
  return std::numeric_limits<double>::quiet_NaN();
}
double estimate_flat(const TileConfig&, const Problem&, const DeviceFacts&) { return 5.0; }

Reason all_illegal(const TileConfig&, const Problem&, const DeviceFacts&) {
  return "smem is too large";
}
Reason all_needless(const TileConfig&, const Problem&, const DeviceFacts&) {
  return "another tile is faster";
}

Source render_tile(const TileConfig&, const Problem&) { return {}; }
Launch launch_tile(const TileConfig&, const Problem&, const DeviceFacts&) { return {}; }

constexpr Family kMadeUp{.name = "fwd_tile",
                         .summary = "made up",
                         .features = kFeatureCausal | kFeatureLse,
                         .supports = serves_sm86_and_up_to_128,
                         .axes = tile_axes};

const Family kTile = typed_family<kTileFields, deep_and_large, never_needless<TileConfig>,
                                  estimate_tile, render_tile, launch_tile>(kMadeUp);
/// The same candidates, but the one that is left out is legal.
const Family kChoosy = typed_family<kTileFields, never_illegal, deep_and_large, estimate_tile,
                                    render_tile, launch_tile>(kMadeUp);

struct SlowConfig : Shape {
  int num_threads;
};
constexpr Field<SlowConfig> kSlowFields[] = {{"num_threads", &SlowConfig::num_threads}};

Reason slow_softcap(const SlowConfig&, const Problem& problem, const DeviceFacts&) {
  return problem.softcap > 0 ? "every config is cut" : "";
}
double estimate_one(const SlowConfig&, const Problem&, const DeviceFacts&) { return 1.0; }
double estimate_nine(const SlowConfig&, const Problem&, const DeviceFacts&) { return 9.0; }
Source render_slow(const SlowConfig&, const Problem&) { return {}; }
Launch launch_slow(const SlowConfig&, const Problem&, const DeviceFacts&) { return {}; }

constexpr Family kServesAll{.name = "fwd_slow",
                            .summary = "made up, serves everything",
                            .features = ~Features{0},
                            .supports = [](const Problem&, const Arch&) { return std::string(); },
                            .axes =
                                [](const Problem&, const DeviceFacts&) {
                                  return std::vector<Axis>{{"num_threads", {32}}};
                                }};
const Family
    kNaive = typed_family<kSlowFields, never_needless<SlowConfig>, never_needless<SlowConfig>,
                          estimate_one, render_slow, launch_slow>(kServesAll);
const Family
    kClose = typed_family<kSlowFields, never_needless<SlowConfig>, never_needless<SlowConfig>,
                          estimate_nine, render_slow, launch_slow>(kServesAll);

std::vector<std::string> texts(const std::vector<Candidate>& candidates) {
  std::vector<std::string> result;
  for (const Candidate& candidate : candidates) result.push_back(to_string(candidate.config));
  return result;
}

TEST(Candidates, BestEstimateFirstAndTiesInTheOrderOfTheAxes) {
  const auto found = candidates(kTile, Problem{}, typical_device("86"));
  EXPECT_THAT(texts(found),
              ElementsAre("fwd_tile block_m=64 stages=3", "fwd_tile block_m=64 stages=2",
                          "fwd_tile block_m=128 stages=1", "fwd_tile block_m=128 stages=2",
                          "fwd_tile block_m=64 stages=1"));
  EXPECT_EQ(found.front().family, &kTile);
  EXPECT_EQ(found.front().estimate_us, 10.0);
  EXPECT_EQ(found.back().estimate_us, 30.0);
}

TEST(Candidates, TheOthersAreCutWithTheirReason) {
  Cuts cuts;
  const auto kept = candidates(kTile, Problem{}, typical_device("86"), &cuts);
  EXPECT_EQ(kept.size(), 5u);
  ASSERT_EQ(cuts.configs.size(), 1u);
  EXPECT_EQ(to_string(cuts.configs[0].config), "fwd_tile block_m=128 stages=3");
  EXPECT_EQ(cuts.configs[0].reason, "smem is too large");
}

TEST(Cuts, MakeConfigsOfKindsAndOfTheFirstThatAreWanted) {
  for (const std::size_t most : {std::size_t{0}, std::size_t{5}}) {
    Cuts cuts;
    cuts.most = most;
    int made = 0;
    const auto config = [&] { return Config{"fwd_tile", {{"made", ++made}}}; };
    for (int i = 0; i < 1000; ++i) {
      cuts.add(Reason("{} bytes are more than {}", i, 100), config);
      cuts.add("one stage", config);
      cuts.add(std::to_string(i) + " of 12 columns", config);
    }
    EXPECT_EQ(cuts.count, 3000u);
    EXPECT_EQ(cuts.configs.size(), most);
    EXPECT_EQ(made, 3 + static_cast<int>(most));
    ASSERT_EQ(cuts.kinds.size(), 3u) << "reasons that differ only in numbers are one kind";
    EXPECT_EQ(cuts.kinds.at("one stage").count, 1000u);
    EXPECT_EQ(cuts.kinds.at("{} bytes are more than {}").first.reason, "0 bytes are more than 100");
    EXPECT_EQ(cuts.kinds.at("# of # columns").first.reason, "0 of 12 columns");
  }
}

TEST(Candidates, AFamilyWithoutAChoiceHasOneConfig) {
  EXPECT_THAT(texts(candidates(kNaive, Problem{}, typical_device("80"))),
              ElementsAre("fwd_slow num_threads=32"));
}

TEST(Candidates, OfAllFamiliesComeInTheirOrder) {
  const Family* const families[] = {&kTile, &kNaive};
  const auto found = candidates(families, Problem{}, typical_device("90a"));
  ASSERT_EQ(found.size(), 6u);
  EXPECT_EQ(found[0].family, &kTile);
  EXPECT_EQ(found[5].family, &kNaive);  // though its estimate is the best
  EXPECT_EQ(candidates(families, Problem{}, typical_device("80")).size(), 1u);
}

TEST(Candidates, AnInvalidProblemIsRefused) {
  const Problem invalid{.head_dim = 7};
  const Family* const families[] = {&kTile, &kNaive};
  const DeviceFacts& device = typical_device("86");
  for (const std::string& message :
       {error_message(ErrorCode::kInvalidProblem, [&] { candidates(kTile, invalid, device); }),
        error_message(ErrorCode::kInvalidProblem, [&] { candidates(families, invalid, device); }),
        error_message(ErrorCode::kInvalidProblem, [&] { untuned(families, invalid, device); })}) {
    EXPECT_THAT(message, HasSubstr("head_dim=7"));
  }
}

TEST(Candidates, BrokenFamiliesAreBugs) {
  Family family = typed_family<kTileFields, deep_and_large, never_needless<TileConfig>,
                               estimate_nan, render_tile, launch_tile>(kMadeUp);
  const DeviceFacts& device = typical_device("86");
  EXPECT_THAT(error_message(ErrorCode::kInternal, [&] { candidates(family, Problem{}, device); }),
              HasSubstr("finite"));
  family = kTile;
  family.axes = [](const Problem&, const DeviceFacts&) {
    return std::vector<Axis>{{"block_m", {}}};
  };
  EXPECT_THAT(error_message(ErrorCode::kInternal, [&] { candidates(family, Problem{}, device); }),
              HasSubstr("at least one value"));
  family.axes = [](const Problem&, const DeviceFacts&) {
    return std::vector<Axis>{{"stages", {1}}, {"block_m", {64}}};
  };
  EXPECT_THAT(error_message(ErrorCode::kInternal, [&] { candidates(family, Problem{}, device); }),
              HasSubstr("in the order of the fields"));
}

TEST(Candidates, EachPointIsAskedAboutAsItsConfigWouldBe) {
  const Problem problem{};
  const DeviceFacts& device = typical_device("86");
  Cuts cuts;
  for (const Candidate& kept : candidates(kTile, problem, device, &cuts)) {
    EXPECT_EQ(kTile.illegal(kept.config, problem, device), "");
    EXPECT_EQ(kTile.needless(kept.config, problem, device), "");
    EXPECT_EQ(kTile.estimate_us(kept.config, problem, device), kept.estimate_us);
  }
  for (const CutCandidate& each : cuts.configs)
    EXPECT_EQ(kTile.illegal(each.config, problem, device), each.reason);
}

TEST(Needless, IsLeftOutOfASearchWithItsReasonAndLegalAllTheSame) {
  const DeviceFacts& device = typical_device("86");
  Cuts cuts;
  EXPECT_EQ(texts(candidates(kChoosy, {}, device, &cuts)), texts(candidates(kTile, {}, device)));
  ASSERT_EQ(cuts.configs.size(), 1u);
  const Config& skipped = cuts.configs[0].config;
  EXPECT_EQ(cuts.configs[0].reason, "smem is too large");
  EXPECT_EQ(kChoosy.needless(skipped, {}, device), "smem is too large");
  EXPECT_EQ(illegal(kChoosy, skipped, {}, device), "");
  EXPECT_EQ(illegal(kTile, skipped, {}, device), "smem is too large");
}

TEST(Needless, IsAskedOfLegalConfigsAlone) {
  const Family both = typed_family<kTileFields, deep_and_large, all_needless, estimate_tile,
                                   render_tile, launch_tile>(kMadeUp);
  Cuts cuts;
  EXPECT_THAT(candidates(both, {}, typical_device("86"), &cuts), IsEmpty());
  EXPECT_EQ(cuts.kinds.at("smem is too large").count, 1u);
  EXPECT_EQ(cuts.kinds.at("another tile is faster").count, 5u);
}

TEST(Legality, IsNotThatOfWhatASearchWouldTry) {
  // The axis of a search has one value here, and the rule of the field has more.
  Family one_stage = kChoosy;
  one_stage.axes = [](const Problem&, const DeviceFacts&) {
    return std::vector<Axis>{{"block_m", {64}}, {"stages", {1}}};
  };
  const auto legal = [&](int block_m, int stages) {
    return illegal(one_stage, {"fwd_tile", {{"block_m", block_m}, {"stages", stages}}}, {},
                   typical_device("86"));
  };
  EXPECT_EQ(legal(64, 1), "");
  EXPECT_EQ(legal(128, 3), "");
  EXPECT_THAT(legal(64, 4), HasSubstr("stages=4"));
}

TEST(Candidates, OfSeveralFamiliesAreThoseOfTheFirstTierThatHasAny) {
  Family first = kNaive, ladder = kNaive, oracle = kNaive;
  Family second = typed_family<kSlowFields, slow_softcap, never_needless<SlowConfig>, estimate_one,
                               render_slow, launch_slow>(kNaive);
  first.name = "fwd_first", second.name = "fwd_second", ladder.name = "fwd_ladder";
  ladder.tier = Tier::kLadder, oracle.tier = Tier::kOracle;
  first.features = 0;
  const Family* const families[] = {&first, &second, &ladder, &oracle};
  const auto found = [&](const Problem& problem) {
    return texts(candidates(families, problem, typical_device("86")));
  };
  EXPECT_THAT(found({}), ElementsAre("fwd_first num_threads=32", "fwd_second num_threads=32"));
  EXPECT_THAT(found({.causal = true}), ElementsAre("fwd_second num_threads=32"));
  EXPECT_THAT(found({.softcap = 30.0f}), ElementsAre("fwd_ladder num_threads=32"));
  EXPECT_EQ(untuned(families, {.softcap = 30.0f}, typical_device("86")).family, &ladder);

  LeftOut left_out;
  EXPECT_EQ(texts(candidates(families, {.softcap = 30.0f}, typical_device("86"), {}, &left_out)),
            found({.softcap = 30.0f}));
  ASSERT_EQ(left_out.cuts.configs.size(), 1u)
      << "fwd_second serves the problem, but with no config";
  EXPECT_EQ(left_out.cuts.configs[0].reason, "every config is cut");
  ASSERT_EQ(left_out.families.size(), 2u);
  EXPECT_EQ(left_out.families[0].first, &first);
  EXPECT_EQ(left_out.families[0].second, "does not have softcap");
  EXPECT_EQ(left_out.families[1].first, &oracle);
  EXPECT_EQ(left_out.families[1].second,
            "is the kernel that checks all others (tier oracle): name it to use it");
}

TEST(Candidates, AFamilyIsAskedAboutProblemsOfItsOpAlone) {
  Family backward = kNaive;
  backward.name = "bwd_first", backward.op = Op::kBackward;
  const Family* const families[] = {&kNaive, &backward};
  const DeviceFacts& device = typical_device("86");
  const Problem problem{.op = Op::kBackward};
  EXPECT_EQ(rejection(kNaive, problem, device.arch), "computes fwd, not bwd");
  EXPECT_EQ(rejection(backward, {}, device.arch), "computes bwd, not fwd");
  LeftOut left_out;
  for (const Candidate& each : candidates(families, problem, device, {}, &left_out))
    EXPECT_EQ(each.family, &backward);
  EXPECT_TRUE(left_out.families.empty()) << "the others have nothing to do with it";
  EXPECT_EQ(untuned(families, problem, device).family, &backward);
  EXPECT_EQ(untuned(families, {}, device).family, &kNaive);
}

TEST(Rejection, MissingFeaturesAreNamedBeforeTheFamilyIsAsked) {
  const Problem p{.lse = true, .head_dim = 192, .head_dim_v = 128, .softcap = 30.0f};
  EXPECT_EQ(rejection(kTile, p, arch_named("86")), "does not have softcap, unequal head dims");
  EXPECT_EQ(rejection(kTile, Problem{.head_dim = 192, .head_dim_v = 192}, arch_named("86")),
            "head_dim is more than 128");
  EXPECT_EQ(rejection(kTile, Problem{.causal = true}, arch_named("80")), "needs sm_86 or later");
  EXPECT_EQ(rejection(kTile, Problem{.causal = true}, arch_named("86")), "");
  EXPECT_THAT(candidates(kTile, p, typical_device("86")), IsEmpty());
}

TEST(Untuned, SaysOfTheOneFamilyThatWasAskedForThatItComputesAnotherOp) {
  const Family* const one[] = {&kTile};
  const std::string message = error_message(ErrorCode::kUnsupported, [&] {
    untuned(one, parse_problem("append bf16 num_heads=4 head_dim=64"), typical_device("86"));
  });
  EXPECT_THAT(message, testing::HasSubstr("computes fwd, not append"));
}

TEST(Untuned, IsTheBestEstimateOfTheFirstFamilyThatServesUnlessALaterOneIsClearlyFaster) {
  for (const Family* other : {&kClose, &kNaive}) {
    const Family* const families[] = {&kTile, other};
    const bool clearly = other == &kNaive;  // 1 us beside 10
    const Candidate best = untuned(families, Problem{}, typical_device("86"));
    EXPECT_EQ(best.family, clearly ? &kNaive : &kTile);
    EXPECT_EQ(best.estimate_us, clearly ? 1.0 : 10.0);
    EXPECT_EQ(untuned(families, Problem{}, typical_device("80")).family, other);
  }
}

TEST(Untuned, IsOfTheFirstTierThatServes) {
  Family ladder = kNaive;
  ladder.tier = Tier::kLadder;
  const Family* const families[] = {&kTile, &ladder};
  EXPECT_EQ(untuned(families, Problem{}, typical_device("86")).family, &kTile);
  EXPECT_EQ(untuned(families, Problem{}, typical_device("80")).family, &ladder);
}

TEST(Untuned, IsTheFirstCandidateAmongTiesToo) {
  const Family flat = typed_family<kTileFields, deep_and_large, never_needless<TileConfig>,
                                   estimate_flat, render_tile, launch_tile>(kMadeUp);
  const Family* const families[] = {&flat};
  const DeviceFacts& device = typical_device("86");
  EXPECT_EQ(untuned(families, Problem{}, device).config,
            candidates(flat, Problem{}, device).front().config);
}

TEST(Untuned, GoesOnWhenEveryConfigIsCut) {
  const Family strict = typed_family<kTileFields, all_illegal, never_needless<TileConfig>,
                                     estimate_tile, render_tile, launch_tile>(kMadeUp);
  const Family* const both[] = {&strict, &kNaive};
  EXPECT_EQ(untuned(both, Problem{}, typical_device("86")).family, &kNaive);
  const Family* const alone[] = {&strict};
  EXPECT_THAT(error_message(ErrorCode::kUnsupported,
                            [&] { untuned(alone, Problem{}, typical_device("86")); }),
              HasSubstr("fwd_tile: every config is cut, the last one because: smem is too large"));
}

TEST(Untuned, SaysWhyForEachFamilyWhenNoneServes) {
  Family later = kTile;
  later.name = "fwd_later";
  later.features = kFeatureSoftcap;
  const Family* const families[] = {&kTile, &later};
  const Problem p{.head_dim = 256, .head_dim_v = 256, .softcap = 1.0f};
  const std::string message = error_message(ErrorCode::kUnsupported,
                                            [&] { untuned(families, p, typical_device("86")); });
  EXPECT_THAT(message, HasSubstr(to_string(p)));
  EXPECT_THAT(message, HasSubstr("NVIDIA GeForce RTX 3090 (sm_86)"));
  EXPECT_THAT(message, HasSubstr("\n  fwd_tile: does not have softcap"));
  EXPECT_THAT(message, HasSubstr("\n  fwd_later: head_dim is more than 128"));
}

}  // namespace
}  // namespace attnforge
