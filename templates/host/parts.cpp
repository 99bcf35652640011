// parts.cpp - the list of parts, and sums over it.
#include "templates/host/parts.h"

#include <algorithm>
#include <array>

#include "attnforge/error.h"

namespace attnforge {
namespace {

std::array<const Part*, 2> parts() { return {&lengths_part(), &code_part()}; }

std::size_t round_up(std::size_t size, std::size_t of) { return (size + of - 1) / of * of; }

}  // namespace

std::size_t argument_bytes(const Problem& problem, std::size_t size, std::size_t alignment) {
  for (const Part* part : parts()) {
    if (!part->in(problem)) continue;
    const std::size_t bytes = part->bytes(problem);
    ATTNFORGE_ASSERT(bytes % kPartAlignment == 0, "a part's end is where the next one may begin");
    size = round_up(size, kPartAlignment) + bytes;
    alignment = std::max(alignment, kPartAlignment);
  }
  return round_up(size, alignment);
}

void add_parts(Argument& argument, const Problem& problem, const TileWork& work) {
  for (const Part* part : parts()) {
    if (part->in(problem)) part->add(argument, problem, work);
  }
}

KernelNames with_parts(KernelNames names, const Problem& problem, std::size_t size,
                       std::size_t alignment) {
  names.params_bytes = argument_bytes(problem, size, alignment);
  for (const Part* part : parts()) {
    if (part->in(problem)) names.params = part->type(problem, names.params);
  }
  for (const Part* part : parts()) {
    if (part->in(problem)) part->extend(names, problem);
  }
  return names;
}

}  // namespace attnforge
