// pages.cpp - what a cache in pages adds to a kernel's argument. Its Keys are the family's to name.
#include <fmt/format.h>

#include "templates/host/parts.h"
#include "templates/params_pages.h"

namespace attnforge {

const Part& pages_part() {
  static constexpr Part kPart{
      .in = [](const Problem& p, bool) { return has_pages(p); },
      .type = [](const Problem&,
                 std::string_view params) { return fmt::format("WithPages<{}>", params); },
      .bytes = [](const Problem&) { return sizeof(PagesParams); },
      .add = [](Argument& argument, const Problem&,
                const TileWork&) { argument.part(PagesParams{}, PagesArgument{}); },
      .extend = [](KernelNames& names,
                   const Problem&) { names.parts.push_back("params_pages.h"); }};
  return kPart;
}

}  // namespace attnforge
