// key_jobs.h - fwd_wgmma_sm90a with a job on tiles of K and V that no problem has: rows of some
// keys are negated, as inputs can be, and then outputs are those of a kernel without it. In each
// kind of query tiles, walks and loads.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "attnforge/error.h"
#include "generator/candidates.h"
#include "generator/config.h"
#include "generator/source.h"
#include "templates/embedded.h"
#include "tests/support/host_problem.h"

namespace attnforge::test {

struct KeyJobCase {
  const char* name;
  const char* problem;
  int warpgroups, q_in_regs, q_stages, pingpong, grid;
  int pack_gqa = 1, own_lists = 0, num_splits = 1;
};

inline constexpr KeyJobCase kKeyJobCases[] = {
    {"Dense", "fwd bf16 batch=2 num_heads=4:2 seqlen=300:333 head_dim=128 lse", 2, 0, 1, 1, 0},
    {"OneTileInRegisters", "fwd fp16 batch=2 num_heads=4:1 seqlen=70:1 head_dim=72", 1, 1, 1, 0, 0},
    {"Joined", "fwd bf16 batch=9 num_heads=16:8 seqlen=700 head_dim=64 lse", 2, 0, 2, 1, 1},
    {"JoinedOfWindows", "fwd bf16 batch=9 num_heads=16 seqlen=700:650 head_dim=64 causal lse", 3, 0,
     2, 0, 2},
    {"NumbersTold", "fwd fp16 batch=9 num_heads=16:4 seqlen=700 head_dim=128 causal", 2, 1, 1, 1,
     2},
    {"NumbersCounted", "fwd fp16 batch=9 num_heads=16:4 seqlen=500 head_dim=128", 2, 1, 1, 0, 1},
    {"TilesLeftOut",
     "fwd bf16 batch=4 num_heads=16 seqlen=900:700 head_dim=64 window_left=90 window_right=20", 3,
     0, 1, 1, 2},
    {"PackedHeads", "fwd bf16 batch=3 num_heads=8:1 seqlen=20:500 head_dim=128 causal lse", 1, 0, 1,
     0, 0, 8},
    {"Splits", "fwd bf16 batch=2 num_heads=8:1 seqlen=3:3000 head_dim=128 lse", 1, 0, 1, 0, 0, 8, 0,
     7},
    {"SplitsByLength", "fwd bf16 batch=9 num_heads=8:1 seqlen=1:3000 head_dim=64 lengths=used", 1,
     0, 1, 0, 0, 8, 0, 5},
    {"UsedLengths",
     "fwd bf16 batch=7 num_heads=4:2 seqlen=300:500 head_dim=128 lengths=used causal", 2, 0, 1, 1,
     0},
    {"PackedLengthsJoined",
     "fwd fp16 batch=30 num_heads=16:8 seqlen=500 tokens=7000 head_dim=64 lengths=packed lse", 2, 0,
     2, 0, 2},
    {"Pages",
     "fwd bf16 batch=7 num_heads=4:2 seqlen=150:700 head_dim=128 lengths=used page_size=16", 2, 0,
     1, 1, 0},
    {"PagesJoined",
     "fwd bf16 batch=30 num_heads=16:4 seqlen=300:500 head_dim=64 lengths=used page_size=64 causal",
     2, 0, 2, 1, 2},
    {"PagesOfPackedQueries",
     "fwd fp16 batch=7 num_heads=8:2 seqlen=90:300 head_dim=128 lengths=packed page_size=24 lse", 1,
     0, 1, 0, 0, 4},
    {"Lists", "fwd bf16 batch=2 num_heads=16 seqlen=1500 head_dim=64 blocks=128 lse", 2, 1, 1, 0,
     2},
    {"ListsOfGroups", "fwd bf16 batch=2 num_heads=8:4 seqlen=700:900 head_dim=128 blocks=64:16", 2,
     0, 1, 1, 2},
    {"OwnLists", "fwd fp16 batch=1 num_heads=4 seqlen=700 head_dim=64 blocks=64:32 mask_bits", 1, 0,
     1, 0, 0, 1, 1},
    {"ListsOfText", "fwd bf16 batch=2 num_heads=4 seqlen=500 head_dim=64 mask=\"(q ^ k) % 3 != 0\"",
     2, 0, 1, 0, 0},
    {"ListsOfLengths",
     "fwd bf16 batch=5 num_heads=4:2 seqlen=300:600 head_dim=64 lengths=packed blocks=32 lse", 2, 0,
     1, 1, 2},
    {"ListsOfPages",
     "fwd bf16 batch=5 num_heads=8 seqlen=300:600 head_dim=64 lengths=used page_size=16 "
     "mask=\"k % 5 != 0\"",
     2, 0, 2, 0, 2},
};

inline Config config_of(const KeyJobCase& c) {
  return parse_config(
      fmt::format("fwd_wgmma_sm90a warpgroups={} block_n=64 k_stages=2 v_stages=2 q_in_regs={} "
                  "q_stages={} pingpong={} grid={} blocks_per_sm=1 swizzle=128 pack_gqa={} "
                  "head_group_mb=0 own_lists={} num_splits={}",
                  c.warpgroups, c.q_in_regs, c.q_stages, c.pingpong, c.grid, c.pack_gqa,
                  c.own_lists, c.num_splits));
}

/// The problem whose kernel has jobs: K and V are of another format than Q.
inline Problem with_jobs(Problem problem) {
  problem.dtype_k = problem.dtype_v = problem.dtype_q == DType::kFp16 ? DType::kBf16 : DType::kFp16;
  return problem;
}

inline bool is_negated(std::int64_t key, std::int64_t kv_head, std::int64_t sequence) {
  return (key + kv_head + sequence) % 2 != 0;
}

inline constexpr std::string_view kNegatedRows = R"(
/// See is_negated().
template <class Tile, int kChunks>
struct NegatedRows {
  const Tile tile;
  const int warp, warps;

  __device__ NegatedRows(const Tile& of_keys, int number, int count)
      : tile(of_keys), warp(number), warps(count) {}
  __device__ void run(u32 from, u32 to) const {
    for (int row = warp; row < kConfig.block_n; row += warps) {
      const u32 which = u32(tile.key(row) + tile.queries.kv_head() + tile.queries.batch);
      for (int i = thread_index() % 32; i < kChunks * kConfig.swizzle / 16; i += 32) {
        const u32 at = TmaRows<kConfig.swizzle, kConfig.kv_chunk_bytes()>::offset(row, i);
        u32 words[4];
        load_shared_16(words, from + at);
        for (u32& word : words) word ^= which % 2 * 0x80008000u;
        store_shared_16(to + at, words);
      }
    }
  }
};
)";

/// The kernel of with_jobs(problem). Its job's pieces stand where a part would put them.
inline Source source_with_jobs(const Family& family, const Config& config, const Problem& problem) {
  constexpr std::string_view kPieces = "struct Pieces : DenseTmaPieces<kConfig> {";
  Source source = family.render(config, with_jobs(problem));
  const std::size_t at = source.entry.find(kPieces);
  ATTNFORGE_ASSERT(at != std::string::npos, "the entry has its pieces");
  source.entry.insert(at + kPieces.size(),
                      "\n  template <class Tile> using KJob = NegatedRows<Tile, "
                      "kConfig.qk_chunks()>;\n  template <class Tile> using VJob = "
                      "NegatedRows<Tile, kConfig.v_chunks()>;\n");
  source.entry.insert(at, kNegatedRows);
  source.entry.insert(0, "#include \"hopper/workers.cuh\"\n#include \"tile/swizzle.cuh\"\n");
  flatten(source, embedded_headers());
  return source;
}

/// Negates these rows of K and V.
inline void negate_rows(HostProblem& host) {
  for (const PlacedTensor* tensor : {&host.k, &host.v}) {
    const std::int64_t columns = tensor == &host.k ? host.problem.head_dim
                                                   : host.problem.head_dim_v;
    std::byte* const begin = host.storages[static_cast<std::size_t>(tensor->storage)].data() +
                             tensor->offset_bytes;
    for (const SequenceRows& rows : host.rows_kv)
      for (std::int64_t row = 0; row < rows.count; ++row)
        for (std::int64_t head = 0; head < host.problem.num_heads_kv; ++head)
          for (std::int64_t column = 0; column < columns; ++column) {
            if (!is_negated(rows.first + row, head, rows.sequence)) continue;
            const std::int64_t element = rows.batch * tensor->strides.stride_batch +
                                         (rows.begin + row) * tensor->strides.stride_row +
                                         head * tensor->strides.stride_head + column;
            begin[element * 2 + 1] ^= std::byte{0x80};
          }
  }
}

}  // namespace attnforge::test
