// assembly_test.cpp - a kernel is assembled once: slots take pieces in an order, and its source and
// its launch agree.
#include "templates/host/assembly.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "attnforge/error.h"
#include "generator/arch.h"
#include "generator/candidates.h"
#include "generator/shape.h"
#include "templates/registry.h"
#include "tests/templates/problems.h"

namespace attnforge {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal(const std::function<void()>& change) {
  try {
    change();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    return error.what();
  }
  return "";
}

// ---- Slots ----

TEST(PieceSet, IsDenseUntilAPartFillsASlot) {
  PieceSet pieces(kDensePieces);
  EXPECT_TRUE(pieces.is_dense(Slot::kWalk));
  EXPECT_EQ(pieces.type(Slot::kWalk), "DensePieces<kConfig>::Walk");
  EXPECT_EQ(pieces.type(Slot::kListRule), "NoRule") << "no member of the struct";
  pieces.changed_by("mine");
  pieces.fill(Slot::kWalk, {"MyWalk", "mine.cuh"});
  EXPECT_FALSE(pieces.is_dense(Slot::kWalk));
  EXPECT_EQ(pieces.type(Slot::kWalk), "MyWalk");
  EXPECT_EQ(pieces.dense(Slot::kWalk), "DensePieces<kConfig>::Walk");
}

TEST(PieceSet, AWrapKeepsWhatWasThereAndItsHeader) {
  PieceSet pieces(kDensePieces);
  pieces.changed_by("first");
  pieces.wrap(Slot::kScore, {"First<{}>", "first.cuh"});
  EXPECT_TRUE(pieces.headers().empty()) << "the dense piece comes with the set";
  pieces.changed_by("second");
  pieces.wrap(Slot::kScore, {"Second<{}, 2>", "second.cuh"});
  EXPECT_EQ(pieces.type(Slot::kScore), "Second<First<DensePieces<kConfig>::Score>, 2>");
  EXPECT_THAT(pieces.headers(), ElementsAre("first.cuh"));
  ASSERT_EQ(pieces.filled().size(), 1u);
  EXPECT_EQ(pieces.filled()[0].piece.header, "second.cuh");
  std::vector<std::string> changes;
  for (const PieceSet::Change& change : pieces.filled()[0].changes)
    changes.push_back(fmt::format("{} {}", change.part, change.how));
  EXPECT_THAT(changes, ElementsAre("first wraps", "second wraps"));
}

TEST(PieceSet, ListsPiecesInTheOrderOfTheirLastChanges) {
  PieceSet pieces(kDensePieces);
  pieces.changed_by("first");
  pieces.fill(Slot::kScore, {"S", "s.cuh"});
  pieces.fill(Slot::kMask, {"M", "m.cuh"});
  pieces.changed_by("second");
  pieces.replace(Slot::kScore, {"T", "t.cuh"});
  ASSERT_EQ(pieces.filled().size(), 2u);
  EXPECT_EQ(pieces.filled()[0].slot, Slot::kMask);
  EXPECT_EQ(pieces.filled()[1].piece.type, "T");
  EXPECT_TRUE(pieces.headers().empty()) << "what was replaced is not in the source";
}

TEST(PieceSet, RefusesASecondChangeOfASlotThatNobodyMeant) {
  PieceSet pieces(kDensePieces);
  pieces.changed_by("softcap");
  pieces.fill(Slot::kScore, {"S", "s.cuh"});
  EXPECT_THAT(refusal([&] {
                pieces.wrap(Slot::kScore, {"W<{}>", "w.cuh"});
              }),
              HasSubstr("softcap wraps the score a second time"));
  pieces.changed_by("floor");
  EXPECT_THAT(refusal([&] {
                pieces.fill(Slot::kScore, {"F", "f.cuh"});
              }),
              HasSubstr("floor fills the score, which softcap has filled with S"));
  EXPECT_THAT(refusal([&] {
                pieces.replace(Slot::kMask, {"F", "f.cuh"});
              }),
              HasSubstr("floor replaces the mask, which is dense"));
  PieceSet none(BasePieces{});
  EXPECT_NE(refusal([&] { none.fill(Slot::kScore, {"S", "s.cuh"}); }), "");
}

// ---- Parts ----

/// What a problem and a config make of a kernel like those of families.
struct Kernel {
  Problem problem;
  KernelTraits traits;
  Shape shape = shape_of(problem);

  Assembly assembly() const { return assemble(problem, shape, traits); }
  std::string type(Slot slot) const { return entry_of(assembly()).pieces.type(slot); }
  std::string parts() const {
    const Assembly assembled = assembly();
    std::string names;
    for (const Part* part : assembled.parts) names += fmt::format("{} ", part->name);
    return names;
  }
};
Kernel forward(const std::string& words, int num_splits = 1,
               const BasePieces& pieces = kDensePieces) {
  return {parse_problem("fwd bf16 batch=4 num_heads=8 seqlen=300:9000 head_dim=64 " + words),
          {.params = {"Params", 16, 16},
           .pieces = &pieces,
           .tiling = {.block_m = 64, .block_n = 64, .num_splits = num_splits},
           .gathers = true}};
}

TEST(Assembly, HasThePartsOfTheProblemAndOfTheConfigInOneOrder) {
  EXPECT_EQ(forward("").parts(), "");
  EXPECT_EQ(forward("softcap=20 lengths=used page_size=16 sinks score=\"s + k\"", 4).parts(),
            "softcap lengths user_code sinks pages queue splits ");
  EXPECT_EQ(forward("blocks=64 mask=\"k != q\"").parts(),
            "lengths block_mask user_code key_lists queue ");
  std::set<const Part*> with_member(argument_parts().begin(), argument_parts().end());
  for (const Part* part : all_parts()) {
    EXPECT_EQ(part->type != nullptr, with_member.contains(part)) << part->name;
    EXPECT_EQ(part->type != nullptr, part->add != nullptr && part->bytes != nullptr) << part->name;
  }
}

TEST(Assembly, PartsWrapWhatPartsBeforeThemFilled) {
  const Kernel text = forward("softcap=20 score=\"s + k\" lengths=packed tokens=600", 4);
  EXPECT_EQ(text.type(Slot::kScore), "KeyTermScore<UserCode, SoftcapScore>");
  EXPECT_EQ(text.type(Slot::kOrder), "SplitOrder<QueueOrder>");
  EXPECT_EQ(text.type(Slot::kWalk), "SplitWalk<DensePieces<kConfig>::Walk, Splits>");
  const Kernel lists = forward("blocks=64 mask_bits mask=\"k != q\"", 4);
  EXPECT_EQ(lists.type(Slot::kWalk), "SplitWalk<ListWalk<kConfig.key_groups()>, Splits>");
  EXPECT_THAT(lists.type(Slot::kMask),
              HasSubstr("ListMask<DensePieces<kConfig>::Mask, BothRules<BlockBits<"));
}

TEST(Assembly, PagesTakeTheKeysOfListsOver) {
  const std::string paged = "lengths=used page_size=16", text = " mask=\"k != q\"";
  EXPECT_THAT(forward(text).type(Slot::kKeys), HasSubstr("GatheredKeys<"));
  EXPECT_THAT(forward(paged + text).type(Slot::kKeys), HasSubstr("PagedKeys<"));
  EXPECT_THAT(forward(paged).type(Slot::kKeys), HasSubstr("PagedKeys<"));
  EXPECT_THAT(forward(paged, 1, kDenseTmaPieces).type(Slot::kKeys), HasSubstr("PagedTmaKeys<"));
}

TEST(Assembly, LeavesASlotOfAnOracleToTheTextAlone) {
  Kernel oracle = forward("softcap=20 score=\"s + k\"", 1, kOraclePieces);
  EXPECT_EQ(oracle.type(Slot::kScore), "UserScore<UserCode, DensePieces<kConfig>::Score>");
}

// ---- Source and launch ----

/// Of the first configs of all problems that a family serves, on every arch.
class AssembledFamily : public testing::TestWithParam<const Family*> {};

std::vector<std::string> matches(const std::string& text, std::string_view before, char end) {
  std::vector<std::string> found;
  for (std::size_t at = 0; (at = text.find(before, at)) != text.npos;) {
    at += before.size();
    found.push_back(text.substr(at, text.find(end, at) - at));
  }
  return found;
}

TEST_P(AssembledFamily, SourceNamesEachHeaderOnceAndEachStepOfTheLaunchWithItsSize) {
  const Family& family = *GetParam();
  for (const char* arch : {"86", "90a"}) {
    const DeviceFacts& device = typical_device(arch);
    for (const Problem& problem : test::problems_of(family)) {
      const std::vector<Candidate> all = candidates(family, problem, device);
      if (all.empty()) continue;
      const Config& config = all.front().config;
      SCOPED_TRACE(fmt::format("sm_{}: {}\n  {}", arch, to_string(problem), to_string(config)));
      const std::string entry = family.render(config, problem).entry;
      std::vector<std::string> headers = matches(entry, "#include \"", '"');
      std::ranges::sort(headers);
      EXPECT_EQ(std::ranges::adjacent_find(headers), headers.end());
      for (const LaunchStep& step : family.launch(config, problem, device).steps) {
        const std::vector<std::string> argument = matches(
            entry, fmt::format("\n{}(const __grid_constant__ ", step.kernel), ')');
        ASSERT_EQ(argument.size(), 1u) << step.kernel;
        const std::string type = argument[0].substr(0, argument[0].rfind(' '));
        EXPECT_THAT(entry, HasSubstr(fmt::format("static_assert(sizeof({}) == {});\n", type,
                                                 step.params.size())))
            << step.kernel;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, AssembledFamily,
                         testing::ValuesIn(registry().begin(), registry().end()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace attnforge
