// any_problem_test.cpp - what tests/support/any_problem.h draws: all that users have, at the cost
// that is allowed. A part of a problem that is never drawn is tested by nobody.
#include "tests/support/any_problem.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <string>
#include <vector>

#include "generator/problem/bucket.h"
#include "tests/support/bucket_members.h"
#include "tests/support/random_choices.h"

namespace attnforge::test {
namespace {

constexpr int kDrawn = 2000;
constexpr MostSizes kSmall{
    .batch_bits = 8, .heads_bits = 7, .seqlen_bits = 13, .flops = 4e9, .bytes = 64 << 20};

std::vector<Problem> drawn(const MostSizes& most, std::uint64_t seed) {
  RandomChoices choices(seed);
  std::vector<Problem> problems(kDrawn);
  for (Problem& problem : problems) problem = any_problem(choices, most);
  return problems;
}

bool is_power_of_two(std::int64_t n) { return std::has_single_bit(static_cast<std::uint64_t>(n)); }
std::int64_t group(const Problem& p) { return p.num_heads_q / p.num_heads_kv; }
bool decodes(const Problem& p) { return p.seqlen_q >= 1 && p.seqlen_q <= 8 && p.seqlen_kv > 256; }

struct Kind {
  const char* name;
  bool (*is)(const Problem&);
  int of = 100;  // at least one of so many is so
};
const Kind kKinds[] = {
    {"a batch that is no power of two", [](const Problem& p) { return !is_power_of_two(p.batch); }},
    {"a batch above 64", [](const Problem& p) { return p.batch > 64; }},
    {"a group that is no power of two",
     [](const Problem& p) { return !is_power_of_two(group(p)); }},
    {"a group above 8", [](const Problem& p) { return group(p) > 8; }},
    {"more heads than 16", [](const Problem& p) { return p.num_heads_q > 16; }},
    {"a length that is no multiple of 8", [](const Problem& p) { return p.seqlen_kv % 8 != 0; }},
    {"one new token", [](const Problem& p) { return decodes(p) && p.seqlen_q == 1; }},
    {"several new tokens", [](const Problem& p) { return decodes(p) && p.seqlen_q > 1; }},
    {"new tokens, many sequences", [](const Problem& p) { return decodes(p) && p.batch > 16; }},
    {"new tokens, pages", [](const Problem& p) { return decodes(p) && p.page_size != 0; }, 400},
    {"pages", [](const Problem& p) { return p.page_size != 0; }},
    {"used lengths", [](const Problem& p) { return p.lengths == Lengths::kUsed; }},
    {"packed sequences", [](const Problem& p) { return p.lengths == Lengths::kPacked; }},
    {"packed q, k and v", [](const Problem& p) { return p.layout == Layout::kPackedQkv; }},
    {"a head dim above 256", [](const Problem& p) { return p.head_dim > 256; }},
    {"an odd head dim", [](const Problem& p) { return p.head_dim % 16 != 0; }},
    {"another head dim of v", [](const Problem& p) { return p.head_dim != p.head_dim_v; }},
    {"a window", [](const Problem& p) { return p.window_left > 0 && p.window_left < p.seqlen_kv; }},
    {"a soft cap", [](const Problem& p) { return p.softcap > 0; }},
    {"sinks", [](const Problem& p) { return p.sinks; }},
    {"a rope", [](const Problem& p) { return p.rope != Rope::kNone; }},
    {"a block mask", [](const Problem& p) { return has_block_mask(p); }},
    {"caches of 8 bits", [](const Problem& p) { return p.dtype_k == DType::kInt8; }},
    {"caches of 4 bits", [](const Problem& p) { return p.dtype_v == DType::kInt4; }},
    {"floats of 8 bits", [](const Problem& p) { return p.dtype_k == DType::kE4m3; }},
    {"blocks with scales inside", [](const Problem& p) { return is_blocks(p.dtype_k); }},
    {"a scale for each token", [](const Problem& p) { return p.kv_scale == KvScale::kToken; }, 120},
    {"queries of 8 bits", [](const Problem& p) { return p.dtype_q == DType::kE4m3; }, 500},
    {"zero points", [](const Problem& p) { return p.kv_zero; }, 500},
    {"a backward", [](const Problem& p) { return is_backward(p); }},
    {"nothing to do", [](const Problem& p) { return p.batch == 0 || p.seqlen_q == 0; }},
};

void expect_every_kind(const MostSizes& most) {
  const std::vector<Problem> problems = drawn(most, 1);
  for (const Kind& kind : kKinds)
    EXPECT_GE(std::ranges::count_if(problems, kind.is), kDrawn / kind.of) << kind.name;
}

TEST(AnyProblem, DrawsWhatUsersHave) { expect_every_kind({}); }

TEST(AnyProblem, DrawsItAtASmallCostToo) {
  expect_every_kind(kSmall);
  for (const Problem& problem : drawn(kSmall, 2)) {
    EXPECT_LE(flops(problem), kSmall.flops) << to_string(problem);
    EXPECT_LE(minimum_bytes(problem), kSmall.bytes) << to_string(problem);
  }
}

TEST(AnyProblem, IsValidAndTheSameForTheSameSeed) {
  for (const MostSizes& most : {MostSizes{}, kSmall}) {
    const std::vector<Problem> problems = drawn(most, 3);
    EXPECT_EQ(problems, drawn(most, 3));
    EXPECT_NE(problems, drawn(most, 4));
    for (const Problem& problem : problems) EXPECT_NO_THROW(validate(problem));
  }
}

TEST(AnyProblem, OfABucketAreOthersThatShareIt) {
  RandomChoices choices(5);
  int others = 0;
  for (const Problem& problem : drawn(kSmall, 5)) {
    const Problem member = member_of_bucket(choices, problem);
    EXPECT_NO_THROW(validate(member));
    EXPECT_EQ(bucket(member), bucket(problem)) << to_string(problem);
    others += member != problem;
  }
  EXPECT_GT(others, kDrawn * 8 / 10);
}

}  // namespace
}  // namespace attnforge::test
