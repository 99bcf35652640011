// run_files.h - tensors from .npy files: their shapes and types fill in the problem, the words on
// the command line add the rest and must not contradict.
#pragma once

#include <string>
#include <vector>

#include "attnforge/host_tensors.h"
#include "attnforge/problem.h"
#include "cli/npy.h"

namespace attnforge::cli {

/// A tensor's file: its header, and how messages call it.
struct NamedHeader {
  std::string name;
  NpyHeader header;
};

struct InputHeaders {
  NamedHeader q, k, v;
  bool uint16_is_bf16 = false;
};

/// Arrays of lengths: what --lengths-q and --lengths-kv hold. Empty: not given.
struct LengthFiles {
  std::vector<int> q, kv;
  // Of packed sequences.
  std::int64_t sequences() const;
  std::int64_t longest_q() const;
  std::int64_t longest_kv() const;
};

/// What --page-table holds: which pages of the files of k and v each sequence has.
struct PageFile {
  std::string name;
  std::vector<std::int64_t> shape;  // [batch, pages of a sequence]; empty: not given
  std::vector<int> table;
  bool given() const { return !shape.empty(); }
};

/// int32 with two dimensions. Throws Error(kInvalidProblem) naming the file if it is not.
PageFile read_page_table(const std::string& path);

/// Throws Error(kInvalidProblem) naming the entry unless each row of the table has the pages that
/// `lengths` of the problem's sequences need, out of `pages`.
void check_page_table(const PageFile& file, const Problem& problem, const std::vector<int>& lengths,
                      std::int64_t pages);

/// Words may leave out the operation and everything that the files say. fp32 files go with any
/// dtype (their values are rounded), others with their own or fp32. Throws Error(kInvalidProblem)
/// naming file, shape and word where they contradict.
/// With a page table k and v are [pages, page_size, num_heads_kv, head_dim], or for kBhsd [pages,
/// num_heads_kv, page_size, head_dim].
Problem problem_of_files(const InputHeaders& inputs, const std::vector<std::string>& words,
                         const LengthFiles& lengths = {}, const PageFile& pages = {});

/// The values of a file as the dtype that the problem wants.
std::vector<std::byte> converted(NpyArray&& array, DType from, DType to);

/// A table of the rotary embedding: fp32 [rows, rope_dim / 2]. Throws Error(kInvalidProblem) naming
/// the file and its shape if it is not.
std::vector<float> read_rope_table(const std::string& path, const Problem& problem);

/// int32 with one dimension. Throws Error(kInvalidProblem) naming the file if it is not.
std::vector<int> read_lengths(const std::string& path);

/// Shape of o as a file: packed [tokens_q, num_heads_q, head_dim_v], else [batch, seqlen_q,
/// num_heads_q, head_dim_v], for kBhsd [batch, num_heads_q, seqlen_q, head_dim_v].
std::vector<std::int64_t> output_shape(const Problem& problem);

}  // namespace attnforge::cli
