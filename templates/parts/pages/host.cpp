// host.cpp - what a cache in pages adds to a kernel: the table of a run, and other Keys.
#include <fmt/format.h>

#include <vector>

#include "attnforge/plan.h"
#include "templates/host/part.h"
#include "templates/parts/pages/params.h"

namespace attnforge {
namespace {

void bind_pages(PagesParams& pages, const Tensors& tensors, const RunMemory&) {
  pages = {.table = tensors.pages.table,
           .stride_batch = tensors.pages.stride_batch,
           .num_pages = static_cast<int>(tensors.pages.num_pages),
           .unused = {}};
}

/// Kernels whose keys come by TMA start from pieces that say so. Keys in pages are asked for by
/// lists of tiles, too.
void extend_by_pages(KernelNames& names, const Problem&) {
  names.parts.push_back("parts/pages/params.h");
  std::erase_if(names.other_pieces, [](const Piece& piece) { return piece.name == "Keys"; });
  if (names.pieces_header == "hopper/dense_pieces.cuh") {
    names.other_pieces.push_back({"parts/pages/tma_keys.cuh", "Keys",
                                  fmt::format("PagedTmaKeys<kConfig, {}>", names.params)});
  } else {
    names.other_pieces.push_back(
        {"parts/pages/keys.cuh", "Keys",
         fmt::format("PagedKeys<kElementBytes, kConfig.page_size, {}>", names.params),
         "template <int kElementBytes> "});
  }
}

}  // namespace

const Part& pages_part() {
  static constexpr Part kPart{
      .in = [](const Problem& p, bool) { return has_pages(p); },
      .type = [](const Problem&,
                 std::string_view params) { return fmt::format("WithPages<{}>", params); },
      .bytes = [](const Problem&) { return sizeof(PagesParams); },
      .add = [](Argument& argument, const Problem&,
                const TileWork&) { argument.own<bind_pages>(PagesParams{}); },
      .extend = extend_by_pages};
  return kPart;
}

}  // namespace attnforge
