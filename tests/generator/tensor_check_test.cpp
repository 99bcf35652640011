// tensor_check_test.cpp - which addresses and strides of a tensor a run refuses, and which it never
// uses.
#include "generator/tensors/tensor_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "attnforge/error.h"

namespace attnforge {
namespace {

using testing::HasSubstr;

/// What is said of q with these sizes: "" if it is good.
std::string said_of(const Problem& p, const Tensor& q) {
  try {
    const std::int64_t batch = p.lengths == Lengths::kPacked ? 1 : p.batch;
    check_tensor("q", q, p.dtype_q, p.num_heads_q, batch, p.seqlen_q, p);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

Tensor at(std::uintptr_t address, std::int64_t batch, std::int64_t row, std::int64_t head) {
  return {reinterpret_cast<void*>(address), batch, row, head};
}

TEST(TensorCheck, StridesOfSizeOneAreNotUsed) {
  const Problem one = parse_problem("fwd bf16 batch=1 num_heads=1 seqlen=1 head_dim=64");
  EXPECT_EQ(said_of(one, at(0x100, 3, 3, 3)), "");
  const Problem many = parse_problem("fwd bf16 batch=2 num_heads=2 seqlen=2 head_dim=64");
  EXPECT_EQ(said_of(many, at(0x100, 256, 128, 64)), "");
  EXPECT_THAT(said_of(many, at(0x100, 257, 128, 64)), HasSubstr("q has stride_batch=257 elements"));
  EXPECT_THAT(said_of(many, at(0x100, 256, 129, 64)), HasSubstr("q has stride_row=129 elements"));
  EXPECT_THAT(said_of(many, at(0x100, 256, 128, 65)), HasSubstr("q has stride_head=65 elements"));
  const Problem rows = parse_problem("fwd bf16 batch=2 num_heads=1 seqlen=1 head_dim=64");
  EXPECT_EQ(said_of(rows, at(0x100, 64, 65, 63)), "") << "one row and one head in each batch";
}

TEST(TensorCheck, PackedSequencesOfOneRowAreManyRows) {
  const Problem packed = parse_problem(
      "fwd bf16 batch=2 num_heads=1 seqlen=1 head_dim=64 lengths=packed");
  EXPECT_EQ(said_of(packed, at(0x100, 3, 64, 3)), "");
  EXPECT_THAT(said_of(packed, at(0x100, 3, 65, 3)), HasSubstr("q has stride_row=65 elements"));
}

TEST(TensorCheck, AddressesAreThereAndAligned) {
  Problem p = parse_problem("fwd bf16 batch=2 num_heads=2 seqlen=2 head_dim=64");
  EXPECT_THAT(said_of(p, at(0, 256, 128, 64)), HasSubstr("q is null"));
  EXPECT_THAT(said_of(p, at(0x108, 256, 128, 64)), HasSubstr("not a multiple of 16 bytes"));
  p.alignment_bytes = 8;
  EXPECT_EQ(said_of(p, at(0x108, 256, 128, 64)), "");
  EXPECT_EQ(said_of(p, at(0x108, 260, 132, 68)), "") << "multiples of 8 bytes";
  EXPECT_THAT(said_of(p, at(0x108, 258, 132, 68)), HasSubstr("not a multiple of 8 bytes"));
  for (const char* empty : {"batch=0 seqlen=2", "batch=2 seqlen=0"}) {
    const Problem nothing = parse_problem(std::string("fwd bf16 num_heads=2 head_dim=64 ") + empty);
    EXPECT_EQ(said_of(nothing, at(0, 1, 1, 1)), "") << empty;
  }
}

}  // namespace
}  // namespace attnforge
