// host_tensors.h - the tensors of a problem in host memory, contiguous in the problem's layout: for
// programs that bring their own data, and for checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "attnforge/problem.h"

namespace attnforge {

struct Tensors;  // attnforge/plan.h

/// Contiguous tensors, laid out as contiguous_tensors(problem) says, in the problem's dtypes.
struct HostTensors {
  std::vector<std::byte> q, k, v;  // kPackedQkv: q holds all three, k and v are empty
  std::vector<std::byte>
      o;  // [batch, seqlen_q, num_heads_q, head_dim_v], or by heads first for kBhsd
  // [batch, num_heads_q, seqlen_q] if problem.lse, or of a backward problem, else empty
  std::vector<float> lse{};
  // [rows, rope_dim / 2] with problem.rope, else empty; as many rows as Tensors::rope_rows asks
  // for.
  std::vector<float> rope_cos{}, rope_sin{};
  std::int64_t rope_offset = 0;
  // With problem.lengths, else empty: LengthArrays::q and kv.
  std::vector<int> lengths_q{}, lengths_kv{};
  // With a block mask, else empty: BlockMaskRef's lists. The last three have one element or block
  // at least.
  std::vector<int> mask_row_begin{}, mask_columns{}, mask_bit_blocks{};
  std::vector<std::uint32_t> mask_bits{};
  // With problem.args, else empty: all arrays, each from a multiple of 256 bytes on, and for each
  // argument 8 bytes: where its array begins there, or the number.
  std::vector<std::byte> code_arrays{};
  std::vector<std::uint64_t> code_words{};
  // With problem.page_size, else empty: [batch, pages_of_sequence(problem)], which pages of k and
  // v, that hold any equal number of them, the sequences have; -1: none.
  std::vector<int> page_table{};
  std::vector<float> sinks{};  // [num_heads_q] with problem.sinks, else empty
  // Gradients of a backward problem, else empty; each lies as the tensor that it is the gradient
  // of. dlse needs problem.dlse, dsinks problem.sinks.
  std::vector<std::byte> dout{}, dq{}, dk{}, dv{};
  std::vector<float> dlse{}, dsinks{};
  // With problem.dargs, else empty: what a run adds to, for each of the arrays in their order, each
  // from a multiple of 64 elements on.
  std::vector<float> dargs{};
  // Of a merge, else empty: o and lse of all parts, one after another.
  std::vector<std::byte> parts_o{};
  std::vector<float> parts_lse{};
  // Of an append, else empty: AppendedCache's.
  std::vector<std::byte> k_cache{}, v_cache{};
  std::vector<int> lengths_after{};
  // With problem.kv_scale, of those of k and v (of an append, the caches) that have scales, else
  // empty: as contiguous_tensors() says.
  std::vector<float> k_scale{}, v_scale{}, q_scale{};
};

/// An input of runs: one fp32 number for each query head.
struct HeadNumbers {
  std::string_view name;  // "sinks", its member of Tensors and HostTensors
  std::string_view word;  // of the problems that need it
  std::string_view what;  // "a logit"
  bool (*in)(const Problem&);
  const float* Tensors::*run;
  std::vector<float> HostTensors::*host;
};
/// All that there are.
ATTNFORGE_API std::vector<HeadNumbers> head_numbers();

/// All vectors in their right sizes; rope's tables as by set_rope_tables(), lengths, page tables
/// and block masks random ones of seed 0, other inputs zero, outputs NaN, so that an element that
/// nobody wrote shows in a check.
ATTNFORGE_API HostTensors allocate_host_tensors(const Problem& problem);

/// allocate_host_tensors() with a random block mask of the problem's density, random lengths
/// (packed: as many tokens as the problem has, a few sequences far longer than most; used: between
/// an eighth and all rows) and random q, k, v, sinks of mean 0 and variance 1 (sums of four uniform
/// numbers: nearly normal, at most 3.5); what dargs are added to is zeros. They depend on the seed
/// and the problem only: the same numbers on every machine.
ATTNFORGE_API HostTensors random_host_tensors(const Problem& problem, std::uint64_t seed);

/// flops() of a run on these tensors: with the lengths that they have, and with the pairs that
/// their block mask lets through. Their sizes are those of allocate_host_tensors(). Throws
/// Error(kInvalidArgument) for lengths and lists that are none of the problem's.
ATTNFORGE_API double flops(const Problem& problem, const HostTensors& tensors);

/// Sets page_table for the lengths that the tensors have: pages of each sequence in random places
/// of a pool that has a quarter more of them than all sequences may need, and -1 after the lengths.
/// k and v hold as many pages after allocate_host_tensors(). Nothing without pages. Throws
/// Error(kInvalidArgument), naming the sequence, for lengths that the problem cannot have.
ATTNFORGE_API void set_random_pages(const Problem& problem, HostTensors& tensors,
                                    std::uint64_t seed);

/// Throws Error(kInvalidArgument), saying what is allowed, unless `offset` can be the rope_offset
/// of a run: from least_rope_offset(problem) to 2^30 - seqlen_kv. Nothing to check without rope.
ATTNFORGE_API void check_rope_offset(const Problem& problem, std::int64_t offset);

/// Sets rope_offset, and the usual tables of that base: column i of row r is the cosine or sine of
/// r / base^(2 i / rope_dim), with as many rows as the problem takes. `offset` -1: the least that
/// the problem allows; others are checked as by check_rope_offset(). Nothing without rope.
ATTNFORGE_API void set_rope_tables(const Problem& problem, HostTensors& tensors,
                                   double base = 10000, std::int64_t offset = -1);

/// Elements of each of problem.args in their order, 0 of a number: as many as its text says, and
/// where that says none as many as the tensors above have for it.
ATTNFORGE_API std::vector<std::int64_t> code_array_elements(const Problem& problem);

/// `count` values from or to fp32. Narrowing rounds to nearest even and overflows to infinity; NaN
/// stays NaN.
ATTNFORGE_API void values_to_float(DType from, const void* values, std::size_t count, float* out);
ATTNFORGE_API void values_from_float(DType to, const float* values, std::size_t count, void* out);

}  // namespace attnforge
