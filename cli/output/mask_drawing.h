// mask_drawing.h - what attnforge inspect draws of a problem: which blocks of queries and keys are
// seen.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "attnforge/block_mask.h"
#include "attnforge/inspect.h"
#include "cli/output/json.h"

namespace attnforge::cli {

struct Drawing {
  std::string name{};                 // "Block mask"
  std::optional<BlockMask> blocks{};  // none: nothing to be seen
  bool sampled = false;               // TextBlocks::sampled
  std::string unknown{};              // why there is nothing; "": nothing is wanted
};

/// The blocks of the problem's mask text, whose arrays are these as far as they are known; no
/// drawing without a text, or of a batch of none.
std::optional<Drawing> text_drawing(const Problem& problem,
                                    std::span<const std::span<const std::byte>> arrays);

/// "12.5% of 4096 blocks of 64 x 64 are present: 400 full, 112 partial, 3584 empty".
std::string counts_text(const BlockMask& blocks, bool sampled = false);

/// For terminals, whole lines; "" where nothing is wanted.
std::string drawing_text(const Drawing& drawing, const TileInfo& tiles);

/// What --json says of one, as "block_mask": its counts, and "merged", merged_blocks() of the
/// config's tiles. Nothing where there are no blocks.
void add_drawing(Json& json, const Drawing& drawing, const TileInfo& tiles);
/// Adds the drawing for a page, with the picture and a text about tiles; null without blocks.
void add_picture(Json& json, const Drawing& drawing, const TileInfo& tiles);

}  // namespace attnforge::cli
