#include "templates/parts/query_bits/host.h"

#include <fmt/format.h>

#include "attnforge/error.h"
#include "templates/backward/host.h"
#include "templates/host/assembly.h"
#include "templates/host/fwd_params.h"
#include "templates/host/launch_work.h"

namespace attnforge {

extern const Part query_bits_part;

namespace {

QueryTileBits bits_of(const LaunchWork& work) {
  const BwdSteps& steps = *work.assembly.kernel.gradients;
  return query_tile_bits(work.problem(), steps.block_m, steps.block_n);
}

std::string tiles_of(const Assembly& a) {
  return fmt::format("{}, {}", a.kernel.gradients->block_m, a.kernel.gradients->block_n);
}

void fill_bits(Entry& entry, const Assembly& a) {
  PieceSet& pieces = entry.pieces;
  pieces.wrap(Slot::kQueries, {fmt::format("ListedQueries<{{}}, {}>", tiles_of(a)),
                               "parts/query_bits/queries.cuh"});
  pieces.fill(Slot::kWalk,
              {fmt::format("MaskedWalk<{}>", pieces.dense(Slot::kWalk)), "pieces/masked_walk.cuh"});
  pieces.fill(Slot::kMask, {fmt::format("BlockMask<kConfig.mask_block_q, "
                                        "kConfig.mask_block_kv, kConfig.mask_bits != 0, {}, {}>",
                                        pieces.dense(Slot::kMask), pieces.type(Slot::kBlockRule)),
                            "parts/block_mask/mask.cuh"});
}

constexpr const char* kBitsKernel = "bwd_tiles";
constexpr Step kBitsStep{
    .kernel = kBitsKernel,
    .text =
        [](Entry& entry, const Assembly& a) {
          entry.pieces.include("parts/query_bits/step_bits.cuh");
          return Step::Text{.threads = kBwdStepThreads,
                            .type = fmt::format("BwdTiles<{}, kConfig.mask_block_q, "
                                                "kConfig.mask_block_kv>",
                                                tiles_of(a))};
        },
    .launch =
        [](const LaunchWork& work) {
          constexpr int kWordsOfBlock = kBwdStepThreads / 32;
          const QueryTileBits bits = bits_of(work);
          const auto bytes = static_cast<std::size_t>(bits.bytes());
          ATTNFORGE_ASSERT(
              bwd_work(work).lse_log2 == scratch_aligned(work.begin_of(query_bits_part) + bytes),
              "kernels find the bits right before the rows' scratch (bits.cuh)");
          const std::int64_t words = has_rows(work.problem()) ? bits.lists() * bits.words : 0;
          return bwd_step(kBitsKernel, (words + kWordsOfBlock - 1) / kWordsOfBlock);
        }};

}  // namespace

QueryTileBits query_tile_bits(const Problem& problem, int block_m, int block_n) {
  if (!has_block_mask(problem)) return {};
  ATTNFORGE_ASSERT(block_n > 0, "families with blocks say how many keys one has");
  return QueryTileBits::of(
      static_cast<int>(problem.mask_heads), static_cast<int>(problem.mask_batch),
      static_cast<int>(problem.seqlen_kv), block_n, static_cast<int>(problem.seqlen_q), block_m);
}

constinit const Part query_bits_part{
    .name = "query_bits",
    .in =
        [](const Assembly& a) {
          return a.kernel.gradients != nullptr && has_block_mask(a.problem);
        },
    .fill = fill_bits,
    .steps = {&kBitsStep, 1},
    .scratch =
        [](const LaunchWork& work) { return static_cast<std::size_t>(bits_of(work).bytes()); }};

}  // namespace attnforge
