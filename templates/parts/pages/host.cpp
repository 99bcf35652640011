// host.cpp - what a cache in pages adds to a kernel: the table of a run, and other Keys.
#include "templates/parts/pages/host.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>
#include <variant>

#include "attnforge/plan.h"
#include "templates/host/assembly.h"
#include "templates/parts/pages/params.h"

namespace attnforge {

extern const Part pages_part;

namespace {

void bind_pages(PagesParams& pages, const Tensors& tensors, const RunMemory&) {
  pages = {.table = tensors.pages.table,
           .stride_batch = tensors.pages.stride_batch,
           .num_pages = static_cast<int>(tensors.pages.num_pages),
           .unused = {}};
}

/// Lists of tiles read keys in pages, too.
void fill_keys(Entry& entry, const Assembly& a) {
  entry.pieces.include("parts/pages/params.h");
  Piece keys;
  if (a.kernel.pieces->tma)
    keys = {"PagedTmaKeys<kConfig>", "parts/pages/tma_keys.cuh"};
  else
    keys = {"PagedKeys<kDtype, kConfig.page_size>", "parts/pages/keys.cuh",
            "template <int kDtype> "};
  if (entry.pieces.is_dense(Slot::kKeys))
    entry.pieces.fill(Slot::kKeys, std::move(keys));
  else
    entry.pieces.replace(Slot::kKeys, std::move(keys));
}

template <class Planned>
void plan(LaunchStep& step, std::size_t offset, const Planned& planned) {
  std::memcpy(step.params.data() + offset, &planned, sizeof(planned));
}

}  // namespace

void read_own_pages(LaunchStep& step, const OwnPages& pages) {
  for (ArgumentField& field : step.args) {
    if (auto* const map = std::get_if<TensorMapSpec>(&field.value); map && map->batch_of_run) {
      map->batch_of_run = false;
      plan(step, field.offset + offsetof(TensorMapSizes, batch), pages.count);
    }
    const auto* const own = std::get_if<OwnArgument>(&field.value);
    if (own == nullptr || *own != own_argument<bind_pages>()) continue;
    plan(step, field.offset,
         PagesParams{.table = nullptr,
                     .stride_batch = pages.of_sequence,
                     .num_pages = static_cast<int>(pages.count),
                     .unused = {}});
    field = {field.offset + offsetof(PagesParams, table), ScratchArgument{}};
    plan(step, field.offset, pages.table);
  }
}

constinit const Part pages_part{
    .name = "pages",
    .in = [](const Assembly& a) { return has_pages(a.problem); },
    .type = [](const Assembly&,
               std::string_view params) { return fmt::format("WithPages<{}>", params); },
    .bytes = [](const Assembly&) { return sizeof(PagesParams); },
    .add = [](Argument& argument, const LaunchWork&) { argument.own<bind_pages>(PagesParams{}); },
    .fill = fill_keys};

}  // namespace attnforge
