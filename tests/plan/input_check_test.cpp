// input_check_test.cpp - lengths and page tables that were read back from the GPU: what is wrong
// with them is said with its place.
#include "plan/input_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "attnforge/error.h"

namespace attnforge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr AppendSizes kSmall{.batch = 3, .tokens = 20, .seqlen_kv = 64, .page_size = 16};

/// Two rows for sequence 0, none for 1, 17 for 2; four pages each of a pool of 12.
AppendArrays arrays() {
  return {.cu_seqlens = {0, 2, 2, 19},
          .used = {15, 64, 30},
          .pages = {{3, 7, -1, -1, 0, 1, 2, 4, 5, 6, 8, -1}, 4, 12}};
}

std::string fault_of(const AppendArrays& of, const AppendSizes& sizes = kSmall) {
  try {
    check_arrays(sizes, of);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

TEST(AppendArrays, AreGoodOrSayWhatIsNot) {
  EXPECT_EQ(fault_of(arrays()), "");
  const auto with = [](auto&& change) {
    AppendArrays changed = arrays();
    change(changed);
    return fault_of(changed);
  };
  using A = AppendArrays&;
  EXPECT_THAT(with([](A a) { a.cu_seqlens[0] = 1; }), HasSubstr("cu_seqlens[0] is 1"));
  EXPECT_THAT(with([](A a) { a.cu_seqlens[2] = 1; }), HasSubstr("cu_seqlens[2] is 1, less than"));
  EXPECT_THAT(with([](A a) { a.cu_seqlens[3] = 21; }), HasSubstr("21, more than the 20 rows"));
  EXPECT_THAT(with([](A a) { a.used[1] = 65; }),
              AllOf(HasSubstr("used_kv[1] is 65"), HasSubstr("0 to 64 rows")));
  EXPECT_THAT(with([](A a) { a.used[0] = -1; }), HasSubstr("used_kv[0] is -1"));
  EXPECT_THAT(with([](A a) { a.used[2] = 48; }), HasSubstr("17 rows are appended"));
  EXPECT_THAT(with([](A a) { a.pages.entries[1] = -1; }),
              AllOf(HasSubstr("[0, 1] is -1"), HasSubstr("rows 16 to 16")));
  EXPECT_THAT(with([](A a) { a.pages.entries[0] = -1; }), HasSubstr("[0, 0] is -1"));
  EXPECT_THAT(with([](A a) { a.pages.entries[9] = 12; }), HasSubstr("[2, 1] is 12"));
  EXPECT_THAT(with([](A a) { a.pages.entries[4] = 12; }), HasSubstr("[1, 0] is 12")) << "is read";
  EXPECT_THAT(with([](A a) { a.pages.entries[10] = 7; }),
              AllOf(HasSubstr("[2, 2] is page 7"), HasSubstr("entry [0, 1] too")));
  EXPECT_EQ(with([](A a) { a.pages.entries[8] = 0; }), "") << "what sequences read may be shared";
  EXPECT_EQ(with([](A a) { a.pages.entries[3] = 99; }), "") << "an entry that no row needs";
}

TEST(AppendArrays, OfPaddedRowsAndStridedCaches) {
  AppendSizes sizes = kSmall;
  sizes.page_size = 0;
  sizes.seqlen_new = 2;
  EXPECT_EQ(fault_of({.cu_seqlens = {}, .used = {0, 62, 5}}, sizes), "");
  EXPECT_THAT(fault_of({.cu_seqlens = {}, .used = {0, 63, 5}}, sizes),
              HasSubstr("used_kv[1] is 63, and 2 rows are appended"));
}

// ---- Runs ----

std::string fault_of_run(const char* text, const RunArrays& of, const LengthArrays& tokens = {}) {
  try {
    check_arrays(parse_problem(text), tokens, of);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

TEST(RunArrays, OfUsedLengths) {
  const char* const used = "fwd batch=2 seqlen=4:100 head_dim=64 lengths=used";
  EXPECT_EQ(fault_of_run(used, {}), "") << "all rows";
  EXPECT_EQ(fault_of_run(used, {.lengths_q = {0, 4}, .lengths_kv = {100, 0}}), "");
  EXPECT_THAT(fault_of_run(used, {.lengths_kv = {100, 101}}),
              HasSubstr("sequence 1 has 101 rows by lengths.kv; this plan is for 0 to 100"));
  EXPECT_THAT(fault_of_run(used, {.lengths_q = {-1, 4}}), HasSubstr("-1 rows by lengths.q"));
}

TEST(RunArrays, OfPackedSequences) {
  const char* const packed = "fwd batch=2 seqlen=40:50 tokens=60:90 head_dim=64 lengths=packed";
  const std::vector<int> q = {0, 20, 60}, kv = {0, 40, 90};
  EXPECT_EQ(fault_of_run(packed, {.lengths_q = q, .lengths_kv = kv}), "");
  EXPECT_THAT(fault_of_run(packed, {.lengths_q = q, .lengths_kv = kv}, {.tokens_kv = 89}),
              HasSubstr("lengths.kv[2] is 90, more than the 89 rows"));
  EXPECT_THAT(fault_of_run(packed, {.lengths_q = {0, 41, 60}, .lengths_kv = kv}),
              HasSubstr("sequence 0 has 41 rows by lengths.q"));
  EXPECT_THAT(fault_of_run(packed, {.lengths_q = {0, 20, 19}, .lengths_kv = kv}),
              HasSubstr("lengths.q[2] is 19, less than the 20"));
}

TEST(RunArrays, OfPages) {
  const char* const paged = "fwd batch=2 seqlen=1:40 head_dim=64 lengths=used page_size=16";
  const auto with = [&](std::vector<int> lengths, std::vector<int> entries) {
    return fault_of_run(paged,
                        {.lengths_kv = std::move(lengths),
                         .pages = {.entries = std::move(entries), .columns = 3, .num_pages = 6}});
  };
  EXPECT_EQ(with({17, 40}, {5, 0, -1, 5, 0, 1}), "") << "pages may be shared";
  EXPECT_THAT(with({33, 40}, {5, 0, -1, 5, 0, 1}),
              AllOf(HasSubstr("[0, 2] is -1"), HasSubstr("rows 32 to 32")));
  EXPECT_THAT(with({17, 40}, {5, 0, -1, 5, 6, 1}), HasSubstr("[1, 1] is 6"));
  EXPECT_THAT(with({17, 40}, {-1, 0, -1, 5, 2, 1}), HasSubstr("[0, 0] is -1")) << "a hole";
}

}  // namespace
}  // namespace attnforge
