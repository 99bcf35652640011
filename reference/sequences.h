// sequences.h - where the sequences of a problem lie and how long each is, whatever its lengths:
// one by one they are problems of fixed lengths.
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "attnforge/error.h"
#include "attnforge/host_tensors.h"
#include "attnforge/plan.h"
#include "attnforge/problem.h"
#include "reference/attention.h"
#include "reference/mask_rows.h"

namespace attnforge {

/// The sequences of a problem in one run. Of its tensors only the tables are read that say which
/// rows and keys there are, where the problem has some: in host memory, borrowed.
struct Sequences {
  Problem problem;
  Tensors tables{};
};
/// The sequences of tensors in host memory, or in memory that the host reads too.
Sequences sequences_of(const Problem& problem, const Tensors& tensors);
Sequences sequences_of(const Problem& problem, const HostTensors& host);

/// Throws Error(kInvalidArgument).
template <class... Values>
[[noreturn]] void refuse_input(fmt::format_string<Values...> format, Values&&... values) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format(format, std::forward<Values>(values)...));
}

/// Whether all are as long as the problem says.
bool all_full(const Problem& problem);

/// One sequence as a problem of its own, of batch 1 and fixed length.
Problem problem_of_sequence(const Sequences& sequences, std::int64_t index);

/// The block mask of all sequences, or none.
MaskRows mask_rows_of(const Sequences& sequences);

/// One sequence with its tensors, which begin where it does, and its block mask, which is in `mask`
/// alone. Keys that lie in pages are gathered, into `gathered`, which copies share.
struct Sequence {
  Problem problem;
  Tensors tensors;
  MaskRows mask{};
  std::shared_ptr<const std::vector<std::byte>> gathered{};
};
Sequence sequence_of(const Problem& problem, const Tensors& tensors, std::int64_t index);

/// Where a row lies in q, o and lse: in which batch, and how many rows from its beginning. Of a key
/// in k and v, which are not in pages, with the sequences transposed.
QueryRow place_of(const Sequences& sequences, const QueryRow& row);

/// Every row, in the order [sequence, num_heads_q, query].
std::vector<QueryRow> all_rows(const Sequences& sequences);

/// Queries of all sequences, of one head.
std::int64_t total_queries(const Sequences& sequences);

/// Keys of all sequences, of one head.
std::int64_t total_keys(const Sequences& sequences);

/// Queries and keys in one another's places: row j sees as queries what key j is seen by. For where
/// rows of keys lie and what they cost; its heads are those of k, with their groups' work each.
Sequences transposed(const Sequences& sequences);

/// Pairs of all heads that windows and the lists of a block mask let through, with the lengths that
/// there are: what a reference visits, whatever a mask text hides of it.
double visible_pairs(const Sequences& sequences);

/// flops_of_pairs() of them.
double flops(const Sequences& sequences);

/// Throws Error(kInvalidArgument), naming the sequence, unless the tables are as Tensors says.
/// Lists of masks are not looked at: their lengths are unknown here.
void check_sequences(const Sequences& sequences);
/// Checks the host's lengths alone, and their numbers: what all else that follows from them needs
/// first.
void check_lengths(const Problem& problem, const HostTensors& host);
/// Checks all of the host's tables.
void check_tables(const Problem& problem, const HostTensors& host);

/// What another kernel gave for `rows` as a Reference: o is [rows][head_dim_v], lse [rows] or
/// empty. For inputs whose elements are independent with mean 0 and variance 1: spread and
/// score_magnitude are typical ones of such inputs. `max_abs_v` is the caller's. Throws
/// Error(kInternal) for sizes that do not fit the rows.
Reference reference_from_outputs(const Sequences& sequences, std::span<const QueryRow> rows,
                                 std::span<const float> o, std::span<const float> lse,
                                 double max_abs_v);

/// Sets random lengths, for tuning and tests, the same on every machine: used ones between an
/// eighth and all rows, the first at least half; packed ones whose sum is the problem's tokens,
/// with many short sequences, few long ones and one of the longest there may be. Nothing for fixed
/// lengths.
void set_random_sequences(const Problem& problem, HostTensors& host, std::uint64_t seed);

/// Sets all tables that say which rows and keys there are at random.
void set_random_tables(const Problem& problem, HostTensors& host, std::uint64_t seed);

}  // namespace attnforge
