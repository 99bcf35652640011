#include "templates/host/assembly.h"

#include <algorithm>

#include "templates/host/launch_work.h"

namespace attnforge {
namespace {

constexpr BasePieces kNoPieces{};

/// Whether the argument of a step of this part, or of the kernel (null), has a member of `part`.
bool has_member(const Part& part, const Part* of_step) {
  return of_step == nullptr || part.steps_have_it || &part == of_step;
}

std::string type_of(const Assembly& assembly, const OwnParams& own, const Part* of_step) {
  std::string type(own.type);
  for (const Part* part : assembly.in_argument) {
    if (has_member(*part, of_step)) type = part->type(assembly, type);
  }
  return type;
}

std::size_t bytes_of(const Assembly& assembly, const OwnParams& own, const Part* of_step) {
  std::size_t size = own.bytes, alignment = own.alignment;
  for (const Part* part : assembly.in_argument) {
    if (!has_member(*part, of_step)) continue;
    const std::size_t bytes = part->bytes(assembly);
    ATTNFORGE_ASSERT(bytes % kPartAlignment == 0, "a part's end is where the next one may begin");
    size = aligned(size, kPartAlignment) + bytes;
    alignment = std::max(alignment, kPartAlignment);
  }
  return aligned(size, alignment);
}

}  // namespace

Assembly assemble(const Problem& problem, const Shape& shape, const KernelTraits& kernel) {
  Assembly assembly{.problem = problem, .shape = shape, .kernel = kernel};
  if (kernel.pieces == nullptr) return assembly;
  if (kernel.tiling.block_m != 0)
    assembly.tiles = tile_source(problem, assembly.gathers(), kernel.tiling);
  for (const Part* part : all_parts()) {
    if (part->in(assembly)) assembly.parts.push_back(part);
  }
  if (assembly.parts.count == 0) return assembly;
  for (const Part* part : argument_parts()) {
    if (std::ranges::find(assembly.parts, part) != assembly.parts.end())
      assembly.in_argument.push_back(part);
  }
  return assembly;
}

std::string symbol_of(const Assembly& assembly, std::string_view end) {
  std::string symbol = assembly.kernel.symbol;
  symbol += end;
  for (const Part* part : assembly.parts) {
    if (part->suffix != nullptr) symbol += part->suffix(assembly.problem);
  }
  return symbol;
}

std::string argument_type(const Assembly& assembly) {
  return type_of(assembly, assembly.kernel.params, nullptr);
}
std::size_t argument_bytes(const Assembly& assembly) {
  return bytes_of(assembly, assembly.kernel.params, nullptr);
}
std::string step_argument_type(const Assembly& assembly, const Part& part) {
  return type_of(assembly, assembly.kernel.step_argument->own, &part);
}
std::size_t step_argument_bytes(const Assembly& assembly, const Part& part) {
  return bytes_of(assembly, assembly.kernel.step_argument->own, &part);
}

Entry entry_of(const Assembly& assembly) {
  const KernelTraits& kernel = assembly.kernel;
  Entry entry{.pieces = PieceSet(kernel.pieces == nullptr ? kNoPieces : *kernel.pieces),
              .argument = argument_type(assembly),
              .declarations = kernel.declarations};
  for (const Part* part : assembly.parts) {
    entry.pieces.changed_by(part->name);
    if (part->fill != nullptr) part->fill(entry, assembly);
  }
  return entry;
}

Reason illegal_by_parts(const Shape& shape, const Problem& problem, const QueryTiling& tiling,
                        const DeviceFacts& device) {
  for (const Part* part : all_parts()) {
    if (part->illegal == nullptr) continue;
    if (Reason wrong = part->illegal(shape, problem, tiling, device)) return wrong;
  }
  return "";
}

Reason needless_by_parts(const Shape& shape, const Problem& problem, const QueryTiling& tiling,
                         const DeviceFacts& device) {
  for (const Part* part : all_parts()) {
    if (part->needless == nullptr) continue;
    if (Reason waste = part->needless(shape, problem, tiling, device)) return waste;
  }
  return "";
}

double part_steps_us(const Shape& shape, const Problem& problem, const QueryTiling& tiling,
                     const DeviceFacts& device) {
  double us = 0;
  for (const Part* part : all_parts()) {
    if (part->steps_us != nullptr) us += part->steps_us(shape, problem, tiling, device);
  }
  return us;
}

}  // namespace attnforge
