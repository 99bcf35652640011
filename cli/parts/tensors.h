// tensors.h - tensors from .npy files: their shapes and types fill in the problem, the words on
// the command line add the rest and must not contradict.
#pragma once

#include <string>
#include <vector>

#include "attnforge/problem.h"
#include "cli/files/npy.h"
#include "cli/options/problems.h"
#include "cli/parts/lengths.h"

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

/// Words may leave out the operation and everything that the files say. fp32 files go with any
/// dtype (their values are rounded), others with their own or fp32. Throws Error(kInvalidProblem)
/// naming file, shape and word where they contradict, else as `read`.
Problem problem_of_files(const InputHeaders& inputs, const std::vector<std::string>& words,
                         const SequenceFiles& sequences = {}, const ReadText& read = parse_problem);

/// The values of a file as the dtype that the problem wants.
std::vector<std::byte> converted(NpyArray&& array, DType from, DType to);

/// The shape of a tensor with the rows of q, or of k: packed [tokens, heads, dim], else [batch,
/// seqlen, heads, dim], for kBhsd heads before rows.
std::vector<std::int64_t> file_shape(const Problem& problem, bool of_keys, std::int64_t heads,
                                     std::int64_t dim);
std::vector<std::int64_t> output_shape(const Problem& problem);
std::vector<std::int64_t> lse_shape(const Problem& problem);

/// A table of a rope: fp32 [rows, rope_dim / 2]. Throws Error(kInvalidProblem) for a file that is
/// another.
std::vector<float> read_rope_table(const std::string& path, const Problem& problem);

}  // namespace attnforge::cli
