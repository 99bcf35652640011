// shape_test.cpp - what of a problem is compiled in, and the words that configs once had for it.
#include "generator/shape.h"

#include <gtest/gtest.h>

#include "generator/problem/bucket.h"
#include "generator/typed_family.h"

namespace attnforge {
namespace {

TEST(Shape, SaysWhatOfAProblemIsCompiledIn) {
  const Shape shape = shape_of(parse_problem(
      "fwd q=bf16 k=fp16 v=fp32 o=fp32 num_heads=8:2 seqlen=100:200 head_dim=64:32 window_left=7 "
      "window_right=9 softcap=30 lse alignment=8 rope=half rope_dim=16"));
  EXPECT_EQ(initializer(shape),
            "{.dtype = 2, .dtype_k = 1, .dtype_v = 0, .dtype_o = 0, .head_dim = 64, "
            ".head_dim_v = 32, .right_bound = 1, .left_bound = 1, .softcap = 1, .lse = 1, "
            ".alignment = 8, .rope = 2, .rope_dim = 16}");
  EXPECT_EQ(initializer(shape_of(parse_problem("fwd fp16 seqlen=64 head_dim=128 causal"))),
            "{.dtype = 1, .dtype_k = 1, .dtype_v = 1, .dtype_o = 1, .head_dim = 128, "
            ".head_dim_v = 128, .right_bound = 1, .left_bound = 0, .softcap = 0, .lse = 0, "
            ".alignment = 16, .rope = 0, .rope_dim = 0}");
}

TEST(Shape, NamesABlockMaskOnlyWhereThereIsOne) {
  const Shape masked = shape_of(parse_problem("fwd bf16 seqlen=64 blocks=128:16 mask_bits"));
  EXPECT_TRUE(masked.has_block_mask());
  EXPECT_TRUE(initializer(masked).ends_with(
      ".rope_dim = 0, .mask_block_q = 128, .mask_block_kv = 16, .mask_bits = 1}"))
      << initializer(masked);
}

TEST(Shape, NamesSinksOnlyWhereThereAreSome) {
  EXPECT_TRUE(initializer(shape_of(parse_problem("fwd bf16 sinks")))
                  .ends_with(".rope_dim = 0, .sinks = 1}"));
  EXPECT_FALSE(shape_of(parse_problem("fwd bf16")) == shape_of(parse_problem("fwd bf16 sinks")));
}

TEST(Shape, NamesPagesOnlyWhereThereAreSome) {
  EXPECT_TRUE(initializer(shape_of(parse_problem("fwd bf16 lengths=used page_size=24")))
                  .ends_with(".lengths = 2, .page_size = 24}"));
}

TEST(Shape, NamesWhatGradientsAreWrittenAsOnlyWhereItIsUnusual) {
  EXPECT_TRUE(initializer(shape_of(parse_problem("bwd bf16 accumulate gradients=fp32")))
                  .ends_with(".rope_dim = 0, .accumulate = 1, .fp32_gradients = 1}"));
  EXPECT_EQ(initializer(shape_of(parse_problem("bwd bf16 deterministic dlse"))),
            initializer(shape_of(parse_problem("fwd bf16"))));
  EXPECT_EQ(initializer(shape_of(parse_problem("bwd fp32 gradients=fp32"))),
            initializer(shape_of(parse_problem("fwd fp32"))))
      << "they are fp32 already";
}

TEST(Shape, IsThatOfTheBucket) {
  for (const char* text :
       {"fwd bf16 batch=3 num_heads=8:2 seqlen=1:901 head_dim=64 lengths=used page_size=24",
        "fwd bf16 batch=3 num_heads=8:2 seqlen=77:901 head_dim=64 window_left=100 softcap=20",
        "fwd fp16 batch=5 num_heads=8 seqlen=1:3001 head_dim=72:64 causal lse softmax_scale=0.5",
        "fwd bf16 batch=1 num_heads=8 seqlen=9000 head_dim=64 rope=half rope_dim=64 alignment=4"}) {
    const Problem problem = parse_problem(text);
    EXPECT_EQ(initializer(shape_of(problem)), initializer(shape_of(bucket(problem)))) << text;
  }
}

struct Mine : Shape {
  int block_m;
  int block_n;
};

TEST(TypedConfig, IsTheShapeOfTheProblemAndTheFieldsOfTheConfig) {
  static constexpr Field<Mine> kFields[] = {{"block_m", &Mine::block_m},
                                            {"block_n", &Mine::block_n}};
  const Problem problem = parse_problem("fwd bf16 seqlen=64 head_dim=128 causal");
  const Mine mine = typed<kFields>(parse_config("fwd_mine block_m=64 block_n=32"), problem);
  EXPECT_EQ(initializer(mine), initializer(shape_of(problem)));
  EXPECT_EQ(mine.block_m, 64);
  EXPECT_EQ(mine.block_n, 32);
}

TEST(TypedConfig, ATableListsEveryMemberInOrder) {
  constexpr Field<Mine> kAll[] = {{"block_m", &Mine::block_m}, {"block_n", &Mine::block_n}};
  constexpr Field<Mine> kSwapped[] = {{"block_n", &Mine::block_n}, {"block_m", &Mine::block_m}};
  constexpr Field<Mine> kTwice[] = {{"block_m", &Mine::block_m}, {"block_n", &Mine::block_m}};
  constexpr Field<Mine> kFew[] = {{"block_m", &Mine::block_m}};
  static_assert(lists_every_member(kAll));
  static_assert(!lists_every_member(kSwapped) && !lists_every_member(kTwice) &&
                !lists_every_member(kFew));
}

}  // namespace
}  // namespace attnforge
