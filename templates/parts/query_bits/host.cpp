#include "templates/parts/query_bits/host.h"

#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <string>

#include "attnforge/error.h"
#include "generator/shape.h"
#include "generator/user_code/read_once.h"
#include "generator/user_code/user_code.h"
#include "templates/backward/host.h"
#include "templates/host/assembly.h"
#include "templates/host/fwd_params.h"
#include "templates/host/launch_work.h"

namespace attnforge {

extern const Part query_bits_part;

namespace {

/// What a mask's text names of a run.
struct Named {
  bool head, batch;
};
Named named_by(const std::string& mask) { return {names(mask, "head"), names(mask, "batch")}; }

/// Whether what the text says differs from head to head, from sequence to sequence.
bool text_differs_by_head(const Problem& problem) { return read_once<named_by>(problem.mask).head; }
bool text_differs_by_sequence(const Problem& problem) {
  return !has_fixed_lengths(problem) || read_once<named_by>(problem.mask).batch;
}

/// Whether the bits of tiles of a text take little memory, and so do those of all problems in its
/// bucket.
bool tile_bits_fit(const Problem& p) {
  constexpr double kMostBytes = double(1 << 28), kFewestRows = 32;
  constexpr std::int64_t kMostSeqlen = 1 << 24;
  if (p.seqlen_q > kMostSeqlen || p.seqlen_kv > kMostSeqlen) return false;
  const auto ceil = [](std::int64_t x) { return double(std::bit_ceil(std::uint64_t(x))); };
  const double lists = (text_differs_by_head(p) ? double(p.num_heads_q) : 1.0) *
                       (text_differs_by_sequence(p) ? ceil(p.batch) : 1.0);
  const double words = (ceil(p.seqlen_kv) / kFewestRows + 1) *
                       (ceil(p.seqlen_q) / kFewestRows / 32 + 1);
  return lists * words * 2 * sizeof(u32) <= kMostBytes;
}

QueryTileBits bits_of(const LaunchWork& work) {
  const BwdSteps& steps = *work.assembly.kernel.gradients;
  return query_tile_bits(work.problem(), work.assembly.shape, steps.block_m, steps.block_n);
}

/// Of the bits and, before them, those of a text's pairs.
std::size_t scratch_of(const LaunchWork& work) {
  const BwdSteps& steps = *work.assembly.kernel.gradients;
  const QueryTileBits bits = bits_of(work);
  const bool of_pairs = work.assembly.shape.text_bits != 0;
  return static_cast<std::size_t>(bits.bytes() +
                                  (of_pairs ? bits.pair_bytes(steps.block_m, steps.block_n) : 0));
}

/// How many pairs of words there are for a step to write.
std::int64_t words_of(const LaunchWork& work) {
  ATTNFORGE_ASSERT(
      bwd_work(work).lse_log2 == scratch_aligned(work.begin_of(query_bits_part) + scratch_of(work)),
      "kernels find the bits right before the rows' scratch (bits.cuh)");
  const QueryTileBits bits = bits_of(work);
  return has_rows(work.problem()) ? bits.lists() * bits.words : 0;
}

std::string tiles_of(const Assembly& a) {
  return fmt::format("{}, {}", a.kernel.gradients->block_m, a.kernel.gradients->block_n);
}

std::string masks_of_text(const Problem& problem) {
  return fmt::format("MasksOfText<{}, {}>", text_differs_by_head(problem),
                     text_differs_by_sequence(problem));
}

void fill_bits(Entry& entry, const Assembly& a) {
  PieceSet& pieces = entry.pieces;
  if (!has_block_mask(a.problem)) {
    pieces.wrap(Slot::kQueries,
                {fmt::format("ListedQueries<{{}}, {}, {}>", tiles_of(a), masks_of_text(a.problem)),
                 "parts/query_bits/queries.cuh"});
    // Without bits the text is asked in tiles that are masked.
    if (a.shape.text_bits)
      pieces.wrap(Slot::kMask,
                  {fmt::format("PairBitsMask<{}, {{}}, {}, {}>", pieces.dense(Slot::kMask),
                               masks_of_text(a.problem), tiles_of(a)),
                   "parts/query_bits/mask.cuh"});
    return;
  }
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
constexpr Step kBitsSteps[] = {
    {.kernel = kBitsKernel,
     .in = [](const Assembly& a) { return has_block_mask(a.problem); },
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
           return bwd_step(kBitsKernel, (words_of(work) + kWordsOfBlock - 1) / kWordsOfBlock);
         }},
    {.kernel = kBitsKernel,
     .in = [](const Assembly& a) { return !has_block_mask(a.problem); },
     .text =
         [](Entry& entry, const Assembly& a) {
           entry.pieces.include("parts/query_bits/step_text_bits.cuh");
           entry.pieces.include("parts/user_code/mask.cuh");
           return Step::Text{
               .threads = kBwdStepThreads,
               .type = fmt::format("TextTiles<Pieces::Lengths, UserRule<UserCode>, "
                                   "UserTerms<UserCode>, {}, {}, {}, kConfig.text_bits != 0>",
                                   entry.pieces.dense(Slot::kQueries), masks_of_text(a.problem),
                                   tiles_of(a))};
         },
     .launch =
         [](const LaunchWork& work) {
           constexpr int kTilesOfBlock = kBwdStepThreads / 32, kBlocksOfWord = 32 / kTilesOfBlock;
           return bwd_step(kBitsKernel, words_of(work) * kBlocksOfWord);
         }}};

}  // namespace

bool has_query_bits(const Shape& shape, const Problem& problem) {
  if (shape.has_block_mask()) return true;
  return shape.user_mask != 0 && shape.dargs != 2 && !problem.deterministic &&
         problem.lengths != Lengths::kPacked && tile_bits_fit(problem);
}

QueryTileBits query_tile_bits(const Problem& problem, const Shape& shape, int block_m,
                              int block_n) {
  if (!has_query_bits(shape, problem)) return {};
  ATTNFORGE_ASSERT(block_n > 0, "families with lists say how many keys a tile has");
  const bool blocks = shape.has_block_mask();
  const std::int64_t heads = blocks                          ? problem.mask_heads
                             : text_differs_by_head(problem) ? problem.num_heads_q
                                                             : 1,
                     batch = blocks                              ? problem.mask_batch
                             : text_differs_by_sequence(problem) ? problem.batch
                                                                 : 1;
  return QueryTileBits::of(static_cast<int>(heads), static_cast<int>(batch),
                           static_cast<int>(problem.seqlen_kv), block_n,
                           static_cast<int>(problem.seqlen_q), block_m);
}

constinit const Part query_bits_part{.name = "query_bits",
                                     .in =
                                         [](const Assembly& a) {
                                           return a.kernel.gradients != nullptr &&
                                                  has_query_bits(a.shape, a.problem);
                                         },
                                     .fill = fill_bits,
                                     .steps = kBitsSteps,
                                     .scratch = scratch_of};

}  // namespace attnforge
