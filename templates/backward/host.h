// host.h - what backward families share on the host: the argument's own part, scratch, and
// the steps around a family's kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "attnforge/problem.h"
#include "generator/launch.h"
#include "generator/reason.h"
#include "templates/backward/params.h"
#include "templates/host/argument.h"
#include "templates/host/assembly.h"

namespace attnforge {

/// What a family's kernel asks of the steps around it.
struct BwdSteps {
  int block_m = 0;  // query rows of a tile: rows of the scratch are padded to whole ones
  int block_n = 0;  // keys of a block: what a block mask lets be seen is known by tiles of both
  // Floats of a row of dq_sums, from which bwd_dq writes dq after the kernel. 0: the kernel writes
  // dq itself.
  int dq_columns = 0;
  // The type in the generated source that says where an element of a tile of dq_sums lies, which
  // is block_m x dq_columns floats large: "MyDqTile<kConfig>" of the family's own headers; "": row
  // after row.
  std::string dq_tile{};
  // Counters per tile (at BwdWork::turns) of the blocks that have added to it. The first block
  // stores: where a tile's first counter is 0 after the kernel, the tile holds nothing and its dq
  // is 0. 0: no counters, dq_sums starts as zeros instead.
  int turns = 0;
  // Without turns: the query heads, from the first on, whose sums are zeros before the kernel,
  // which sets the others to zeros itself; 0: all.
  std::int64_t zero_heads = 0;
  std::int64_t counters = 0;  // ints that are zeros before the kernel, from BwdWork::counters on
  // Parts of the kernel that add to dq_sums of a K/V head's queries. Each then counts itself in
  // that head's int from BwdWork::added on, once all its sums can be seen, and the kernel's blocks
  // say when they start (start_next_grid): bwd_dq writes a head's dq as soon as all have. 0: none
  // does, and it waits for the kernel.
  int parts_of_head = 0;
  // Of packed sequences bwd_rows lists the key tiles (ListedKeyTile of backward/scratch.cuh), and
  // parts_of_head is of one of them.
  bool lists_key_tiles = false;
  // Blocks that share the query heads of each key tile, at most. With more than 1 the argument has
  // GroupSplitParams: the kernel writes parts of dk and dv (templates/parts/group_splits), or all
  // shares add to one.
  int group_splits = 1;
  bool adds_parts = false;
};

/// The query heads of a K/V head in `count` shares of `heads`, of which the last may have fewer.
struct GroupShares {
  int heads, count;

  /// At most `splits` shares, at least 1.
  static GroupShares of(const Problem& problem, int splits);
};

/// Bytes of the parts of dk, and of those of dv; 0 where blocks share no heads. Defined with the
/// part, as GroupShares::of().
struct GroupPartBytes {
  std::size_t dk, dv;

  static GroupPartBytes of(const Problem& problem, const BwdSteps& steps);
};

/// Where the parts of the scratch begin, in bytes from the start of the workspace.
struct BwdWork {
  BwdSteps steps{};
  std::size_t lse_log2 = 0, delta = 0, turns = 0, counters = 0, added = 0;
  std::size_t dkv_sums = 0;  // the part of dk and dv that shares add to, if they do
  std::size_t dq_sums = 0;
  std::size_t bytes = 0;  // of all; a family that needs more puts it after these
  int rows_padded = 0;    // of a head
};
/// Tiles that `rows`, all queries or all keys of a stored sequence, may fill: of packed ones the
/// numbers that backward/scratch.cuh gives them.
std::int64_t tiles_of_stored(const Problem& problem, std::int64_t rows, int rows_of_tile);

/// Blocks, one a head, that add up the gradient of its sink; 0 where heads have none.
std::int64_t sink_blocks(const Problem& problem);

/// `begin`: after the scratch of parts that comes before.
BwdWork bwd_work(const Problem& problem, const BwdSteps& steps, std::size_t begin = 0);
/// The work of a launch.
BwdWork bwd_work(const LaunchWork& work);

/// BwdParams: sizes and scale now, pointers and strides by each run.
Argument& add_bwd(Argument& argument, const Problem& problem);
/// kDlse: that of lse too.
template <bool kDlse>
void bind_gradients(GradientsParams& gradients, const Tensors& tensors, const RunMemory& memory);

/// BwdScratch as a member of an argument, pointers by each run.
void add_scratch(Argument& argument, const BwdWork& work);

// ---- Steps around a backward kernel, of this file and of parts ----

inline constexpr int kBwdStepThreads = 256;  // kThreads of each of them
/// So many blocks of a step.
LaunchStep bwd_step(const char* kernel, std::int64_t blocks);
/// Refuses problems of which the kernel's grid or that of a step before or after it has no number.
Reason too_many_bwd_blocks(const Problem& problem);
/// Whether there are queries at all.
bool has_rows(const Problem& problem);
/// BwdStepParams.
extern const StepArgument kBwdStepArgument;

/// About `wanted` heads, at least 1, so that the last group of them is as full as can be: its heavy
/// tiles start when all else is done.
int heads_of_group(double wanted, int heads);

/// In which order blocks take key tiles of block_n keys, as KeyTile reads it: K/V heads in groups
/// that share about head_group_mb MB of Q, dO and sums of dQ; 0: one head after another. The first
/// keys, which causal queries see most, come first. group_splits: a head is one of so many shares
/// of a K/V head's query heads.
TileOrder key_tile_order(const Problem& problem, int block_n, int head_group_mb,
                         int group_splits = 1);

/// What a product family's kernel of key tiles starts from. The second: its Queries where any tile
/// may hide keys from a row.
extern const BasePieces kBackwardPieces;
inline constexpr const char*
    kMaskedQueryWalk = "QueryWalk<kConfig.left_bound != 0, kConfig.right_bound != 0, true>";

/// Whether a step tells which query tiles a key tile goes through (parts/query_bits): under a block
/// mask, and by what windows leave of a mask's text. Not by a text where order is asked for, as a
/// key tile would wait for one that is left out, nor where tiles write an array's gradient, zeros
/// too. `shape` is the problem's. Defined with the part.
bool has_query_bits(const Shape& shape, const Problem& problem);

/// Registers that a kernel needs for derivatives of `scores` in addition to those of a dense Slope
/// or a soft cap's. Defined with the part that has some.
int slope_registers(const Problem& problem, int scores);
/// Registers of elements that are read for `scores`, where its text adds those of an aligned array
/// and does nothing else; 0: it is another text.
int added_row_registers(const Problem& problem, int scores);

/// What the steps take.
double bwd_steps_us(const Problem& problem, const BwdSteps& steps, const DeviceFacts& device);

}  // namespace attnforge
