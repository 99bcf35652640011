// lengths.h - files of attnforge run that say where the rows of sequences lie.
#pragma once

#include <cstdint>
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
/// Error(kInvalidProblem) as check_packed() and check_table().
void take_sequences(const SequenceFiles& files, const Problem& problem, bool random,
                    HostTensors& host);

/// Throws Error(kInvalidProblem) naming the entry unless each row of the table has the pages that
/// `lengths` of the problem's sequences need, out of `pages`.
void check_table(const SequenceFiles& files, const Problem& problem,
                 const std::vector<int>& lengths, std::int64_t pages);

/// Whose sequences lie one after another: those of keys and values do not where they lie in pages.
struct Packing {
  bool q = false, kv = false;
};
/// Throws Error(kInvalidProblem) unless the arrays of packed sequences are there.
void check_packed(const SequenceFiles& files, Packing packing);

}  // namespace attnforge::cli
