// host.cpp - what the logits of sinks add to a kernel.
#include <fmt/format.h>

#include <algorithm>

#include "attnforge/plan.h"
#include "templates/host/part.h"
#include "templates/parts/sinks/params.h"

namespace attnforge {
namespace {

void extend_by_sinks(KernelNames& names, const Problem&) {
  // A kernel with an Output of its own stores parts of rows, and is not where sinks are counted.
  const bool stores_parts = std::ranges::find(names.other_pieces, "Output", &Piece::name) !=
                            names.other_pieces.end();
  names.parts.push_back("parts/sinks/params.h");
  if (stores_parts) return;
  names.other_pieces.push_back(
      {"parts/sinks/output.cuh", "Output",
       fmt::format("SinkOutput<kDtype, kAlignment, kLse, {}>", names.params),
       "template <int kDtype, int kAlignment, bool kLse> "});
}

}  // namespace

const Part& sinks_part() {
  static constexpr Part kPart{
      .in = [](const Problem& p, bool) { return p.sinks; },
      .type = [](const Problem&,
                 std::string_view params) { return fmt::format("WithSinks<{}>", params); },
      .bytes = [](const Problem&) { return sizeof(SinkParams); },
      .add = [](Argument& argument, const Problem&,
                const TileWork&) { argument.part(SinkParams{}, AddressArgument{&Tensors::sinks}); },
      .extend = extend_by_sinks};
  return kPart;
}

}  // namespace attnforge
