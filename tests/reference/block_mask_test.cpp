// block_mask_test.cpp - block masks in host memory: what is made is what was meant, pair by pair,
// and what is refused is refused at its position.
#include "attnforge/block_mask.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "attnforge/error.h"
#include "reference/mask_rows.h"
#include "reference/parts/block_mask/builder.h"

namespace attnforge {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "nothing was refused";
}

/// [batch, heads, seqlen_q, seqlen_kv], by the definition in plan.h.
std::vector<std::uint8_t> dense(const BlockMask& mask) {
  std::vector<std::uint8_t> seen;
  for (std::int64_t head = 0; head < mask.batch * mask.heads; ++head) {
    for (std::int64_t query = 0; query < mask.seqlen_q; ++query) {
      const auto row = static_cast<std::size_t>(head * mask.q_blocks() + query / mask.block_q);
      for (std::int64_t key = 0; key < mask.seqlen_kv; ++key) {
        std::uint8_t sees = 0;
        for (int entry = mask.row_begin[row]; entry < mask.row_begin[row + 1]; ++entry) {
          const auto at = static_cast<std::size_t>(entry);
          if (mask.columns[at] / 2 != key / mask.block_kv) continue;
          const int bits = mask.columns[at] % 2 == 0 || mask.bits.empty() ? -1
                                                                          : mask.bit_blocks[at];
          sees = bits < 0 ||
                 bit_of(mask, mask.bits.data(), bits, static_cast<int>(query % mask.block_q),
                        static_cast<int>(key % mask.block_kv));
        }
        seen.push_back(sees);
      }
    }
  }
  return seen;
}

/// `sees(query, position of the query, key)` for every pair of each head.
template <class Sees>
std::vector<std::uint8_t> dense_where(const BlockMaskShape& shape, const Sees& sees) {
  std::vector<std::uint8_t> seen;
  for (std::int64_t head = 0; head < shape.batch * shape.heads; ++head) {
    for (std::int64_t query = 0; query < shape.seqlen_q; ++query) {
      for (std::int64_t key = 0; key < shape.seqlen_kv; ++key)
        seen.push_back(sees(query, query + shape.seqlen_kv - shape.seqlen_q, key) ? 1 : 0);
    }
  }
  return seen;
}

const BlockMaskShape kSmall{.block_q = 16, .block_kv = 32, .seqlen_q = 50, .seqlen_kv = 100};

BlockMaskShape any_shape() {
  const auto block = [] { return *rc::gen::element(16, 32, 64, 128); };
  return {.block_q = block(),
          .block_kv = block(),
          .seqlen_q = *rc::gen::inRange<std::int64_t>(0, 150),
          .seqlen_kv = *rc::gen::inRange<std::int64_t>(0, 150),
          .heads = *rc::gen::inRange<std::int64_t>(1, 3),
          .batch = *rc::gen::inRange<std::int64_t>(1, 3)};
}

BlockMask any_mask(const BlockMaskShape& shape) {
  return random_block_mask(shape, {.density = *rc::gen::element(0.0, 0.3, 0.7, 1.0),
                                   .seed = *rc::gen::inRange<std::uint64_t>(0, 1000),
                                   .diagonal = *rc::gen::arbitrary<bool>(),
                                   .partial = *rc::gen::element(0.0, 0.5)});
}

RC_GTEST_PROP(BlockMask, OfADenseMaskIsThatMask, ()) {
  const BlockMaskShape shape = any_shape();
  // Few numbers, so that there are full and empty blocks too.
  const std::int64_t left = *rc::gen::inRange<std::int64_t>(-1, 90),
                     every = *rc::gen::inRange<std::int64_t>(1, 60);
  const auto seen = dense_where(shape, [&](std::int64_t, std::int64_t position, std::int64_t key) {
    return key >= position - left && key <= position && position % every != 3;
  });
  const BlockMask mask = block_mask_from_dense(shape, seen);
  validate(mask);
  RC_ASSERT(dense(mask) == seen);
}

TEST(BlockMask, OfADenseMaskKnowsFullPartialAndEmptyBlocks) {
  const auto seen = dense_where(kSmall, [](std::int64_t query, std::int64_t, std::int64_t key) {
    return (query < 16 && key < 64) || (query >= 48 && key >= 99) || (query == 20 && key == 40);
  });
  const BlockMask mask = block_mask_from_dense(kSmall, seen);
  EXPECT_EQ(mask.row_begin, (std::vector{0, 2, 3, 3, 4}));
  EXPECT_EQ(mask.columns, (std::vector{0, 2, 3, 7})) << "columns 0 and 1 full, then two partial";
  EXPECT_EQ(mask.bit_blocks, (std::vector{-1, -1, 0, 1}));
  const BlockCounts counts = count_blocks(mask);
  EXPECT_EQ(counts.blocks, 16);
  EXPECT_EQ(counts.full, 2);
  EXPECT_EQ(counts.partial, 2);
  EXPECT_EQ(counts.empty(), 12);
  EXPECT_EQ(counts.density(), 0.25);
}

TEST(BlockMask, TheEndOfASequenceDoesNotMakeABlockPartial) {
  const BlockMask mask = block_mask_from_dense(kSmall, std::vector<std::uint8_t>(50 * 100, 1));
  EXPECT_EQ(count_blocks(mask).full, 16);
  EXPECT_TRUE(mask.bits.empty());
}

TEST(BlockMask, EqualBlocksOfBitsAreStoredOnce) {
  BlockMaskShape shape{.block_q = 64, .block_kv = 64, .seqlen_q = 640, .seqlen_kv = 640};
  shape.heads = 3;
  const BlockMask mask = sliding_window_mask(shape, 128, 0);
  EXPECT_EQ(mask.bits.size(), 2u * 64 * 2) << "one block of the diagonal, one of the far edge";
}

RC_GTEST_PROP(BlockMask, OfBsrOrRunsOrBlocksIsWhatTheySay, ()) {
  const BlockMaskShape shape = any_shape();
  RandomBlocks random{.density = 0.4};
  random.seed = *rc::gen::inRange<std::uint64_t>(0, 1000);
  const BlockMask mask = random_block_mask(shape, random);
  std::vector<int> indices;
  for (const int column : mask.columns) indices.push_back(column / 2);
  RC_ASSERT(block_mask_from_bsr(shape, mask.row_begin, indices) == mask);
  std::vector<std::uint8_t> blocks(static_cast<std::size_t>(shape.rows() * shape.kv_blocks()));
  for (std::size_t row = 0; row + 1 < mask.row_begin.size(); ++row) {
    for (int entry = mask.row_begin[row]; entry < mask.row_begin[row + 1]; ++entry)
      blocks[row * static_cast<std::size_t>(shape.kv_blocks()) +
             static_cast<std::size_t>(indices[static_cast<std::size_t>(entry)])] = 1;
  }
  RC_ASSERT(block_mask_from_blocks(shape, blocks) == mask);
  std::vector<int> runs;
  for (std::int64_t row = 0; row < shape.rows(); ++row) {
    const auto first = *rc::gen::inRange<int>(0, static_cast<int>(shape.kv_blocks()) + 1);
    runs.push_back(first);
    runs.push_back(static_cast<int>(shape.kv_blocks()) - first);
  }
  const BlockMask of_runs = block_mask_from_runs(shape, runs);
  for (std::int64_t row = 0; row < shape.rows(); ++row) {
    const auto at = static_cast<std::size_t>(row);
    RC_ASSERT(of_runs.row_begin[at + 1] - of_runs.row_begin[at] == runs[2 * at + 1]);
    if (runs[2 * at + 1] > 0)
      RC_ASSERT(of_runs.columns[static_cast<std::size_t>(of_runs.row_begin[at])] ==
                2 * runs[2 * at]);
  }
  validate(of_runs);
}

TEST(BlockMask, AFaultInTheListsIsNamedByItsPosition) {
  // Four rows of four columns; two heads where it matters.
  const auto bsr = [](const std::vector<int>& row_begin, const std::vector<int>& indices,
                      std::int64_t heads = 1) {
    BlockMaskShape shape = kSmall;
    shape.heads = heads;
    return refusal([&] { block_mask_from_bsr(shape, row_begin, indices); });
  };
  EXPECT_THAT(bsr({0, 1, 2, 3}, {0, 1, 2}), HasSubstr("row_begin has 4 entries"));
  EXPECT_THAT(bsr({1, 1, 2, 3, 4}, {0, 1, 2, 3}), HasSubstr("row_begin[0]=1 must be 0"));
  EXPECT_THAT(bsr({0, 2, 1, 3, 4}, {0, 1, 2, 3}), HasSubstr("row_begin[2]=1 is less than"));
  EXPECT_THAT(bsr({0, 1, 2, 3, 5}, {0, 1, 2, 3}), HasSubstr("row_begin[4]=5 must be the number"));
  EXPECT_THAT(bsr({0, 1, 4, 4, 4}, {0, 2, 1, 3}),
              HasSubstr("indices[2] of row 1 is block column 1 after 2"));
  EXPECT_THAT(bsr({0, 1, 4, 4, 4}, {0, 2, 2, 3}),
              HasSubstr("indices[2] of row 1 is block column 2 a second time"));
  EXPECT_THAT(bsr({0, 1, 2, 2, 2}, {0, 4}),
              HasSubstr("indices[1] of row 1 is block column 4; there are 4, from 0"));
  EXPECT_THAT(bsr({0, 1, 2, 2, 2}, {0, -1}), HasSubstr("is block column -1"));
  EXPECT_THAT(bsr({0, 0, 0, 0, 0, 0, 1, 1, 1}, {9}, 2),
              HasSubstr("row 5 (sequence 0, head 1, block row 1)"));

  BlockMask mask = sliding_window_mask(kSmall, 20, 0);
  validate(mask);
  const auto broken = [&](const std::function<void(BlockMask&)>& change) {
    BlockMask other = mask;
    change(other);
    return refusal([&] { validate(other); });
  };
  EXPECT_THAT(broken([](BlockMask& m) { m.block_q = 48; }), HasSubstr("block_q=48 must be 16, 32"));
  EXPECT_THAT(broken([](BlockMask& m) { m.heads = 0; }), HasSubstr("heads=0 must be from 1"));
  EXPECT_THAT(broken([](BlockMask& m) { m.seqlen_kv = -5; }), HasSubstr("seqlen_kv=-5"));
  EXPECT_THAT(broken([](BlockMask& m) { m.columns[0] = -1; }), HasSubstr("columns[0]=-1"));
  EXPECT_THAT(broken([](BlockMask& m) { m.bits.pop_back(); }), HasSubstr("words; a block of"));
  EXPECT_THAT(broken([](BlockMask& m) { m.bit_blocks.pop_back(); }), HasSubstr("columns has"));
  EXPECT_THAT(broken([](BlockMask& m) { m.bit_blocks[0] = 99; }), HasSubstr("bit_blocks[0]=99"));
  EXPECT_THAT(broken([](BlockMask& m) { m.columns[0] -= 1; }), HasSubstr("is a full block"));
  EXPECT_THAT(refusal([] {
                block_mask_from_runs(kSmall, std::vector{0, 4, 3, 2, 0, 0, 0, 0});
              }),
              HasSubstr("run of row 1 is 2 block columns from 3 on; there are 4"));
  EXPECT_THAT(refusal([] { block_mask_from_dense(kSmall, std::vector<std::uint8_t>(7)); }),
              HasSubstr("a dense mask of 7 pairs is not [1, 1, 50, 100]"));
}

RC_GTEST_PROP(BlockMask, WindowsAndGlobalKeysAreWhatTheySay, ()) {
  const BlockMaskShape shape = any_shape();
  const std::int64_t left = *rc::gen::inRange<std::int64_t>(-1, 100),
                     right = *rc::gen::inRange<std::int64_t>(-1, 100),
                     global = *rc::gen::inRange<std::int64_t>(0, 60);
  const auto in_window = [&](std::int64_t position, std::int64_t key) {
    return (left < 0 || key >= position - left) && (right < 0 || key <= position + right);
  };
  RC_ASSERT(dense(sliding_window_mask(shape, left, right)) ==
            dense_where(shape, [&](std::int64_t, std::int64_t position, std::int64_t key) {
              return in_window(position, key);
            }));
  const BlockMask with_global = global_window_mask(shape, global, left, right);
  RC_ASSERT(dense(with_global) ==
            dense_where(shape, [&](std::int64_t query, std::int64_t position, std::int64_t key) {
              return query < global || key < global || in_window(position, key);
            }));
  // As few blocks as there can be, and full where they can be.
  RC_ASSERT(with_global == block_mask_from_dense(shape, dense(with_global)));
}

RC_GTEST_PROP(BlockMask, ADocumentSeesItself, ()) {
  BlockMaskShape shape = any_shape();
  std::vector<std::int64_t> lengths = *rc::gen::container<std::vector<std::int64_t>>(
      rc::gen::inRange<std::int64_t>(0, 70));
  if (lengths.size() > 6) lengths.resize(6);
  std::vector<int> document;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    document.insert(document.end(), static_cast<std::size_t>(lengths[i]), static_cast<int>(i));
  shape.seqlen_q = shape.seqlen_kv = static_cast<std::int64_t>(document.size());
  RC_ASSERT(dense(document_mask(shape, lengths)) ==
            dense_where(shape, [&](std::int64_t query, std::int64_t, std::int64_t key) {
              return document[static_cast<std::size_t>(query)] ==
                     document[static_cast<std::size_t>(key)];
            }));
}

TEST(BlockMask, DocumentsMustFillTheSequence) {
  EXPECT_THAT(refusal([] {
                document_mask(kSmall, std::vector<std::int64_t>{20, 30});
              }),
              HasSubstr("documents of 50 tokens in all do not fill seqlen_q=50 and seqlen_kv=100"));
}

TEST(BlockMask, StridedBlocksAreWholeColumnsAndTheNearOnes) {
  const BlockMaskShape shape{
      .block_q = 64, .block_kv = 64, .seqlen_q = 64 * 8, .seqlen_kv = 64 * 8};
  EXPECT_EQ(to_text(strided_mask(shape, 1, 4)),
            "#   #   \n"
            "##  #   \n"
            "### #   \n"
            "# ###   \n"
            "#  ##   \n"
            "#   ##  \n"
            "#   ### \n"
            "#   # ##\n");
}

TEST(BlockMask, RandomBlocksHaveTheirDensityAndTheDiagonal) {
  BlockMaskShape shape{.block_q = 64, .block_kv = 16, .seqlen_q = 4096, .seqlen_kv = 5000};
  for (const double density : {0.1, 0.5, 0.9}) {
    const BlockMask mask = random_block_mask(shape, {.density = density, .diagonal = false});
    EXPECT_NEAR(count_blocks(mask).density(), density, 0.02);
  }
  shape.seqlen_q = 256;
  shape.seqlen_kv = 300;
  const BlockMask diagonal = random_block_mask(shape, {.density = 0});
  EXPECT_EQ(dense(diagonal),
            dense_where(shape, [](std::int64_t query, std::int64_t, std::int64_t key) {
              const std::int64_t first = query / 64 * 64 + 44;
              return key / 16 >= first / 16 && key / 16 <= (first + 63) / 16;
            }));
  shape.seqlen_q = 512;
  shape.heads = 2;
  shape.batch = 2;
  const BlockMask mask = random_block_mask(shape, {.density = 0.3, .seed = 5, .partial = 0.5});
  EXPECT_EQ(mask, random_block_mask(shape, {.density = 0.3, .seed = 5, .partial = 0.5}));
  EXPECT_NE(mask, random_block_mask(shape, {.density = 0.3, .seed = 6, .partial = 0.5}));
  const BlockCounts counts = count_blocks(mask);
  EXPECT_GT(counts.full, counts.blocks / 10);
  EXPECT_GT(counts.partial, counts.blocks / 10);
  EXPECT_THAT(refusal([&] { random_block_mask(shape, {.density = 1.5}); }),
              HasSubstr("density=1.5 must be from 0 to 1"));
}

RC_GTEST_PROP(BlockMask, TransposedSeesTheSamePairs, ()) {
  const BlockMask mask = any_mask(any_shape());
  const BlockMask by_columns = transposed(mask);
  validate(by_columns);
  const auto rows = dense(mask), columns = dense(by_columns);
  std::vector<std::uint8_t> turned;
  for (std::int64_t head = 0; head < mask.batch * mask.heads; ++head) {
    for (std::int64_t query = 0; query < mask.seqlen_q; ++query) {
      for (std::int64_t key = 0; key < mask.seqlen_kv; ++key)
        turned.push_back(columns[static_cast<std::size_t>(
            (head * mask.seqlen_kv + key) * mask.seqlen_q + query)]);
    }
  }
  RC_ASSERT(turned == rows);
}

RC_GTEST_PROP(BlockMask, PairsAreCountedWithTheWindow, ()) {
  BlockMaskShape shape = any_shape();
  const BlockMask mask = any_mask(shape);
  Problem p;
  p.batch = *rc::gen::element(shape.batch, std::int64_t{2}) % 3;
  p.batch = shape.batch == 1 ? std::max<std::int64_t>(1, p.batch) : shape.batch;
  p.num_heads_kv = shape.heads;
  p.num_heads_q = shape.heads * *rc::gen::inRange<std::int64_t>(1, 4);
  p.seqlen_q = shape.seqlen_q;
  p.seqlen_kv = shape.seqlen_kv;
  p.causal = *rc::gen::arbitrary<bool>();
  p.window_left = *rc::gen::inRange<std::int64_t>(-1, 100);
  const auto seen = dense(mask);
  std::int64_t pairs = 0;
  for (std::int64_t sequence = 0; sequence < p.batch; ++sequence) {
    for (std::int64_t head = 0; head < p.num_heads_q; ++head) {
      const std::int64_t of = (shape.batch == 1 ? 0 : sequence) * shape.heads +
                              head / (p.num_heads_q / shape.heads);
      for (std::int64_t query = 0; query < p.seqlen_q; ++query) {
        for (std::int64_t key = 0; key < p.seqlen_kv; ++key) {
          const bool sees = seen[static_cast<std::size_t>((of * p.seqlen_q + query) * p.seqlen_kv +
                                                          key)] != 0;
          pairs += sees && visible_keys(p, query).contains(key) ? 1 : 0;
        }
      }
    }
  }
  p.head_dim_v = 24;
  RC_ASSERT(flops(p, mask) == 2.0 * static_cast<double>(pairs) * (64 + 24));
}

RC_GTEST_PROP(BlockMask, GoesThroughHostTensorsAsItIs, ()) {
  const BlockMask mask = any_mask(any_shape());
  Problem p;
  p.batch = mask.batch;
  p.num_heads_q = p.num_heads_kv = mask.heads;
  p.seqlen_q = mask.seqlen_q;
  p.seqlen_kv = mask.seqlen_kv;
  p = with_block_mask(p, mask);
  HostTensors host;
  set_block_mask(p, host, mask);
  RC_ASSERT(!host.mask_columns.empty());
  RC_ASSERT(host.mask_bits.empty() != p.mask_bits);
  RC_ASSERT(block_mask_of(p, host) == mask);
  RC_ASSERT(flops(p, host) == flops(p, mask));
}

TEST(BlockMask, OfAnotherShapeIsNotTheProblems) {
  const BlockMask mask = sliding_window_mask(kSmall, 20, 0);
  Problem p = parse_problem("fwd num_heads=8:2 seqlen=50:100");
  EXPECT_EQ(to_string(with_block_mask(p, mask)),
            fmt::format("{} blocks=16:32 mask_bits density={}", to_string(p),
                        static_cast<float>(count_blocks(mask).density())));
  BlockMask other = mask;
  other.heads = 4;
  EXPECT_THAT(refusal([&] { with_block_mask(p, other); }), HasSubstr("mask_heads=4 must be 1"));
  other = mask;
  other.seqlen_kv = 99;
  EXPECT_THAT(refusal([&] { with_block_mask(p, other); }), HasSubstr("it is of seqlen_q=50"));
  HostTensors host;
  EXPECT_THAT(refusal([&] { set_block_mask(p, host, mask); }), HasSubstr("add blocks=64:64"));
  p = parse_problem("fwd num_heads=8:2 seqlen=50:100 blocks=16:32");
  EXPECT_THAT(refusal([&] { set_block_mask(p, host, mask); }),
              HasSubstr("with bits are not those"));
}

TEST(BlockMask, RowsThatAreTakenTogetherComputeWhatOneOfThemHas) {
  BlockMaskShape shape{.block_q = 16, .block_kv = 16, .seqlen_q = 80, .seqlen_kv = 80};
  shape.heads = 2;
  const BlockMask diagonal = random_block_mask(shape, {.density = 0});
  EXPECT_EQ(merged_blocks(diagonal, 16), 10);
  EXPECT_EQ(merged_blocks(diagonal, 32), 2 * (4 + 4 + 1)) << "the last row of a head is alone";
  EXPECT_EQ(merged_blocks(diagonal, 64), 2 * (16 + 1));
  EXPECT_EQ(merged_blocks(sliding_window_mask(shape, -1, -1), 64), 2 * 25) << "nothing is added";
}

TEST(BlockMask, DrawingsShowFullPartialAndEmptyBlocks) {
  const BlockMaskShape shape{.block_q = 16, .block_kv = 16, .seqlen_q = 64, .seqlen_kv = 64};
  const BlockMask causal = sliding_window_mask(shape, -1, 0);
  EXPECT_EQ(to_text(causal), "+   \n#+  \n##+ \n###+\n");
  EXPECT_EQ(to_text(causal, 0, 0, 2), "+ \n#+\n");
  const std::string svg = to_svg(causal);
  EXPECT_THAT(svg, HasSubstr("viewBox=\"0 0 4 4\""));
  EXPECT_THAT(svg, HasSubstr("<rect x=\"0\" y=\"3\" width=\"3\" height=\"1\" fill=\"#1f4e79\"/>"));
  EXPECT_THAT(svg, HasSubstr("<rect x=\"3\" y=\"3\" width=\"1\" height=\"1\" fill=\"#1f4e79\" "
                             "fill-opacity=\"0.45\"/>"));
  EXPECT_THAT(refusal([&] { to_text(causal, 1); }), HasSubstr("no drawing of head 1 of 1"));
}

}  // namespace
}  // namespace attnforge
