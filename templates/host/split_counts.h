// split_counts.h - how many blocks may share the keys of a query tile, and what that costs.
#pragma once

#include <cstdint>

#include "attnforge/problem.h"
#include "generator/arch.h"
#include "generator/family.h"
#include "generator/reason.h"
#include "generator/shape.h"
#include "templates/host/tile_order.h"

namespace attnforge {

inline constexpr int kMostSplits = 256;
/// Sequences whose splits the blocks of a grid share out by themselves.
inline constexpr int kMostSequencesOfSplits = 256;
/// Keys of all of them: key tiles are counted in 32 bits.
inline constexpr std::int64_t kMostKeysOfSplits = 1 << 30;

/// Of shared memory, at most, that blocks take for splits beside a config's own: which one a block
/// has, and of sequences whose lengths only the device knows, or of shares, the key tiles of each.
int split_smem_bytes(const Shape& shape, bool shares);

/// Whether sequences of few rows may differ in length, so that splits that follow the lengths pay
/// where equal ones need none.
bool has_unequal_sequences(const Problem& problem);
/// The same of what a config's Shape and typical_problem() know.
bool has_unequal_sequences(const Shape& shape, const Problem& typical);

/// Blocks that the GPU runs at once.
double places_of(const QueryTiling& tiling, const DeviceFacts& device);

/// Splits that each of equal sequences has, at most `most`, where blocks find their parts by
/// lengths that only the device knows: so many that the last round of blocks is about full.
/// `tiles`: query tiles of all; places: places_of().
int splits_of_equal(double tiles, int most, double places);

/// Family::spread() of kernels with such query tiles: what smaller batches and lengths of a bucket
/// leave empty. 1 of shares, which leave nothing.
double spread_of(const Problem& problem, const QueryTiling& tiling, const DeviceFacts& device);

/// How many splits the launch of a problem has whose bucket was measured with those of `tiling`. Of
/// few rows, for a smaller batch whose blocks leave places empty: as many blocks in all as there,
/// within the key tiles. Of many rows, where the bucket has more query tiles: what fills whole
/// waves of blocks. Not of packed sequences.
int splits_of_launch(const Problem& problem, const QueryTiling& tiling, const DeviceFacts& device);

/// Rows of partial results that a launch with the splits of `tiling`, which are splits_of_launch(),
/// has room for: no fewer than any problem of fewer rows and keys needs.
std::int64_t most_partial_rows(const Problem& problem, const QueryTiling& tiling,
                               const DeviceFacts& device);

/// Results of a query tile, on the average, that persistent blocks with shares leave.
int results_of_shares(const Problem& problem, const QueryTiling& tiling, const DeviceFacts& device);

/// Blocks of a team of these (parts/splits/by_share.cuh): a number that divides the heads, and
/// leaves few SMs idle. Rows that are no multiples of 64 bytes have pieces of the memory in common
/// with those of the next head, which come once where a team asks for both: its heads are many
/// then.
int team_of_shares(const Problem& problem, const QueryTiling& tiling, const DeviceFacts& device);

/// Whether persistent blocks with shares store the rows of the query tiles that they do not cut: of
/// more rows than a warpgroup has, where partial results and the step that merges them take long.
bool finishes_tiles(const QueryTiling& tiling);

/// Illegal, and needless, where persistent blocks have shares of all key tiles.
Reason wrong_shares(const Problem& problem);
Reason needless_shares(const Problem& problem, const QueryTiling& tiling,
                       const DeviceFacts& device);

/// Rows of all heads, which have partial results each.
std::int64_t partial_rows(const Problem& problem);
/// Bytes of a partial result of a row: its o and its lse.
std::int64_t partial_row_bytes(const Problem& problem);
/// Bytes of the partial results in the workspace.
std::int64_t partial_bytes(const Problem& problem, int splits);

/// Illegal: partial results that the GPU's memory does not hold.
Reason wrong_splits(const Problem& problem, int splits, const DeviceFacts& device);
/// Needless: splits of the keys that are more than there are key tiles or than fill the GPU twice,
/// that a grid fills it without, or that take a large workspace. unequal: has_unequal_sequences().
Reason needless_splits(const Problem& problem, const QueryTiling& tiling, const DeviceFacts& device,
                       bool unequal);

/// Powers of two, and what fills the GPU with one, two or four blocks per SM, from what makes half
/// of the SMs busy on, or leaves a split 256 keys; only where query tiles leave SMs idle and keys
/// are many, or sequences are unequal. Of batch_invariant problems no fewer than a sequence that is
/// alone wants, within what merging may cost in a large batch.
Axis splits_axis(const Problem& problem, const DeviceFacts& device);

/// How many times as long unequal sequences take as equal ones, for what they leave idle at the end
/// of so many rounds of query tiles.
double unequal_factor(const Shape& shape, const Problem& typical, int splits, double rounds);

/// What the step takes that merges as many results of every row, or what shares leave.
double combine_us(const Problem& problem, int splits, const DeviceFacts& device);
double combine_shares_us(const Problem& problem, const QueryTiling& tiling,
                         const DeviceFacts& device);

}  // namespace attnforge
