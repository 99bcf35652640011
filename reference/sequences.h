// sequences.h - where the sequences of a problem lie and how long each is, whatever its lengths:
// one by one they are problems of fixed lengths.
#pragma once

#include <cstdint>
#include <vector>

#include "attnforge/host_tensors.h"
#include "attnforge/plan.h"
#include "attnforge/problem.h"
#include "reference/attention.h"

namespace attnforge {

/// One sequence as a problem of its own, of batch 1. Arrays of lengths are in host memory.
Problem problem_of_sequence(const Problem& problem, const LengthArrays& lengths,
                            std::int64_t sequence);

/// The same with its tensors, which begin where the sequence does.
struct Sequence {
  Problem problem;
  Tensors tensors;
};
Sequence sequence_of(const Problem& problem, const Tensors& tensors, std::int64_t sequence);

/// Where a row lies in q, o and lse: in which batch, and how many rows from its beginning.
QueryRow place_of(const Problem& problem, const LengthArrays& lengths, const QueryRow& row);

/// Every row, in the order [sequence, num_heads_q, query].
std::vector<QueryRow> all_rows(const Problem& problem, const LengthArrays& lengths = {});

/// Queries of all sequences, of one head.
std::int64_t total_queries(const Problem& problem, const LengthArrays& lengths);

/// Floating point operations of flops(), with the lengths that there are.
double flops(const Problem& problem, const LengthArrays& lengths);

/// Throws Error(kInvalidArgument), naming the sequence, unless the arrays are as LengthArrays says.
/// Nothing to check for fixed lengths.
void check_lengths(const Problem& problem, const LengthArrays& lengths);

/// Arrays of a problem's lengths for tuning and tests, the same on every machine: used ones between
/// half and all rows; packed ones whose sum is the problem's tokens, with many short sequences, few
/// long ones and one of the longest there may be. Empty for fixed lengths.
struct HostLengths {
  std::vector<int> q, kv;
  LengthArrays arrays() const { return {.q = q.data(), .kv = kv.data()}; }
};
HostLengths random_lengths(const Problem& problem, std::uint64_t seed);
/// The same among the host's tensors.
void set_random_lengths(const Problem& problem, HostTensors& host, std::uint64_t seed);

}  // namespace attnforge
