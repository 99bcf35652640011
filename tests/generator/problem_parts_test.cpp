// problem_parts_test.cpp - the optional parts of a run: which there are, and what is wrong with
// their tensors.
#include "generator/parts/part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "attnforge/error.h"

namespace attnforge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// What explain() says of these tensors.
std::string refused(const Problem& problem, const Tensors& tensors) {
  for (const ProblemPart* part : problem_parts()) {
    if (!part->in(problem)) continue;
    try {
      part->explain(problem, tensors);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
  }
  return "nothing was refused";
}

TEST(ProblemParts, OfADenseForwardThereAreNone) {
  const Problem problem = parse_problem("fwd bf16 causal window_left=9 softcap=3 lse");
  for (const ProblemPart* part : problem_parts()) EXPECT_FALSE(part->in(problem));
}

/// Tensors that a part takes for good are not explained away, and null ones are neither good nor
/// left without a word.
TEST(ProblemParts, WhatIsNotGoodIsExplained) {
  for (const char* text : {"fwd bf16 seqlen=8 rope=half", "fwd bf16 seqlen=8 lengths=packed",
                           "fwd bf16 seqlen=8 sinks", "fwd bf16 seqlen=8 lengths=used page_size=8",
                           "fwd bf16 seqlen=64 blocks=16 mask_bits",
                           "fwd bf16 seqlen=8 args=\"float* a\" score=\"s + a[k]\"",
                           "bwd bf16 seqlen=8", "bwd bf16 seqlen=8 sinks dlse"}) {
    const Problem problem = parse_problem(text);
    int bad = 0;
    for (const ProblemPart* part : problem_parts()) {
      if (!part->in(problem)) continue;
      const std::uint64_t known = part->known == nullptr ? 0 : part->known(problem);
      bad += part->good(problem, known, Tensors{}) ? 0 : 1;
    }
    EXPECT_GT(bad, 0) << text;
    EXPECT_THAT(refused(problem, Tensors{}), HasSubstr("null")) << text;
  }
}

TEST(ProblemParts, RopesTablesMustHaveEveryRow) {
  const Problem problem = parse_problem("fwd fp32 seqlen=9:4 head_dim=16 rope=half");
  alignas(16) const float table[9 * 8] = {};
  Tensors tensors;
  tensors.rope = {.cos = table, .sin = table, .rows = 9, .offset = 5};
  EXPECT_EQ(refused(problem, tensors), "nothing was refused");
  const auto with = [&](auto change) {
    Tensors changed = tensors;
    change(changed.rope);
    return refused(problem, changed);
  };
  EXPECT_THAT(with([](RopeTables& r) { r.sin = nullptr; }), HasSubstr("rope_sin is null"));
  EXPECT_THAT(with([](RopeTables& r) { r.offset = 4; }),
              AllOf(HasSubstr("rope_offset=4"), HasSubstr("at least 5")));
  EXPECT_THAT(
      with([](RopeTables& r) { r.offset = r.rows = std::numeric_limits<std::int64_t>::max(); }),
      HasSubstr("rope_offset=9223372036854775807"));
  EXPECT_THAT(with([](RopeTables& r) { --r.rows; }), HasSubstr("too few"));
  EXPECT_THAT(with([](RopeTables& r) { r.rows = r.offset = std::int64_t{1} << 31; }),
              HasSubstr("2^30"));
  EXPECT_THAT(with([](RopeTables& r) { ++r.cos; }), HasSubstr("multiple of 16"));
}

/// The host's tables are looked at where they are, too: the reference reads every row that a run
/// takes.
TEST(ProblemParts, HostTablesOfARopeMustHaveTheRowsOfTheirOffset) {
  const Problem problem = parse_problem("fwd fp32 seqlen=4 head_dim=16 rope=half");
  HostTensors host;
  for (const Operand& operand : operands(problem)) operand.resize(host, operand.bytes());
  EXPECT_NO_THROW(check_sizes(problem, operands(problem), host));
  host.rope_offset = 1;
  EXPECT_THROW(check_sizes(problem, operands(problem), host), Error);
}

}  // namespace
}  // namespace attnforge
