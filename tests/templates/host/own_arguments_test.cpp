// own_arguments_test.cpp - what each part of a problem takes from a run goes to the members of its
// struct, and what the launch put there stays.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "attnforge/plan.h"
#include "generator/shape.h"
#include "templates/backward/host.h"
#include "templates/host/argument.h"
#include "templates/host/launch_work.h"
#include "templates/parts/block_mask/host.h"
#include "templates/parts/key_lists/host.h"
#include "templates/parts/lengths/host.h"
#include "templates/parts/pages/params.h"
#include "templates/parts/rope/host.h"
#include "templates/parts/user_code/host.h"

namespace attnforge {

extern const Part pages_part;  // templates/parts/pages/host

namespace {

void* address(std::uintptr_t value) { return reinterpret_cast<void*>(value); }

/// `planned` as a run leaves it, from a place that is not aligned.
template <class Params>
Params bound(const OwnArgument& own, const Params& planned, const Tensors& tensors,
             const RunMemory& memory = {}) {
  EXPECT_EQ(own.bytes, sizeof(Params));
  std::byte place[sizeof(Params) + 1];
  std::memcpy(place + 1, &planned, sizeof(Params));
  own.bind({place + 1, sizeof(Params)}, tensors, memory);
  Params params;
  std::memcpy(&params, place + 1, sizeof(Params));
  return params;
}

TEST(OwnArguments, RopesTablesComeWithTheRowsOfTheFirstQueryAndKey) {
  const float tables[2] = {};
  Tensors tensors;
  tensors.rope = {.cos = &tables[0], .sin = &tables[1], .rows = 1000, .offset = 100};
  RopeParams planned{};
  planned.q_offset = 20 - 8;
  const RopeParams rope = bound(own_argument<bind_rope>(), planned, tensors);
  EXPECT_EQ(rope.cos, &tables[0]);
  EXPECT_EQ(rope.sin, &tables[1]);
  EXPECT_EQ(rope.k_offset, 100);
  EXPECT_EQ(rope.q_offset, 100 + 20 - 8) << "the last query stands at the last key";
}

TEST(OwnArguments, APageTableIsThatOfTheRun) {
  const Problem problem = parse_problem("fwd bf16 lengths=used page_size=16");
  const Shape shape = shape_of(problem);
  const KernelTraits kernel{.params = {"Params", 16, 16}, .pieces = &kDensePieces};
  const Assembly assembly = assemble(problem, shape, kernel);
  LaunchStep step;
  Argument argument = Argument::of<PagesParams>(step);
  pages_part.add(argument, launch_work(assembly));
  const int table[6] = {};
  Tensors tensors;
  tensors.pages = {.table = table, .stride_batch = 3, .num_pages = 9};
  const PagesParams pages = bound(std::get<OwnArgument>(step.args.at(0).value), PagesParams{},
                                  tensors);
  EXPECT_EQ(pages.table, table);
  EXPECT_EQ(pages.stride_batch, 3);
  EXPECT_EQ(pages.num_pages, 9);
}

TEST(OwnArguments, LengthsComeWithTheTileQueueAtTheBeginningOfTheWorkspace) {
  LengthsParams planned{};
  planned.keys_per_group = 7;
  planned.most_tiles = 9;
  const int arrays[2] = {};
  Tensors tensors;
  tensors.lengths = {.q = &arrays[0], .kv = &arrays[1]};
  const LengthsParams lengths = bound(own_argument<bind_lengths>(), planned, tensors,
                                      {.workspace = address(0x10000)});
  EXPECT_EQ(lengths.q, &arrays[0]);
  EXPECT_EQ(lengths.kv, &arrays[1]);
  EXPECT_EQ(lengths.work, address(0x10000));
  EXPECT_EQ(lengths.keys_per_group, 7);
  EXPECT_EQ(lengths.most_tiles, 9);
}

TEST(OwnArguments, ListsOfABlockMaskAreThoseOfTheRun) {
  BlockMaskParams planned{};
  planned.mask_heads = 3;
  planned.mask_batch = 2;
  planned.q_blocks = 9;
  const int lists[3] = {};
  const std::uint32_t bits[1] = {};
  Tensors tensors;
  tensors.block_mask = {
      .row_begin = &lists[0], .columns = &lists[1], .bits = &bits[0], .bit_blocks = &lists[2]};
  const BlockMaskParams mask = bound(own_argument<bind_block_mask>(), planned, tensors);
  EXPECT_EQ(mask.row_begin, &lists[0]);
  EXPECT_EQ(mask.columns, &lists[1]);
  EXPECT_EQ(mask.bits, &bits[0]);
  EXPECT_EQ(mask.bit_blocks, &lists[2]);
  EXPECT_EQ(mask.mask_heads, 3);
  EXPECT_EQ(mask.mask_batch, 2);
  EXPECT_EQ(mask.q_blocks, 9);
}

TEST(OwnArguments, ListsOfTilesLieInTheWorkspace) {
  KeyListParams planned{};
  std::memset(&planned, 0, sizeof(planned));
  planned.groups = static_cast<decltype(planned.groups)>(address(0x100));
  planned.bits = static_cast<decltype(planned.bits)>(address(0x400));
  const KeyListParams lists = bound(own_argument<bind_key_lists>(), planned, {},
                                    {.workspace = address(0x10000)});
  EXPECT_EQ(lists.groups, address(0x10100));
  EXPECT_EQ(lists.bits, address(0x10400));
}

TEST(OwnArguments, ArgumentsOfCodeAreWordsOfTheRun) {
  Problem problem = parse_problem("fwd bf16 args=\"float* a, int b\" score=\"s + a[k] + b\"");
  struct Words {
    std::uint64_t word[2];
  };
  const std::uint64_t words[] = {0x123456789, 7, 9};
  Tensors tensors;
  tensors.code_arguments = words;
  const Words of_run = bound(code_argument(problem), Words{}, tensors);
  EXPECT_EQ(of_run.word[0], words[0]);
  EXPECT_EQ(of_run.word[1], words[1]);
  problem = parse_problem("fwd bf16 score=\"s + k\"");
  EXPECT_EQ(code_argument(problem).bytes, 0u);
  code_argument(problem).bind({}, {}, {});  // none is asked for, and none is there
}

TEST(OwnArguments, GradientsGoToTheirParamsAndDlseOnlyWhereTheProblemHasIt) {
  float memory[5];
  Tensors tensors;
  tensors.gradients = {.dout = {&memory[0], 1, 2, 3},
                       .dq = {&memory[1], 4, 5, 6},
                       .dk = {&memory[2], 7, 8, 9},
                       .dv = {&memory[3], 10, 11, 12},
                       .dlse = {&memory[4], 13, 14}};
  for (const bool dlse : {true, false}) {
    const GradientsParams gradients = bound(
        dlse ? own_argument<bind_gradients<true>>() : own_argument<bind_gradients<false>>(),
        GradientsParams{}, tensors);
    EXPECT_EQ(gradients.dout.data, &memory[0]);
    EXPECT_EQ(gradients.dout.stride_row, 2);
    EXPECT_EQ(gradients.dq.data, &memory[1]);
    EXPECT_EQ(gradients.dk.stride_head, 9);
    EXPECT_EQ(gradients.dv.stride_batch, 10);
    EXPECT_EQ(gradients.dlse, dlse ? &memory[4] : nullptr);
    EXPECT_EQ(gradients.dlse_stride_head, 14);
  }
}

}  // namespace
}  // namespace attnforge
