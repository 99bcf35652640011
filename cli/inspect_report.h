// inspect_report.h - an Inspection for people and for programs.
#pragma once

#include <string>

#include "attnforge/inspect.h"
#include "cli/json.h"

namespace attnforge::cli {

struct InspectView {
  int candidates = 10;       // how many of the kept ones to list; 0: all
  bool cuts = false;         // list the cut ones one by one
  std::string not_compiled;  // why the compiler was not asked; "": it was
};

std::string report(const Inspection& inspection, const InspectView& view);
Json to_json(const Inspection& inspection, const InspectView& view);

}  // namespace attnforge::cli
