// host_problem.h - tensors of a problem in host memory, laid out as unkindly as asked: gaps and
// surroundings hold NaN and infinities, so that a kernel that reads what it should not gives itself
// away.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "attnforge/plan.h"
#include "attnforge/problem.h"
#include "reference/attention.h"
#include "reference/parts/user_code.h"

namespace attnforge::test {

enum class Inputs {
  kNormal,            // N(0, 1)
  kStronglyNegative,  // all scores far below 0: a padded key that counts as score 0 would win
  kStronglyPositive,  // all scores far above 0: an exponential without the maximum overflows
  kLarge,             // N(0, 64): one key takes nearly all of a row
  kInfiniteKeys,      // every tenth key has a score of -inf
  kGrowingToFirst,    // scores grow by about 70 from the last key to the first: a maximum that is
                      // raised seldom must still be raised
  kGrowingToLast,     // and the other way round
  kEqualScores,       // k is 0: the output is the mean of the v that a row sees
  kOddSequencesNaN,   // v of every second sequence is NaN, and its neighbours' outputs must not be
};

/// Which blocks of a block mask are present. With mask_bits a third of them has bits; as many are
/// partial without.
enum class Blocks {
  kRandom,  // of the problem's density; some rows see nothing
  kNone,
  kSingle,     // one in the middle of each mask
  kOneHotRow,  // one row of blocks sees all, others their first block alone
  kCheckerboard,
  kAll,
};

/// Free space in the strides, in units of the problem's alignment; the layout is the problem's.
struct Gaps {
  int row = 0;         // after each row
  int head = 0;        // after each head of a row; bshd and packed_qkv only
  int rows_after = 0;  // whole rows after each sequence
};

/// An array in a storage: where it begins, and strides in elements.
struct PlacedTensor {
  int storage = 0;
  std::int64_t offset_bytes = 0;
  Tensor strides;
};

/// Rows of a sequence in a tensor, all or those of a page.
struct SequenceRows {
  std::int64_t batch = 0, begin = 0, count = 0;
  std::int64_t sequence = 0, first = 0;  // whose they are, and the first one's place there
};

/// Storages begin and end with 4 KiB that belong to no tensor. Every pointer is aligned to the
/// problem's alignment and to no more, those of rope's tables to 16. Whatever is no element of q, k
/// or v, and no row of the tables that the problem takes, is NaN or an infinity; all of o and lse
/// is NaN. With a rope, rope_offset is 5 more than it must be. With lengths, these have a full
/// sequence, an empty one and one of a single row, and of pages some that end around the end of a
/// page; rows that no sequence has are no elements. Pages lie anywhere in a pool that has more of
/// them; the table has -1 after a sequence's last page, and numbers of no page between its rows.
/// Lists of a block mask lie between integers that are not indexes. Sinks of neighbouring heads
/// differ: as large as a row's keys together, larger, smaller, none, all.
/// k and v of 8 and 4 bits have scales of their own wherever some share one; kTensor's are one.
/// What does not fit a scale is as large as it can be. Of a backward problem o and lse are inputs,
/// those of the forward's oracle, and with dout and dlse as unkind outside of their elements; dq,
/// dk, dv and dsinks are NaN, but with accumulate their elements are numbers. With gaps, no two of
/// these tensors have the same strides.
struct HostProblem {
  Problem problem;
  std::vector<std::vector<std::byte>> storages;
  std::vector<std::byte> poisoned_o, poisoned_lse;       // as o and lse were before anything ran
  std::vector<std::vector<std::byte>> gradients_before;  // the same of dq, dk, dv, dsinks
  PlacedTensor q, k, v, o, lse;
  PlacedTensor dout, dlse, dq, dk, dv, dsinks;             // the last without strides
  PlacedTensor rope_cos, rope_sin, lengths_q, lengths_kv;  // without strides
  PlacedTensor mask_row_begin, mask_columns, mask_bits, mask_bit_blocks;
  PlacedTensor sinks;
  PlacedTensor k_scale, v_scale, q_scale;
  PlacedTensor page_table;
  std::int64_t table_stride = 0, num_pages = 0;
  std::vector<SequenceRows> rows_q, rows_kv;  // of all sequences, or of all their pages

  /// In host memory, or in copies of the storages that begin at `bases`, which are aligned to 256.
  Tensors tensors();
  Tensors tensors(std::span<void* const> bases) const;

  /// Bytes of outputs that are no element of them and are not as they were: "" or where the first
  /// one is.
  std::string trespass() const;
  /// Makes outputs again what they were before anything ran.
  void poison_outputs();
};

/// Deterministic in `seed`.
HostProblem make_host_problem(const Problem& problem, unsigned seed,
                              Inputs inputs = Inputs::kNormal, const Gaps& gaps = {},
                              Blocks blocks = Blocks::kRandom);

/// Sets o and lse of a backward problem to those of the forward's oracle. For problems with code,
/// of which make_host_problem() leaves them NaN.
void set_forward_outputs(HostProblem& host, const CodeFunctions& code = {});

}  // namespace attnforge::test
