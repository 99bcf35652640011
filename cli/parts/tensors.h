// tensors.h - tensors from .npy files: their shapes and types fill in the problem, the words on
// the command line add the rest and must not contradict.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attnforge/host_tensors.h"
#include "attnforge/problem.h"
#include "cli/files/npy.h"
#include "cli/options/command_line.h"
#include "cli/options/problems.h"

namespace attnforge::cli {

// ---- Where the rows of sequences lie ----

/// What --lengths-q, --lengths-kv and --page-table name. Empty: not given.
struct SequenceArguments {
  std::string q, kv, table;
};
void add_sequence_options(Command& verb, SequenceArguments& arguments);
inline constexpr const char* kSequenceHelp =
    R"(With lengths=packed files hold [tokens, num_heads, head_dim], and --lengths-q and --lengths-kv int32 [batch + 1], where each
sequence begins; with lengths=used int32 [batch], how many rows of each count. With --page-table, int32 [batch, pages of a
sequence], k and v hold [pages, page_size, num_heads, head_dim]; -1 is no page, and
--lengths-kv is then int32 [batch].
)";

/// What they hold.
struct SequenceFiles {
  std::vector<int> q, kv;
  std::string table_name{};
  std::vector<std::int64_t> table_shape{};  // [batch, pages of a sequence]
  std::vector<int> table{};                 // which pages of the files of k and v each sequence has
  bool has_table() const { return !table_shape.empty(); }
};
/// int32 of one dimension, and of two. Throws Error(kInvalidProblem) naming a file that is not.
SequenceFiles read_sequence_files(const SequenceArguments& arguments);

/// In place of the random ones that `host` has, whose k and v are those of the files. Where no file
/// says lengths, all rows count, or with `random` lengths stay random. Throws
/// Error(kInvalidArgument) for lengths that the problem has no use for or cannot have,
/// Error(kInvalidProblem) for arrays of packed sequences that are not there, and as check_table().
void take_sequences(const SequenceFiles& files, const Problem& problem, bool random,
                    HostTensors& host);

/// Throws Error(kInvalidProblem) naming the entry unless each row of the table has the pages that
/// `lengths` of the problem's sequences need, out of `pages`.
void check_table(const SequenceFiles& files, const Problem& problem,
                 const std::vector<int>& lengths, std::int64_t pages);

// ---- Problems and tensors ----

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
