#include "cli/page/inspect.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "attnforge/version.h"
#include "cli/options/gpus.h"
#include "cli/output/inspect_report.h"
#include "cli/output/listing.h"
#include "cli/page/page.h"

namespace attnforge::cli {
namespace {

/// null: there is none.
Json listing_json(const Listing& listing) {
  if (listing.lines.empty()) return nullptr;
  std::string text;
  for (const Listing::Line& line : listing.lines) text += (text.empty() ? "" : "\n") + line.text;
  return {{"text", text},
          {"origin", json_list(listing.lines, [](const auto& line) { return line.origin; })},
          {"origins", listing.origins}};
}

/// Every config of the page in words: the one that is shown, then the kept candidates, the tries
/// and the examples of cuts, in the order of the page's data.
Json in_words(const Inspection& i) {
  Json words = Json::array({describe_config(i.config)});
  for (const CandidateInfo& each : i.candidates) words.push_back(describe_config(each.config));
  for (const Trial& each : i.measured) words.push_back(describe_config(each.config));
  for (const CutCount& each : i.cuts) words.push_back(describe_config(each.example.config));
  return words;
}

/// What times of the page are of: its problem as the model sees it, or what was measured.
Json timed_json(const Inspection& i) {
  const bool measured = !i.measured.empty();
  const Work& work = measured ? i.measured_work : i.work;
  return {{"flops", work.is_known() ? Json(work.flops) : Json(nullptr)},
          {"flops_unknown", work.unknown},
          {"bytes", minimum_bytes(measured ? i.measured_as : i.problem)}};
}

}  // namespace

InspectOptions page_options(InspectOptions options) {
  options.ptx = options.sass = options.compile;
  options.line_info = true;
  options.max_candidates = 0;
  options.cut_candidates = false;
  return options;
}

std::string inspect_page(const Inspection& inspection, const Drawing& drawing,
                         const std::string& made) {
  Inspection shown = inspection;  // the code is in listings
  shown.ptx.clear();
  shown.sass.clear();
  Json inspect = cli::to_json(shown, {.candidates = 0});
  constexpr std::string_view kNone = "none: ";
  const bool disassembled = !inspection.sass.starts_with(kNone);
  const DeviceFacts& device = inspection.device;
  Json data{{"attnforge", kVersion},
            {"made", made},
            {"inspect", std::move(inspect)},
            {"cut_kinds", json_list(inspection.cuts,
                                    [](const CutCount& cut) {
                                      return Json{{"count", cut.count},
                                                  {"reason", cut.example.cut},
                                                  {"config", cut.example.config}};
                                    })},
            {"words", in_words(inspection)},
            {"sass", listing_json(disassembled ? sass_listing(inspection.sass) : Listing{})},
            {"no_sass", disassembled ? "" : inspection.sass.substr(kNone.size())},
            {"ptx", listing_json(ptx_listing(inspection.ptx))},
            {"limits", ATTNFORGE_JSON(device.arch, smem_per_block_bytes, smem_per_sm_bytes,
                                      registers_per_sm, max_threads_per_sm, max_blocks_per_sm)},
            {"roofs",
             json_list(roofs(device, inspection.problem.dtype_q),
                       [](const Roof& roof) { return ATTNFORGE_JSON(roof, name, tflops_per_s); })},
            {"memory_gb_per_s", memory_gb_per_s(device)},
            {"timed", timed_json(inspection)}};
  add_picture(data, drawing, inspection.tiles);
  return page("inspect.html", to_string(inspection.problem) + " - attnforge", data);
}

}  // namespace attnforge::cli
