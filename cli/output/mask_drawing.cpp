#include "cli/output/mask_drawing.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "attnforge/printable.h"

namespace attnforge::cli {
namespace {

/// How many blocks are computed for each that is present where rows of blocks are merged into tiles
/// of block_m queries; "" where none is.
std::string merge_text(const BlockMask& mask, int block_m) {
  if (block_m <= mask.block_q || mask.columns.empty()) return "";
  return fmt::format(
      "merged to tiles of {} queries: {:.2f} blocks for each of them", block_m,
      static_cast<double>(merged_blocks(mask, block_m)) / static_cast<double>(mask.columns.size()));
}

/// Each line between bars.
std::string framed_drawing(const BlockMask& mask) {
  std::string drawing = to_text(mask), framed;
  for (std::size_t begin = 0; begin < drawing.size();) {
    const std::size_t end = drawing.find('\n', begin);
    framed += "  |" + drawing.substr(begin, end - begin) + "|\n";
    begin = end + 1;
  }
  return framed;
}

Json json_of(const BlockMask& blocks, bool sampled, const TileInfo& tiles) {
  const BlockCounts counts = count_blocks(blocks);
  Json json = ATTNFORGE_JSON(blocks, block_q, block_kv);
  json.update(ATTNFORGE_JSON(counts, blocks, full, partial));
  json.update({{"empty", counts.empty()},
               {"merged", merged_blocks(blocks, tiles.block_m)},
               {"sampled", sampled},
               {"text", counts_text(blocks, sampled)}});
  return json;
}

constexpr const char* kKey = "block_mask";

}  // namespace

std::optional<Drawing> text_drawing(const Problem& problem,
                                    std::span<const std::span<const std::byte>> arrays) {
  // It is drawn as the first sequence sees it.
  if (problem.mask.empty() || problem.batch == 0) return std::nullopt;
  TextBlocks found = text_blocks(problem, arrays);
  Drawing drawing{"Mask", std::nullopt, found.sampled, found.unknown};
  if (found.unknown.empty()) drawing.blocks = std::move(found.mask);
  return drawing;
}

std::string counts_text(const BlockMask& blocks, bool sampled) {
  const BlockCounts counts = count_blocks(blocks);
  return fmt::format("{:.3g}% of {} blocks of {} x {} are present: {} full, {} partial, {} empty{}",
                     100 * counts.density(), counts.blocks, blocks.block_q, blocks.block_kv,
                     counts.full, counts.partial, counts.empty(),
                     sampled ? ", as far as some pairs of each say" : "");
}

std::string drawing_text(const Drawing& drawing, const TileInfo& tiles) {
  if (!drawing.unknown.empty())
    return fmt::format("\n{}: not drawn, for {}\n", drawing.name, printable(drawing.unknown));
  if (!drawing.blocks) return "";
  const std::string merged = merge_text(*drawing.blocks, tiles.block_m);
  return fmt::format("\n{}: {}\n{}{}", drawing.name, counts_text(*drawing.blocks, drawing.sampled),
                     merged.empty() ? "" : "  " + merged + "\n", framed_drawing(*drawing.blocks));
}

void add_drawing(Json& json, const Drawing& drawing, const TileInfo& tiles) {
  if (drawing.blocks) json[kKey] = json_of(*drawing.blocks, drawing.sampled, tiles);
}

void add_picture(Json& json, const Drawing& drawing, const TileInfo& tiles) {
  json[kKey] = nullptr;
  if (!drawing.blocks) return;
  Json& picture = json[kKey];
  picture = json_of(*drawing.blocks, drawing.sampled, tiles);
  picture["merge"] = merge_text(*drawing.blocks, tiles.block_m);
  picture["svg"] = to_svg(*drawing.blocks);
}

}  // namespace attnforge::cli
