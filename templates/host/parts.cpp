// parts.cpp - the table of parts, and sums over it.
#include "templates/host/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "attnforge/error.h"
#include "generator/shape.h"
#include "generator/user_code.h"
#include "templates/host/block_mask.h"
#include "templates/host/tile_lists.h"
#include "templates/host/user_code.h"
#include "templates/host/work_list.h"
#include "templates/params_block_mask.h"
#include "templates/params_lengths.h"
#include "templates/params_tile_lists.h"

namespace attnforge {
namespace {

constexpr Part kParts[] = {
    // Lengths, and the list of query tiles that they and masks ask for.
    {.in =
         [](const Problem& p, bool gathers) {
           return p.lengths != Lengths::kFixed || (gathers && shape_of(p).has_tile_lists());
         },
     .type = [](const Problem&,
                std::string_view params) { return fmt::format("WithLengths<{}>", params); },
     .bytes = [](const Problem&) { return sizeof(LengthsParams); },
     .add = [](Argument& argument, const Problem&,
               const TileWork& work) { argument.part(lengths_params(work), LengthsArgument{}); },
     .extend =
         [](KernelNames& names, const Problem& p) {
           if (p.lengths == Lengths::kPacked)
             names.other_pieces.push_back(
                 {"pieces/packed_lengths.cuh", "Lengths", "PackedLengths"});
           if (p.lengths == Lengths::kUsed)
             names.other_pieces.push_back({"pieces/used_lengths.cuh", "Lengths", "UsedLengths"});
         }},
    {.in = [](const Problem& p, bool) { return has_block_mask(p); },
     .type = [](const Problem&,
                std::string_view params) { return fmt::format("WithBlockMask<{}>", params); },
     .bytes = [](const Problem&) { return sizeof(BlockMaskParams); },
     .add =
         [](Argument& argument, const Problem& p, const TileWork&) {
           argument.part(block_mask_params(p), BlockMaskArgument{});
         },
     .extend = [](KernelNames&, const Problem&) {}},
    {.in = [](const Problem& p, bool) { return has_code(p); },
     .type = code_params_type,
     .bytes = [](const Problem& p) { return code_words(p) * sizeof(std::uint64_t); },
     .add = add_code_params,
     .extend = extend_by_code},
    {.in = [](const Problem& p, bool gathers) { return gathers && shape_of(p).has_tile_lists(); },
     .type = [](const Problem&,
                std::string_view params) { return fmt::format("WithTileLists<{}>", params); },
     .bytes = [](const Problem&) { return sizeof(TileListParams); },
     .add =
         [](Argument& argument, const Problem&, const TileWork& work) {
           argument.part(tile_list_params(work.lists, work.lists_begin()), TileListsArgument{});
         },
     .extend = [](KernelNames&, const Problem&) {}},
};

std::size_t round_up(std::size_t size, std::size_t of) { return (size + of - 1) / of * of; }

std::size_t argument_bytes(const Problem& problem, bool gathers, std::size_t size,
                           std::size_t alignment) {
  for (const Part& part : kParts) {
    if (!part.in(problem, gathers)) continue;
    const std::size_t bytes = part.bytes(problem);
    ATTNFORGE_ASSERT(bytes % kPartAlignment == 0, "a part's end is where the next one may begin");
    size = round_up(size, kPartAlignment) + bytes;
    alignment = std::max(alignment, kPartAlignment);
  }
  return round_up(size, alignment);
}

}  // namespace

std::string argument_type(const Problem& problem, bool gathers, std::string_view params) {
  std::string type(params);
  for (const Part& part : kParts) {
    if (part.in(problem, gathers)) type = part.type(problem, type);
  }
  return type;
}

std::size_t argument_bytes(const Problem& problem, const TileWork& work, std::size_t size,
                           std::size_t alignment) {
  return argument_bytes(problem, work.lists.groups > 0, size, alignment);
}

void add_parts(Argument& argument, const Problem& problem, const TileWork& work) {
  const bool gathers = work.lists.groups > 0;
  for (const Part& part : kParts) {
    if (part.in(problem, gathers)) part.add(argument, problem, work);
  }
}

KernelNames with_parts(KernelNames names, const Problem& problem, std::size_t size,
                       std::size_t alignment) {
  names.params_bytes = argument_bytes(problem, names.gathers, size, alignment);
  names.params = argument_type(problem, names.gathers, names.params);
  for (const Part& part : kParts) {
    if (part.in(problem, names.gathers)) part.extend(names, problem);
  }
  return names;
}

}  // namespace attnforge
