// lengths.h - files of attnforge run that say where the rows of sequences lie, and the
// shapes of the other files that follow from it.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "attnforge/host_tensors.h"
#include "attnforge/problem.h"
#include "cli/options/command_line.h"

namespace attnforge::cli {

/// What --lengths-q, --lengths-kv and --page-table name. Empty: not given.
struct SequenceArguments {
  std::string q, kv, table;
};
void add_sequence_options(Command& verb, SequenceArguments& arguments);
/// The end of the help.
extern const char* const kSequenceHelp;

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
/// Error(kInvalidProblem) as packing_of() and check_table().
void take_sequences(const SequenceFiles& files, const Problem& problem, bool random,
                    HostTensors& host);

/// Throws Error(kInvalidProblem) naming the entry unless each row of the table has the pages that
/// `lengths` of the problem's sequences need, out of `pages`.
void check_table(const SequenceFiles& files, const Problem& problem,
                 const std::vector<int>& lengths, std::int64_t pages);

// ---- For the problem of files ----

/// Sizes of the file of q, k or v; packed files have one sequence, and sequences of pools are
/// pages.
struct FileSizes {
  std::int64_t batch, seqlen, num_heads, head_dim;
};

/// Whose sequences lie one after another: those of keys and values do not where they lie in pages.
struct Packing {
  bool q = false, kv = false;
};
/// What the words say is packed. Throws Error(kInvalidProblem) unless the arrays of packed
/// sequences are there.
Packing packing_of(const std::vector<std::string>& words, const SequenceFiles& files);

/// What the files say of batch and sequences, each word after a blank, where no word `given` does.
std::string sequence_words(const SequenceFiles& files, const std::set<std::string>& given,
                           Packing packing, const FileSizes& q, const FileSizes& k);

/// That a packed file has no rows is for seqlen to say: tokens=0 is batch * seqlen.
void take_no_rows(Packing packing, const FileSizes& q, const FileSizes& k, Problem& problem);

/// How many rows the files of q, or of k and v, have, as the problem calls it, and how many
/// sequences, where it says that.
struct FileRows {
  std::string name;
  std::int64_t count = 0;
  std::optional<std::int64_t> batch{};
};
FileRows rows_of_files(const Problem& problem, bool of_keys);

/// Throws Error(kInvalidProblem) unless k and v are pools of as many pages where there is a table,
/// and there is one where the problem wants it.
struct NamedBatch {
  std::string name;
  std::int64_t batch;
};
void check_pools(const SequenceFiles& files, const Problem& problem, const NamedBatch& k,
                 const NamedBatch& v);

// ---- Shapes of files ----

/// The shape of a tensor with the rows of q, or of k: packed [tokens, heads, dim], else [batch,
/// seqlen, heads, dim], for kBhsd heads before rows.
std::vector<std::int64_t> file_shape(const Problem& problem, bool of_keys, std::int64_t heads,
                                     std::int64_t dim);
std::vector<std::int64_t> output_shape(const Problem& problem);
std::vector<std::int64_t> lse_shape(const Problem& problem);

}  // namespace attnforge::cli
