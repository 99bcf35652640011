#include "cli/page_inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "attnforge/version.h"
#include "cli/inspect_report.h"
#include "cli/listing.h"
#include "cli/mask_files.h"
#include "cli/page.h"
#include "cli/roofs.h"

namespace attnforge::cli {
namespace {

Json to_json(const Listing& listing) {
  std::string text;
  Json origin = Json::array();
  for (const Listing::Line& line : listing.lines) {
    text += (text.empty() ? "" : "\n") + line.text;
    origin.push_back(line.origin);
  }
  return {{"text", text}, {"origin", origin}, {"origins", listing.origins}};
}

/// "smem 180224 > 101376" and "smem 196608 > 101376" are cuts of one kind.
std::string kind_of(const std::string& reason) {
  std::string kind;
  for (const char c : reason) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit) kind += c;
    if (digit && (kind.empty() || kind.back() != '#')) kind += '#';
  }
  return kind;
}

/// Of each kind of cut how many there are, and one of them; the most frequent first.
Json cut_kinds(const std::vector<CandidateInfo>& candidates) {
  struct Kind {
    int count = 0;
    const CandidateInfo* example = nullptr;
  };
  std::map<std::string, Kind> kinds;
  for (const CandidateInfo& each : candidates) {
    if (each.cut.empty()) continue;
    const std::string family = each.config.substr(0, each.config.find(' '));
    Kind& kind = kinds[family + " " + kind_of(each.cut)];
    if (kind.count++ == 0) kind.example = &each;
  }
  std::vector<Kind> sorted;
  for (const auto& [text, kind] : kinds) sorted.push_back(kind);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Kind& a, const Kind& b) { return a.count > b.count; });
  Json list = Json::array();
  for (const Kind& kind : sorted) {
    list.push_back(
        {{"count", kind.count}, {"reason", kind.example->cut}, {"config", kind.example->config}});
  }
  return list;
}

Json arch_limits(const Arch& arch) {
  return {{"smem_per_block_bytes", arch.smem_per_block_bytes},
          {"smem_per_sm_bytes", arch.smem_per_sm_bytes},
          {"registers_per_sm", arch.registers_per_sm},
          {"max_threads_per_sm", arch.max_threads_per_sm},
          {"max_blocks_per_sm", arch.max_blocks_per_sm}};
}

Json to_json(const std::vector<Roof>& roofs) {
  Json list = Json::array();
  for (const Roof& roof : roofs)
    list.push_back({{"name", roof.name}, {"tflops_per_s", roof.tflops_per_s}});
  return list;
}

Json listing_or_null(const Listing& listing) {
  return listing.lines.empty() ? Json(nullptr) : to_json(listing);
}

}  // namespace

InspectOptions page_options(InspectOptions options) {
  options.ptx = options.sass = options.compile;
  options.line_info = true;
  options.max_candidates = 0;
  return options;
}

Json mask_json(const BlockMask& mask, const TileInfo& tiles) {
  const BlockCounts counts = count_blocks(mask);
  return {{"block_q", mask.block_q},
          {"block_kv", mask.block_kv},
          {"blocks", counts.blocks},
          {"full", counts.full},
          {"partial", counts.partial},
          {"empty", counts.empty()},
          {"merged", merged_blocks(mask, tiles.block_m)},
          {"text", mask_text(mask)}};
}

Json inspect_page_data(const Inspection& inspection, const std::optional<BlockMask>& mask,
                       const std::string& made) {
  Inspection shown = inspection;  // the code is in listings
  shown.ptx.clear();
  shown.sass.clear();
  Json inspect = cli::to_json(shown, {.candidates = 0});
  Json block_mask = nullptr;
  if (mask) {
    block_mask = mask_json(*mask, inspection.tiles);
    block_mask["merge"] = merge_text(*mask, inspection.tiles.block_m);
    block_mask["svg"] = to_svg(*mask);
  }
  constexpr std::string_view kNone = "none: ";
  const bool disassembled = inspection.sass.compare(0, kNone.size(), kNone) != 0;
  const DeviceFacts& device = inspection.device;
  return {{"attnforge", kVersion},
          {"made", made},
          {"inspect", std::move(inspect)},
          {"cut_kinds", cut_kinds(inspection.candidates)},
          {"sass", listing_or_null(disassembled ? sass_listing(inspection.sass) : Listing{})},
          {"no_sass", disassembled ? "" : inspection.sass.substr(kNone.size())},
          {"ptx", listing_or_null(ptx_listing(inspection.ptx))},
          {"limits", arch_limits(device.arch)},
          {"roofs", to_json(roofs(device, inspection.problem.dtype_q))},
          {"memory_gb_per_s", memory_gb_per_s(device)},
          {"window",
           {{"left", effective_window(inspection.problem).left},
            {"right", effective_window(inspection.problem).right}}},
          {"block_mask", std::move(block_mask)},
          {"measured_flops", flops(inspection.measured_as)},
          {"measured_bytes", minimum_bytes(inspection.measured_as)}};
}

std::string inspect_page(const Inspection& inspection, const std::optional<BlockMask>& mask,
                         const std::string& made) {
  return page("inspect.html", to_string(inspection.problem) + " - attnforge",
              inspect_page_data(inspection, mask, made));
}

}  // namespace attnforge::cli
