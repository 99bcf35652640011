#include "cli/parts/lengths.h"

#include <cstring>

#include "cli/files/npy.h"
#include "cli/refuse.h"

namespace attnforge::cli {
namespace {

std::vector<int> read_lengths(const std::string& path) {
  if (path.empty()) return {};
  const std::int64_t shape[] = {kAnySize};
  std::vector<int> lengths = values_of<int>(read_npy(path, shape, "int32 with one dimension"));
  if (lengths.empty()) refuse(kInvalidProblem, "{}: it holds no lengths", path);
  return lengths;
}

/// Those of files, or all rows of each sequence.
std::vector<int> lengths_or_all(const std::vector<int>& files, std::size_t count,
                                std::int64_t seqlen) {
  return files.empty() ? std::vector<int>(count, static_cast<int>(seqlen)) : files;
}

/// Reads lengths from files. All rows count of tensors that no file says anything of.
void take_lengths(const SequenceFiles& files, const Problem& problem, bool random,
                  HostTensors& host) {
  const bool none = files.q.empty() && files.kv.empty();
  if (problem.lengths == Lengths::kFixed) {
    if (none) return;
    refuse(kInvalidArgument,
           "--lengths-q and --lengths-kv need a problem with lengths=packed or lengths=used");
  }
  if (none && random) return;
  check_packed(files, {problem.lengths == Lengths::kPacked, has_packed_keys(problem)});
  host.lengths_q = lengths_or_all(files.q, host.lengths_q.size(), problem.seqlen_q);
  host.lengths_kv = lengths_or_all(files.kv, host.lengths_kv.size(), problem.seqlen_kv);
  set_random_pages(problem, host, 0);  // of these lengths, which it checks
}

/// And with the table the pages that the files have.
void take_table(const SequenceFiles& files, const Problem& problem, HostTensors& host) {
  if (!files.has_table()) return;
  if (!has_pages(problem)) refuse(kInvalidArgument, "--page-table needs a problem with page_size");
  const auto bytes_of_page = static_cast<std::size_t>(
      bytes_of(problem.dtype_k, problem.page_size * problem.num_heads_kv * problem.head_dim));
  check_table(files, problem, host.lengths_kv,
              static_cast<std::int64_t>(host.k.size() / bytes_of_page));
  // Rows of the file may be longer than the problem needs.
  const auto columns = static_cast<std::size_t>(pages_of_sequence(problem));
  const auto columns_of_file = static_cast<std::size_t>(files.table_shape[1]);
  for (std::size_t i = 0; i < host.page_table.size(); ++i)
    host.page_table[i] = files.table[i / columns * columns_of_file + i % columns];
}

}  // namespace

void add_sequence_options(Command& verb, SequenceArguments& a) {
  add_value(verb, "--lengths-q NPY", a.q,
            "Lengths of the sequences of queries: int32, packed [batch + 1], used [batch]");
  add_value(verb, "--lengths-kv NPY", a.kv, "Of keys and values");
  add_value(verb, "--page-table NPY", a.table,
            "Which pages of k and v each sequence has: int32 [batch, pages of a sequence]");
}

SequenceFiles read_sequence_files(const SequenceArguments& arguments) {
  SequenceFiles files{read_lengths(arguments.q), read_lengths(arguments.kv)};
  if (arguments.table.empty()) return files;
  const std::int64_t shape[] = {kAnySize, kAnySize};
  const NpyArray table = read_npy(arguments.table, shape, "int32 [batch, pages of a sequence]");
  files.table_name = arguments.table;
  files.table_shape = table.header.shape;
  files.table = values_of<int>(table);
  return files;
}

void check_packed(const SequenceFiles& files, Packing packing) {
  if (packing.q && files.q.empty() && !packing.kv) {
    refuse(kInvalidProblem,
           "lengths=packed with pages needs --lengths-q: where each sequence of queries begins, "
           "and the end; --lengths-kv says how many keys of each count, without it all do");
  }
  if (!packing.kv || (!files.q.empty() && !files.kv.empty())) return;
  refuse(
      kInvalidProblem,
      "lengths=packed needs --lengths-q and --lengths-kv: where each sequence begins, and the end");
}

void take_sequences(const SequenceFiles& files, const Problem& problem, bool random,
                    HostTensors& host) {
  take_lengths(files, problem, random, host);
  take_table(files, problem, host);
}

void check_table(const SequenceFiles& files, const Problem& problem,
                 const std::vector<int>& lengths, std::int64_t pages) {
  if (files.table_shape[0] != problem.batch || files.table_shape[1] < pages_of_sequence(problem)) {
    refuse(
        kInvalidProblem,
        "{}: its shape {} is not a row for each of {} sequences with the {} pages of seqlen_kv={}",
        files.table_name, shape_text(files.table_shape), problem.batch, pages_of_sequence(problem),
        problem.seqlen_kv);
  }
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const int keys = lengths[static_cast<std::size_t>(b)];
    for (std::int64_t j = 0; j * problem.page_size < keys; ++j) {
      const int page = files.table[static_cast<std::size_t>(b * files.table_shape[1] + j)];
      if (page >= 0 && page < pages) continue;
      refuse(kInvalidProblem,
             "{}: entry [{}, {}] is {}, but sequence {} has {} keys in pages of {}; it must be one "
             "of the {} pages of k and v",
             files.table_name, b, j, page, b, keys, problem.page_size, pages);
    }
  }
}

}  // namespace attnforge::cli
