// bucket.h - problems that share a winner: batch and sequence lengths rounded to a grid.
#pragma once

#include <cstdint>

#include "attnforge/problem.h"

namespace attnforge {

/// The problem that is tuned in place of `problem`: lengths rounded up to 1, 2, 4, 8, 16, 64, 128,
/// then in steps of a quarter of the power of two below (160, 192, 224, 256, 320, ...), but the
/// keys of up to 16 queries to 256, 512 and 1024 first, as each step of decoding has one more;
/// batch up to a power of two or one and a half of it (1, 2, 3, 4, 6, 8, 12, ...); tokens of packed
/// sequences by how full they make batch * seqlen, up to a power of two; other fields as their rows
/// of the table say (ProblemField::round): what is read at run time alone to a usual value. A
/// config that is legal for the bucket is legal for all of it, but for batch_invariant problems:
/// those of every batch have one bucket, of a few sequences.
Problem bucket(const Problem& problem);

/// What bucket() makes of queries, of keys and of a batch that is not batch_invariant. A rounded
/// one stays as it is.
std::int64_t bucket_seqlen(std::int64_t seqlen);
std::int64_t bucket_keys(std::int64_t seqlen_q, std::int64_t seqlen_kv);
std::int64_t bucket_batch(std::int64_t batch);

/// Hash of every field, for maps keyed by Problem. No allocation.
struct ProblemHash {
  std::size_t operator()(const Problem& problem) const noexcept;
};

}  // namespace attnforge
