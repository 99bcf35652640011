// list.cpp - the list of parts, and sums over it.
#include "templates/host/part.h"

#include <algorithm>
#include <array>
#include <utility>

#include "attnforge/error.h"
#include "templates/host/tile_source.h"

namespace attnforge {

const Part& lengths_part();     // templates/host/tile_source
const Part& block_mask_part();  // templates/parts/block_mask/host
const Part& code_part();        // templates/parts/user_code/host
const Part& tile_lists_part();  // templates/parts/key_lists/host
const Part& sinks_part();       // templates/parts/sinks/host
const Part& pages_part();       // templates/parts/pages/host
const Part& rotation_part();    // templates/parts/rope/host

namespace {

const std::array<const Part*, kNumberOfParts>& parts() {
  static const std::array<const Part*, kNumberOfParts> kParts = {
      &lengths_part(), &block_mask_part(), &code_part(),    &tile_lists_part(),
      &sinks_part(),   &pages_part(),      &rotation_part()};
  return kParts;
}

PartsOfProblem parts_of(const Problem& problem, bool gathers) {
  PartsOfProblem found;
  for (const Part* part : parts()) {
    if (part->in(problem, gathers)) found.list[found.count++] = part;
  }
  return found;
}

}  // namespace

std::string argument_type(const Problem& problem, bool gathers, std::string_view params) {
  std::string type(params);
  for (const Part* part : parts_of(problem, gathers)) type = part->type(problem, type);
  return type;
}

std::string symbol_of_kernel(std::string symbol, const Problem& problem) {
  for (const Part* part : parts()) {
    if (part->suffix != nullptr) symbol += part->suffix(problem);
  }
  return symbol;
}

PartsOfProblem parts_of(const Problem& problem, const TileWork& work) {
  return parts_of(problem, work.lists.groups > 0);
}

std::size_t argument_bytes(const PartsOfProblem& parts, const Problem& problem, std::size_t size,
                           std::size_t alignment) {
  for (const Part* part : parts) {
    const std::size_t bytes = part->bytes(problem);
    ATTNFORGE_ASSERT(bytes % kPartAlignment == 0, "a part's end is where the next one may begin");
    size = aligned(size, kPartAlignment) + bytes;
    alignment = std::max(alignment, kPartAlignment);
  }
  return aligned(size, alignment);
}

KernelNames with_parts(KernelNames names, const Problem& problem, std::size_t size,
                       std::size_t alignment) {
  const PartsOfProblem parts = parts_of(problem, names.gathers);
  names.params_bytes = argument_bytes(parts, problem, size, alignment);
  names.params = argument_type(problem, names.gathers, names.params);
  for (const Part* part : parts) part->extend(names, problem);
  return names;
}

}  // namespace attnforge
