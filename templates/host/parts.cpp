// parts.cpp - the table of parts, and sums over it.
#include "templates/host/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "attnforge/error.h"
#include "templates/host/block_mask.h"
#include "templates/host/work_list.h"
#include "templates/params_lengths.h"

namespace attnforge {
namespace {

constexpr Part kParts[] = {
    {.in = [](const Problem& p) { return p.lengths != Lengths::kFixed; },
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
           else
             names.other_pieces.push_back({"pieces/used_lengths.cuh", "Lengths", "UsedLengths"});
         }},
    {.in = has_block_mask,
     .type = [](const Problem&,
                std::string_view params) { return fmt::format("WithBlockMask<{}>", params); },
     .bytes = [](const Problem&) { return sizeof(BlockMaskParams); },
     .add = [](Argument& argument, const Problem& p,
               const TileWork&) { argument.part(block_mask_params(p), BlockMaskArgument{}); },
     .extend = [](KernelNames&, const Problem&) {}},
};

std::size_t round_up(std::size_t size, std::size_t of) { return (size + of - 1) / of * of; }

}  // namespace

std::size_t argument_bytes(const Problem& problem, std::size_t size, std::size_t alignment) {
  for (const Part& part : kParts) {
    if (!part.in(problem)) continue;
    const std::size_t bytes = part.bytes(problem);
    ATTNFORGE_ASSERT(bytes % kPartAlignment == 0, "a part's end is where the next one may begin");
    size = round_up(size, kPartAlignment) + bytes;
    alignment = std::max(alignment, kPartAlignment);
  }
  return round_up(size, alignment);
}

void add_parts(Argument& argument, const Problem& problem, const TileWork& work) {
  for (const Part& part : kParts) {
    if (part.in(problem)) part.add(argument, problem, work);
  }
}

KernelNames with_parts(KernelNames names, const Problem& problem, std::size_t size,
                       std::size_t alignment) {
  names.params_bytes = argument_bytes(problem, size, alignment);
  for (const Part& part : kParts) {
    if (part.in(problem)) names.params = part.type(problem, names.params);
  }
  for (const Part& part : kParts) {
    if (part.in(problem)) part.extend(names, problem);
  }
  return names;
}

}  // namespace attnforge
