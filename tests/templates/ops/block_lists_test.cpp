// block_lists_test.cpp - the kernels that make the lists of block masks, on threads of the host:
// the same lists as the host's own functions make.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "attnforge/block_mask.h"

// clang-format off
#include "tests/support/host_grid.h"
#include "templates/ops/block_lists/lists.cuh"
#include "templates/ops/block_lists/text.cuh"
// clang-format on

namespace attnforge {
namespace {

/// Stands for a text: seen(sequence, head, query, key) of a dense mask.
struct DenseRule {
  static inline BlockMaskShape shape{};
  static inline std::vector<std::uint8_t> pairs{};

  static bool seen(int sequence, int head, int query, int key) {
    EXPECT_TRUE(query < shape.seqlen_q && key < shape.seqlen_kv && query >= 0 && key >= 0)
        << "the text is asked about pairs that are there";
    const std::int64_t row = (sequence * shape.heads + head) * shape.seqlen_q + query;
    return pairs[static_cast<std::size_t>(row * shape.seqlen_kv + key)] != 0;
  }
  template <class Params, class Lengths>
  static auto of_row(const Params&, const Lengths&, int sequence, int head, int query, int key) {
    return [=](int i) { return seen(sequence, head, query, key + i); };
  }
  template <class Params, class Lengths>
  static bool of_pair(const Params&, const Lengths&, int sequence, int head, int query, int key) {
    return seen(sequence, head, query, key);
  }
};

unsigned blocks_of(std::int64_t warps) { return static_cast<unsigned>((warps + 7) / 8); }

/// The lists of states, and which entries have bits.
BlockMask listed(const BlockMaskShape& shape, const std::vector<u8>& states, bool with_bits) {
  BlockMask mask{shape, {}, {}, {}, {}};
  const auto rows = static_cast<std::size_t>(shape.rows());
  mask.row_begin.assign(rows + 1, -1);
  std::vector<int> partial_begin(rows + 1, -1);
  BlockListsParams p{.states = states.data(),
                     .row_begin = mask.row_begin.data(),
                     .partial_begin = partial_begin.data(),
                     .columns = nullptr,
                     .bit_blocks = nullptr,
                     .kv_blocks = static_cast<int>(shape.kv_blocks()),
                     .rows = static_cast<int>(rows)};
  test::run_on_host(blocks_of(shape.rows()), BlockLists::kThreads, [&] { BlockLists::count(p); });
  test::run_on_host(1, BlockLists::kBeginThreads, [&] { BlockLists::begin(p); });
  mask.columns.assign(static_cast<std::size_t>(mask.row_begin.back()), -1);
  if (with_bits) {
    mask.bit_blocks.assign(mask.columns.size(), -2);
    mask.bits.assign(static_cast<std::size_t>(partial_begin.back() * shape.words_per_block()),
                     0xabababab);
  }
  p.columns = mask.columns.data();
  p.bit_blocks = with_bits ? mask.bit_blocks.data() : nullptr;
  test::run_on_host(blocks_of(shape.rows()), BlockLists::kThreads, [&] { BlockLists::write(p); });
  return mask;
}

template <int kBlockQ, int kBlockKv>
BlockMask made_of_text(const BlockMaskShape& shape, bool with_bits) {
  using Kernels = BlocksOfText<DenseRule, kBlockQ, kBlockKv>;
  std::vector<u8> states(static_cast<std::size_t>(shape.rows() * shape.kv_blocks()), 77);
  BlockTextParams p{};
  p.fwd.seqlen_q = static_cast<int>(shape.seqlen_q);
  p.fwd.seqlen_kv = static_cast<int>(shape.seqlen_kv);
  p.states = states.data();
  p.heads = static_cast<int>(shape.heads);
  p.q_blocks = static_cast<int>(shape.q_blocks());
  p.kv_blocks = static_cast<int>(shape.kv_blocks());
  p.rows = static_cast<int>(shape.rows());
  test::run_on_host(blocks_of(shape.rows() * shape.kv_blocks()), Kernels::kThreads,
                    [&] { Kernels::write_states(p); });
  BlockMask mask = listed(shape, states, with_bits);
  if (!with_bits) return mask;
  p.row_begin = mask.row_begin.data();
  p.columns = mask.columns.data();
  p.bit_blocks = mask.bit_blocks.data();
  p.bits = mask.bits.data();
  test::run_on_host(static_cast<unsigned>(mask.columns.size()), Kernels::kThreads,
                    [&] { Kernels::write_bits(p); });
  return mask;
}

BlockMask transposed_by_kernels(const BlockMask& mask) {
  BlockMaskShape shape = mask;
  std::swap(shape.block_q, shape.block_kv);
  std::swap(shape.seqlen_q, shape.seqlen_kv);
  std::vector<u8> states(static_cast<std::size_t>(shape.rows() * shape.kv_blocks()), kAbsentBlock);
  TransposedListsParams p{.row_begin = mask.row_begin.data(),
                          .columns = mask.columns.data(),
                          .bit_blocks = mask.bit_blocks.data(),
                          .bits = mask.bits.data(),
                          .states = states.data(),
                          .column_begin = nullptr,
                          .rows = nullptr,
                          .bit_blocks_of_columns = nullptr,
                          .bits_of_columns = nullptr,
                          .masks = static_cast<int>(mask.batch * mask.heads),
                          .q_blocks = static_cast<int>(mask.q_blocks()),
                          .kv_blocks = static_cast<int>(mask.kv_blocks()),
                          .block_q = mask.block_q,
                          .block_kv = mask.block_kv,
                          .blocks_of_bits = 0};
  test::run_on_host(blocks_of(mask.rows()), TransposedLists::kThreads,
                    [&] { TransposedLists::mark(p); });
  BlockMask result = listed(shape, states, false);
  if (mask.bits.empty()) return result;
  p.blocks_of_bits = static_cast<int>(mask.bits.size()) / static_cast<int>(mask.words_per_block());
  result.bit_blocks.assign(result.columns.size(), -2);
  result.bits.assign(static_cast<std::size_t>(p.blocks_of_bits * shape.words_per_block()),
                     0xabababab);
  p.column_begin = result.row_begin.data();
  p.rows = result.columns.data();
  p.bit_blocks_of_columns = result.bit_blocks.data();
  p.bits_of_columns = result.bits.data();
  test::run_on_host(blocks_of(shape.rows()), TransposedLists::kThreads,
                    [&] { TransposedLists::find_bits(p); });
  const std::int64_t tiles = p.blocks_of_bits * ((mask.block_q + 31) / 32) * mask.words_per_row();
  test::run_on_host(blocks_of(tiles), TransposedLists::kThreads,
                    [&] { TransposedLists::transpose_bits(p); });
  return result;
}

/// A dense mask with blocks of every kind, of the shape's sizes.
std::vector<std::uint8_t> any_pairs(const BlockMaskShape& shape, unsigned seed) {
  std::mt19937 random(seed);
  const BlockMask mask = random_block_mask(
      shape, {.density = 0.6, .seed = seed, .diagonal = false, .partial = 0.5});
  std::vector<std::uint8_t> pairs;
  for (std::int64_t of = 0; of < shape.batch * shape.heads; ++of) {
    for (std::int64_t query = 0; query < shape.seqlen_q; ++query) {
      const auto row = static_cast<std::size_t>(of * shape.q_blocks() + query / shape.block_q);
      for (std::int64_t key = 0; key < shape.seqlen_kv; ++key) {
        const auto begin = mask.columns.begin() + mask.row_begin[row],
                   end = mask.columns.begin() + mask.row_begin[row + 1];
        const int column = static_cast<int>(key / shape.block_kv) * 2;
        const auto at = std::lower_bound(begin, end, column);
        const bool there = at != end && *at / 2 == column / 2;
        pairs.push_back(there && (*at % 2 == 0 || random() % 40 != 0));
      }
    }
  }
  return pairs;
}

struct Case {
  BlockMaskShape shape;
  BlockMask (*make)(const BlockMaskShape&, bool with_bits);
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.shape.seqlen_q << " x " << c.shape.seqlen_kv;
}

template <int kBlockQ, int kBlockKv>
Case case_of(std::int64_t seqlen_q, std::int64_t seqlen_kv, std::int64_t heads,
             std::int64_t batch) {
  return {{.block_q = kBlockQ,
           .block_kv = kBlockKv,
           .seqlen_q = seqlen_q,
           .seqlen_kv = seqlen_kv,
           .heads = heads,
           .batch = batch},
          made_of_text<kBlockQ, kBlockKv>};
}

const Case kCases[] = {case_of<128, 128>(300, 400, 1, 1), case_of<16, 16>(33, 550, 2, 1),
                       case_of<64, 16>(130, 50, 3, 1), case_of<16, 128>(33, 257, 1, 2),
                       case_of<32, 64>(64, 128, 1, 1)};

class BlockListKernels : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    DenseRule::shape = GetParam().shape;
    DenseRule::pairs = any_pairs(GetParam().shape, 7);
  }
};

TEST_P(BlockListKernels, MakeTheListsOfATextAsTheHostDoesOfItsPairs) {
  const BlockMask expected = block_mask_from_dense(GetParam().shape, DenseRule::pairs);
  const BlockMask made = GetParam().make(GetParam().shape, false);
  EXPECT_EQ(made.row_begin, expected.row_begin);
  EXPECT_EQ(made.columns, expected.columns);
}

TEST_P(BlockListKernels, WriteTheBitsOfPartialBlocks) {
  const BlockMask expected = block_mask_from_dense(GetParam().shape, DenseRule::pairs);
  const BlockMask made = GetParam().make(GetParam().shape, true);
  validate(made);
  ASSERT_EQ(made.columns, expected.columns);
  const auto words = static_cast<std::size_t>(made.words_per_block());
  for (std::size_t e = 0; e < made.columns.size(); ++e) {
    ASSERT_EQ(made.bit_blocks[e] < 0, expected.bit_blocks[e] < 0) << e;
    if (made.bit_blocks[e] < 0) continue;
    const auto block = [&](const BlockMask& of) {
      const auto first = of.bits.begin() + static_cast<std::ptrdiff_t>(
                                               static_cast<std::size_t>(of.bit_blocks[e]) * words);
      return std::vector<std::uint32_t>(first, first + static_cast<std::ptrdiff_t>(words));
    };
    EXPECT_EQ(block(made), block(expected)) << "entry " << e;
  }
}

TEST_P(BlockListKernels, TurnListsOverAsTheHostDoes) {
  const BlockMask mask = block_mask_from_dense(GetParam().shape, DenseRule::pairs);
  const BlockMask made = transposed_by_kernels(mask), expected = transposed(mask);
  EXPECT_EQ(made.row_begin, expected.row_begin);
  EXPECT_EQ(made.columns, expected.columns);
  EXPECT_EQ(made.bit_blocks, expected.bit_blocks);
  EXPECT_EQ(made.bits, expected.bits);
}

TEST(BlockListsBegin, SumsMoreRowsThanABlockTakesAtOnce) {
  constexpr int kRows = 2 * BlockLists::kBeginThreads * BlockLists::kPerThread + 5;
  std::mt19937 random(3);
  std::vector<int> begin(kRows + 1, -1), partial_begin(kRows + 1, -1);
  std::vector<int> expected{0}, expected_partial{0};
  for (int row = 0; row < kRows; ++row) {
    begin[row] = static_cast<int>(random() % 200000);  // their sum needs all of 31 bits
    partial_begin[row] = static_cast<int>(random() % 200000);
    expected.push_back(expected.back() + begin[row]);
    expected_partial.push_back(expected_partial.back() + partial_begin[row]);
  }
  const BlockListsParams p{.states = nullptr,
                           .row_begin = begin.data(),
                           .partial_begin = partial_begin.data(),
                           .columns = nullptr,
                           .bit_blocks = nullptr,
                           .kv_blocks = 1,
                           .rows = kRows};
  test::run_on_host(1, BlockLists::kBeginThreads, [&] { BlockLists::begin(p); });
  EXPECT_EQ(begin, expected);
  EXPECT_EQ(partial_begin, expected_partial);
}

INSTANTIATE_TEST_SUITE_P(Shapes, BlockListKernels, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<Case>& info) {
                           const BlockMaskShape& shape = info.param.shape;
                           return "BlocksOf" + std::to_string(shape.block_q) + "x" +
                                  std::to_string(shape.block_kv);
                         });

}  // namespace
}  // namespace attnforge
