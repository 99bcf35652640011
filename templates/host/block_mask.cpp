#include "templates/host/block_mask.h"

#include <fmt/format.h>

#include <utility>

#include "attnforge/error.h"
#include "attnforge/plan.h"
#include "generator/shape.h"
#include "templates/host/parts.h"
#include "templates/host/query_tiles.h"

namespace attnforge {

BlockMaskParams block_mask_params(const Problem& problem) {
  BlockMaskParams params{};
  if (!has_block_mask(problem)) return params;
  params.mask_heads = static_cast<int>(problem.mask_heads);
  params.mask_batch = static_cast<int>(problem.mask_batch);
  params.q_blocks = static_cast<int>(mask_blocks(problem).q);
  return params;
}

void bind_block_mask(BlockMaskParams& mask, const Tensors& tensors, const RunMemory&) {
  mask.row_begin = tensors.block_mask.row_begin;
  mask.columns = tensors.block_mask.columns;
  mask.bits = tensors.block_mask.bits;
  mask.bit_blocks = tensors.block_mask.bit_blocks;
}

bool lists_query_tiles(const Problem& problem) { return has_block_mask(problem); }

QueryTileBits query_tile_bits(const Problem& problem, int block_m, int block_n) {
  if (!has_block_mask(problem)) return {};
  ATTNFORGE_ASSERT(block_n > 0, "families with blocks say how many keys one has");
  return QueryTileBits::of(
      static_cast<int>(problem.mask_heads), static_cast<int>(problem.mask_batch),
      static_cast<int>(problem.seqlen_kv), block_n, static_cast<int>(problem.seqlen_q), block_m);
}

std::string listed_queries(KernelNames& names, const Problem& problem, int block_m, int block_n) {
  if (!has_block_mask(problem)) return "";
  const auto replace = [&](std::string_view name, std::string_view header, std::string type) {
    std::erase_if(names.other_pieces, [&](const Piece& piece) { return piece.name == name; });
    names.other_pieces.push_back({header, name, std::move(type)});
  };
  const std::string tiles = fmt::format("{}, {}", block_m, block_n);
  const std::string of_dense = fmt::format("{}<kConfig>", names.pieces);
  std::string text = "NoBlockText";
  if (shape_of(problem).user_mask != 0) {
    names.parts.push_back("pieces/block_text.cuh");
    text = "BlockText<UserCode>";
  }
  replace("Queries", "pieces/listed_queries.cuh",
          fmt::format("ListedQueries<{}, {}>", kQueryWalk, tiles));
  replace("Walk", "pieces/masked_walk.cuh", fmt::format("MaskedWalk<{}::Walk>", of_dense));
  replace("Mask", "pieces/block_mask.cuh",
          fmt::format("BlockMask<{}, kConfig.mask_block_q, kConfig.mask_block_kv, "
                      "kConfig.mask_bits != 0, {}::Mask, {}>",
                      names.params, of_dense, text));
  names.parts.push_back("steps/bwd_tiles/kernel.cuh");
  return fmt::format("BwdTiles<{}, kConfig.mask_block_q, kConfig.mask_block_kv>", tiles);
}

const Part& block_mask_part() {
  static constexpr Part kPart{
      .in = [](const Problem& p, bool) { return has_block_mask(p); },
      .type = [](const Problem&,
                 std::string_view params) { return fmt::format("WithBlockMask<{}>", params); },
      .bytes = [](const Problem&) { return sizeof(BlockMaskParams); },
      .add = [](Argument& argument, const Problem& p,
                const TileWork&) { argument.own<bind_block_mask>(block_mask_params(p)); },
      .extend = [](KernelNames&, const Problem&) {}};
  return kPart;
}

}  // namespace attnforge
