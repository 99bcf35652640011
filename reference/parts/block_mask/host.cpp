// host.cpp - block masks among the tensors of a problem in host memory.
#include <algorithm>

#include "attnforge/block_mask.h"
#include "reference/parts/block_mask/builder.h"
#include "reference/sequences.h"

namespace attnforge {

void set_block_mask(const Problem& problem, HostTensors& host, const BlockMask& mask) {
  const BlockMaskShape shape = block_mask_shape(problem);
  if (shape != static_cast<const BlockMaskShape&>(mask) ||
      (!mask.bits.empty() && !problem.mask_bits)) {
    refuse_mask("its blocks of {}x{} over {}x{}, heads={} batch={}{} are not those of \"{}\"",
                mask.block_q, mask.block_kv, mask.seqlen_q, mask.seqlen_kv, mask.heads, mask.batch,
                mask.bits.empty() ? "" : " with bits", to_string(problem));
  }
  validate(mask);
  host.mask_row_begin = mask.row_begin;
  host.mask_columns = mask.columns;
  host.mask_columns.resize(std::max<std::size_t>(1, mask.columns.size()));
  host.mask_bits.clear();
  host.mask_bit_blocks.clear();
  if (!problem.mask_bits) return;
  host.mask_bits = mask.bits;
  if (mask.bits.empty()) host.mask_bits.resize(static_cast<std::size_t>(shape.words_per_block()));
  host.mask_bit_blocks = mask.bit_blocks;
  host.mask_bit_blocks.resize(host.mask_columns.size(), -1);
}

BlockMask block_mask_of(const Problem& problem, const HostTensors& host) {
  BlockMask mask{block_mask_shape(problem), host.mask_row_begin, host.mask_columns, {}, {}};
  const int entries = mask.row_begin.empty() ? 0 : mask.row_begin.back();
  const auto count = static_cast<std::size_t>(std::max(0, entries));
  // Lists may be longer than they need be.
  if (count < mask.columns.size()) mask.columns.resize(count);
  if (problem.mask_bits) {
    mask.bits = host.mask_bits;
    mask.bit_blocks = host.mask_bit_blocks;
    if (count < mask.bit_blocks.size()) mask.bit_blocks.resize(count);
  }
  validate(mask);
  return mask;
}

double flops(const Problem& problem, const BlockMask& mask) {
  return flops(Sequences{with_block_mask(problem, mask), {.block_mask = block_mask_ref(mask)}});
}

void set_random_block_mask(const Problem& problem, HostTensors& host, std::uint64_t seed) {
  if (!has_block_mask(problem)) return;
  constexpr double kPartial = 0.125;
  set_block_mask(problem, host,
                 random_block_mask(block_mask_shape(problem),
                                   {.density = effective_density(problem),
                                    .seed = seed,
                                    .partial = problem.mask_bits ? kPartial : 0.0}));
}

}  // namespace attnforge
