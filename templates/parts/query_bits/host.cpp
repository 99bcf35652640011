#include "templates/parts/query_bits/host.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "attnforge/error.h"
#include "generator/shape.h"

namespace attnforge {

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
    names.parts.push_back("parts/user_code/block_rule.cuh");
    text = "BlockText<UserCode>";
  }
  replace("Queries", "parts/query_bits/queries.cuh",
          fmt::format("ListedQueries<{}, {}>", kQueryWalk, tiles));
  replace("Walk", "pieces/masked_walk.cuh", fmt::format("MaskedWalk<{}::Walk>", of_dense));
  replace("Mask", "parts/block_mask/mask.cuh",
          fmt::format("BlockMask<{}, kConfig.mask_block_q, kConfig.mask_block_kv, "
                      "kConfig.mask_bits != 0, {}::Mask, {}>",
                      names.params, of_dense, text));
  names.parts.push_back("parts/query_bits/step_bits.cuh");
  return fmt::format("BwdTiles<{}, kConfig.mask_block_q, kConfig.mask_block_kv>", tiles);
}

}  // namespace attnforge
