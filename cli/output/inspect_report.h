// inspect_report.h - an Inspection for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "attnforge/inspect.h"
#include "cli/output/json.h"

namespace attnforge::cli {

struct InspectView {
  int candidates = -1;  // how many of the kept ones to list; 0: all, -1: as many as suit the view
  int listed(int usual) const { return candidates < 0 ? usual : candidates; }
  bool cuts = false;                    // list the cut ones one by one
  bool full = false;                    // configs as their whole text, not in words
  std::vector<std::string> sections{};  // of section_names(), in full; none: one screen of all
};

/// "problem", "gpu", ..., "all".
const std::vector<std::string>& section_names();

std::string report(const Inspection& inspection, const InspectView& view);
Json to_json(const Inspection& inspection, const InspectView& view);

}  // namespace attnforge::cli
