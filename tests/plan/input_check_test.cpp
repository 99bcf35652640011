// input_check_test.cpp - ATTNFORGE_CHECK_INPUTS=1: lengths and page tables of a plan's run are read
// back and looked at before it is launched. On the fake driver, whose device memory is the host's.
#include "plan/checks/input_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "plan/context_scope.h"
#include "runtime/memory.h"
#include "tests/plan/plan_fixture.h"
#include "tests/support/captured_graph.h"
#include "tests/support/environment.h"

namespace attnforge {
namespace {

using test::fake_cuda;
using test::tensors_of;
using testing::AllOf;
using testing::HasSubstr;

const std::map<std::string, std::string> kAsked = {{"ATTNFORGE_CHECK_INPUTS", "1"}};

/// A run of 3 sequences of at most 40 keys in pages of 16, of a pool of 9.
class InputCheckTest : public test::PlanTest {
 protected:
  const Problem problem_ = parse_problem(
      "fwd bf16 batch=3 num_heads=4:2 seqlen=1:40 head_dim=64 lengths=used page_size=16");
  std::vector<int> kv_ = {40, 0, 17};
  std::vector<int> table_ = {3, 8, 1, 99, -1, -1, -1, 99, 0, 2, -1, 99};

  Tensors tensors() {
    Tensors tensors = tensors_of(problem_);
    tensors.lengths.kv = kv_.data();
    tensors.pages = {.table = table_.data(), .stride_batch = 4, .num_pages = 9};
    return tensors;
  }
  void run(Device& device, void* stream = nullptr) {
    make_plan(problem_, device)
        .run(tensors(), reinterpret_cast<void*>(std::uintptr_t{0x100000}), stream);
  }
  std::string refusal(Device& device) {
    const int launches = fake_cuda().launches();
    const Error error = error_of([&] { run(device); });
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(fake_cuda().launches(), launches) << "told before the launch";
    return error.what();
  }
};

TEST_F(InputCheckTest, ReadsNothingUnlessAsked) {
  Device device = open();
  kv_[0] = 1000;
  table_[0] = 1000;
  EXPECT_NO_THROW(run(device));
}

TEST_F(InputCheckTest, NamesWhatIsWrongBeforeTheLaunch) {
  const test::ScopedEnvironment scope(kAsked);
  Device device = open();
  EXPECT_NO_THROW(run(device));
  kv_[2] = 41;
  EXPECT_THAT(refusal(device), HasSubstr("lengths.kv: sequence 2 has 41 rows; it may have 0 to "));
  kv_[2] = -1;
  EXPECT_THAT(refusal(device), HasSubstr("sequence 2 has -1 rows"));
  kv_[2] = 17;
  table_[9] = 9;
  EXPECT_THAT(refusal(device), HasSubstr("sequence 2 of 17 keys has page 9 in column 1; it must be "
                                         "from 0 to 8"));
  table_[9] = -1;
  EXPECT_THAT(refusal(device), HasSubstr("(-1 is for columns after the last key)"));
  kv_[2] = 16;
  EXPECT_NO_THROW(run(device));
}

TEST_F(InputCheckTest, ACapturedRunIsNotLookedAt) {
  const test::ScopedEnvironment scope(kAsked);
  Device device = open();
  run(device);
  kv_[0] = 1000;
  const ContextScope context(state_of(device).context);
  const Stream stream;
  EXPECT_NO_THROW(Graph(stream, [&](CUstream captured) { run(device, captured); }));
}

TEST_F(InputCheckTest, LooksAtPackedLengthsToo) {
  const test::ScopedEnvironment scope(kAsked);
  Device device = open();
  const Problem packed = parse_problem(
      "fwd bf16 batch=2 num_heads=4 seqlen=8 tokens=12 head_dim=64 lengths=packed");
  std::vector<int> begins = {0, 4, 12};
  Tensors tensors = tensors_of(packed);
  tensors.lengths = {.q = begins.data(), .kv = begins.data()};
  const auto run_packed = [&] {
    make_plan(packed, device).run(tensors, reinterpret_cast<void*>(std::uintptr_t{0x100000}));
  };
  EXPECT_NO_THROW(run_packed());
  begins = {0, 3, 12};
  EXPECT_THAT(std::string(error_of(run_packed).what()), HasSubstr("sequence 1 has 9 rows"));
}

// ---- Appends ----

const Problem kSmall = parse_problem(
    "append bf16 batch=3 seqlen=20:64 lengths=packed tokens=20 page_size=16");

/// Two rows for sequence 0, none for 1, 17 for 2; four pages each of a pool of 12.
AppendArrays arrays() {
  return {.cu_seqlens = {0, 2, 2, 19},
          .used = {15, 64, 30},
          .pages = {{3, 7, -1, -1, 0, 1, 2, 4, 5, 6, 8, -1}, 4, 12}};
}

std::string fault_of(const AppendArrays& of, const Problem& problem = kSmall) {
  try {
    check_arrays(problem, of);
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

TEST(AppendArrays, BordersOfPagesBelongToThePageBefore) {
  AppendArrays borders = arrays();
  // Sequences 0 and 2 begin to write right after a full page, which both read.
  borders.used = {16, 64, 32};
  borders.pages.entries = {3, 7, -1, -1, 0, 1, 2, 4, 5, 3, 8, 9};
  EXPECT_EQ(fault_of(borders), "");
  borders.used[0] = 15;
  EXPECT_EQ(fault_of(borders), "") << "one of them writes into it";
  borders.used[2] = 31;
  EXPECT_THAT(fault_of(borders), HasSubstr("[2, 1] is page 3, which is entry [0, 0] too"));
  borders.used = {14, 64, 32};
  borders.pages.entries[1] = -1;
  EXPECT_EQ(fault_of(borders), "") << "the last new row is the page's last";
  // Without new rows nothing is written, into a page that is not full either.
  borders = arrays();
  borders.used[1] = 60;
  borders.pages.entries[7] = 7;
  EXPECT_EQ(fault_of(borders), "");
  borders.used[2] = 47;
  borders.pages.entries[11] = 11;
  EXPECT_EQ(fault_of(borders), "") << "the last row of the cache";
  borders.pages.entries[11] = 12;
  EXPECT_THAT(fault_of(borders), HasSubstr("[2, 3] is 12"));
  borders = arrays();
  borders.cu_seqlens[3] = 20;
  EXPECT_EQ(fault_of(borders), "") << "all rows of the tensors";
}

TEST(AppendArrays, OfPaddedRowsAndStridedCaches) {
  const Problem sizes = parse_problem("append bf16 batch=3 seqlen=2:64");
  EXPECT_EQ(fault_of({.cu_seqlens = {}, .used = {0, 62, 5}}, sizes), "");
  EXPECT_THAT(fault_of({.cu_seqlens = {}, .used = {0, 63, 5}}, sizes),
              HasSubstr("used_kv[1] is 63, and 2 rows are appended"));
}

}  // namespace
}  // namespace attnforge
