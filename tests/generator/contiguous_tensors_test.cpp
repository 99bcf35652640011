// contiguous_tensors_test.cpp - the strides of every layout.
#include <gtest/gtest.h>

#include "attnforge/plan.h"

namespace attnforge {
namespace {

void expect_strides(const Tensor& tensor, std::int64_t batch, std::int64_t row, std::int64_t head) {
  EXPECT_EQ(tensor.stride_batch, batch);
  EXPECT_EQ(tensor.stride_row, row);
  EXPECT_EQ(tensor.stride_head, head);
  EXPECT_EQ(tensor.data, nullptr);
}

TEST(ContiguousTensors, OfEachLayout) {
  const Problem bshd = parse_problem("fwd bf16 batch=3 num_heads=4:2 seqlen=5:7 head_dim=16:24");
  Tensors t = contiguous_tensors(bshd);
  expect_strides(t.q, 5 * 4 * 16, 4 * 16, 16);
  expect_strides(t.k, 7 * 2 * 16, 2 * 16, 16);
  expect_strides(t.v, 7 * 2 * 24, 2 * 24, 24);
  expect_strides(t.o, 5 * 4 * 24, 4 * 24, 24);
  EXPECT_EQ(t.lse.stride_batch, 4 * 5);
  EXPECT_EQ(t.lse.stride_head, 5);

  Problem bhsd = bshd;
  bhsd.layout = Layout::kBhsd;
  t = contiguous_tensors(bhsd);
  expect_strides(t.q, 4 * 5 * 16, 16, 5 * 16);
  expect_strides(t.k, 2 * 7 * 16, 16, 7 * 16);
  expect_strides(t.v, 2 * 7 * 24, 24, 7 * 24);
  expect_strides(t.o, 4 * 5 * 24, 24, 5 * 24);

  const Problem packed = parse_problem(
      "fwd bf16 batch=3 num_heads=4:2 seqlen=5 head_dim=16 layout=packed_qkv");
  t = contiguous_tensors(packed);
  for (const Tensor& each : {t.q, t.k, t.v}) expect_strides(each, 5 * 8 * 16, 8 * 16, 16);
  expect_strides(t.o, 5 * 4 * 16, 4 * 16, 16);
}

TEST(ContiguousTensors, OfAPoolArePageByPage) {
  Problem paged = parse_problem(
      "fwd bf16 batch=3 num_heads=4:2 seqlen=5:70 head_dim=16:24 lengths=used page_size=32");
  Tensors t = contiguous_tensors(paged);
  expect_strides(t.q, 5 * 4 * 16, 4 * 16, 16);
  expect_strides(t.k, 32 * 2 * 16, 2 * 16, 16);
  expect_strides(t.v, 32 * 2 * 24, 2 * 24, 24);
  EXPECT_EQ(t.pages.stride_batch, 3);
  paged.layout = Layout::kBhsd;
  t = contiguous_tensors(paged);
  expect_strides(t.k, 2 * 32 * 16, 16, 32 * 16);
  EXPECT_EQ(pages_of_sequence(paged), 3);
  EXPECT_EQ(pages_of_pool(paged), 9 + 3);
}

TEST(ContiguousTensors, GradientsLieAsWhatTheyAreOf) {
  const Tensors t = contiguous_tensors(
      parse_problem("bwd bf16 batch=2 num_heads=6:3 seqlen=5:7 head_dim=16:8 layout=bhsd"));
  const auto expect_same = [](const Tensor& a, const Tensor& b) {
    EXPECT_EQ(a.stride_batch, b.stride_batch);
    EXPECT_EQ(a.stride_row, b.stride_row);
    EXPECT_EQ(a.stride_head, b.stride_head);
  };
  expect_same(t.gradients.dq, t.q);
  expect_same(t.gradients.dk, t.k);
  expect_same(t.gradients.dv, t.v);
  expect_same(t.gradients.dout, t.o);
  EXPECT_EQ(t.gradients.dlse.stride_head, t.lse.stride_head);
}

}  // namespace
}  // namespace attnforge
