#include "cli/parts/lengths.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "attnforge/error.h"
#include "cli/files/npy.h"

namespace attnforge::cli {
namespace {

[[noreturn]] void refuse_files(const std::string& why) {
  throw Error(ErrorCode::kInvalidProblem, why);
}

/// int32 with this number of dimensions.
NpyArray read_integers(const std::string& path, std::size_t dimensions, std::string_view what,
                       std::string_view wanted) {
  NpyArray array = read_npy(path);
  if (array.header.shape.size() != dimensions || array.header.descr != "<i4") {
    refuse_files(fmt::format("{}: {} of {} are {}; they must be int32 {}", path, what,
                             array.header.descr, shape_text(array.header.shape), wanted));
  }
  return array;
}

std::vector<int> integers_of(const NpyArray& array) {
  std::vector<int> values(array.data.size() / sizeof(int));
  if (!values.empty()) std::memcpy(values.data(), array.data.data(), array.data.size());
  return values;
}

std::vector<int> read_lengths(const std::string& path) {
  if (path.empty()) return {};
  const NpyArray lengths = read_integers(path, 1, "lengths", "with one dimension");
  if (lengths.data.empty()) refuse_files(fmt::format("{}: it holds no lengths", path));
  return integers_of(lengths);
}

std::int64_t longest(const std::vector<int>& begins) {
  std::int64_t most = 0;
  for (std::size_t i = 1; i < begins.size(); ++i)
    most = std::max<std::int64_t>(most, std::int64_t{begins[i]} - begins[i - 1]);
  return most;
}

/// Those of files, or all rows of each sequence.
std::vector<int> lengths_or_all(const std::vector<int>& files, std::size_t count,
                                std::int64_t seqlen) {
  return files.empty() ? std::vector<int>(count, static_cast<int>(seqlen)) : files;
}

void check_packed(const SequenceFiles& files, Packing packing) {
  if (packing.q && files.q.empty() && !packing.kv) {
    refuse_files(
        "lengths=packed with pages needs --lengths-q: where each sequence of queries begins, and "
        "the end; --lengths-kv says how many keys of each count, without it all do");
  }
  if (!packing.kv || (!files.q.empty() && !files.kv.empty())) return;
  refuse_files(
      "lengths=packed needs --lengths-q and --lengths-kv: where each sequence begins, and the end");
}

/// Reads lengths from files. All rows count of tensors that no file says anything of.
void take_lengths(const SequenceFiles& files, const Problem& problem, bool random,
                  HostTensors& host) {
  const bool none = files.q.empty() && files.kv.empty();
  if (problem.lengths == Lengths::kFixed) {
    if (none) return;
    throw Error(ErrorCode::kInvalidArgument,
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
  if (!has_pages(problem))
    throw Error(ErrorCode::kInvalidArgument, "--page-table needs a problem with page_size");
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

const char* const kSequenceHelp =
    R"(With lengths=packed files hold [tokens, num_heads, head_dim], and --lengths-q and --lengths-kv int32 [batch + 1], where each
sequence begins; with lengths=used int32 [batch], how many rows of each count. With --page-table, int32 [batch, pages of a
sequence], k and v hold [pages, page_size, num_heads, head_dim]; -1 is no page, and
--lengths-kv is then int32 [batch].
)";

void add_sequence_options(Command& verb, SequenceArguments& a) {
  verb.add_option("--lengths-q", a.q,
                  "Lengths of the sequences of queries: int32, packed [batch + 1], used [batch]")
      ->type_name("NPY");
  verb.add_option("--lengths-kv", a.kv, "Of keys and values")->type_name("NPY");
  verb.add_option("--page-table", a.table,
                  "Which pages of k and v each sequence has: int32 [batch, pages of a sequence]")
      ->type_name("NPY");
}

SequenceFiles read_sequence_files(const SequenceArguments& arguments) {
  SequenceFiles files{read_lengths(arguments.q), read_lengths(arguments.kv)};
  if (arguments.table.empty()) return files;
  const NpyArray table = read_integers(arguments.table, 2, "the entries of a page table",
                                       "[batch, pages of a sequence]");
  files.table_name = arguments.table;
  files.table_shape = table.header.shape;
  files.table = integers_of(table);
  return files;
}

void take_sequences(const SequenceFiles& files, const Problem& problem, bool random,
                    HostTensors& host) {
  take_lengths(files, problem, random, host);
  take_table(files, problem, host);
}

void check_table(const SequenceFiles& files, const Problem& problem,
                 const std::vector<int>& lengths, std::int64_t pages) {
  if (files.table_shape[0] != problem.batch || files.table_shape[1] < pages_of_sequence(problem)) {
    refuse_files(
        fmt::format("{}: its shape {} is not a row for each of {} sequences with the {} pages of "
                    "seqlen_kv={}",
                    files.table_name, shape_text(files.table_shape), problem.batch,
                    pages_of_sequence(problem), problem.seqlen_kv));
  }
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const int keys = lengths[static_cast<std::size_t>(b)];
    for (std::int64_t j = 0; j * problem.page_size < keys; ++j) {
      const int page = files.table[static_cast<std::size_t>(b * files.table_shape[1] + j)];
      if (page >= 0 && page < pages) continue;
      refuse_files(
          fmt::format("{}: entry [{}, {}] is {}, but sequence {} has {} keys in pages of {}; it "
                      "must be one of the {} pages of k and v",
                      files.table_name, b, j, page, b, keys, problem.page_size, pages));
    }
  }
}

Packing packing_of(const std::vector<std::string>& words, const SequenceFiles& files) {
  const bool packed = std::ranges::find(words, "lengths=packed") != words.end();
  const bool pages = files.has_table() || std::ranges::any_of(words, [](const std::string& word) {
                       return word.starts_with("page_size=") && word != "page_size=0";
                     });
  const Packing packing{packed, packed && !pages};
  check_packed(files, packing);
  return packing;
}

std::string sequence_words(const SequenceFiles& files, const std::set<std::string>& given,
                           Packing packing, const FileSizes& q, const FileSizes& k) {
  std::string text;
  const auto has = [&](const char* key) { return given.count(key) != 0; };
  const auto add = [&](const char* key, std::int64_t value) {
    if (!has(key)) text += fmt::format(" {}={}", key, value);
  };
  if (files.has_table()) {
    if (!has("lengths")) text += " lengths=used";
    add("page_size", k.seqlen);
  }
  // seqlen of packed sequences is how long the longest may be.
  add("batch", packing.q ? static_cast<std::int64_t>(files.q.size()) - 1 : q.batch);
  if (!has("seqlen")) {
    // An empty file may have any extents: their product is cut at what no problem has.
    constexpr std::int64_t kMost = std::int64_t{1} << 31;
    const std::int64_t pages = files.has_table() ? std::min(files.table_shape[1], kMost) : 1;
    add("seqlen_q", packing.q ? longest(files.q) : q.seqlen);
    add("seqlen_kv", packing.kv ? longest(files.kv) : std::min(k.seqlen, kMost) * pages);
  }
  if (packing.q && !has("tokens")) {
    add("tokens_q", q.seqlen);
    add("tokens_kv", packing.kv ? k.seqlen : 0);
  }
  return text;
}

void take_no_rows(Packing packing, const FileSizes& q, const FileSizes& k, Problem& p) {
  if (packing.q && q.seqlen == 0 && p.tokens_q == 0) p.seqlen_q = 0;
  if (packing.kv && k.seqlen == 0 && p.tokens_kv == 0) p.seqlen_kv = 0;
}

FileRows rows_of_files(const Problem& p, bool of_keys) {
  if (of_keys && has_pages(p)) return {"page_size", p.page_size};
  const Tokens tokens = total_tokens(p);
  const char* const side = of_keys ? "kv" : "q";
  if (p.lengths == Lengths::kPacked)
    return {fmt::format("tokens_{}", side), of_keys ? tokens.kv : tokens.q};
  return {fmt::format("seqlen_{}", side), of_keys ? p.seqlen_kv : p.seqlen_q, p.batch};
}

void check_pools(const SequenceFiles& files, const Problem& p, const NamedBatch& k,
                 const NamedBatch& v) {
  if (has_pages(p) != files.has_table()) {
    refuse_files(files.has_table()
                     ? fmt::format("{}: the problem has page_size=0 and no pages", files.table_name)
                     : fmt::format("page_size={} of files needs --page-table: int32 [batch, pages "
                                   "of a sequence]",
                                   p.page_size));
  }
  if (files.has_table() && k.batch == 0) refuse_files(fmt::format("{} has no pages", k.name));
  if (files.has_table() && k.batch != v.batch) {
    refuse_files(fmt::format("{} has {} pages and {} has {}; a page table is of both", k.name,
                             k.batch, v.name, v.batch));
  }
}

std::vector<std::int64_t> file_shape(const Problem& p, bool of_keys, std::int64_t heads,
                                     std::int64_t dim) {
  const FileRows rows = rows_of_files(p, of_keys);
  const bool heads_first = p.layout == Layout::kBhsd;
  std::vector<std::int64_t> shape = {heads_first ? heads : rows.count,
                                     heads_first ? rows.count : heads, dim};
  if (rows.batch) shape.insert(shape.begin(), *rows.batch);
  return shape;
}

std::vector<std::int64_t> output_shape(const Problem& p) {
  return file_shape(p, false, p.num_heads_q, p.head_dim_v);
}

std::vector<std::int64_t> lse_shape(const Problem& p) {
  const FileRows rows = rows_of_files(p, false);
  if (!rows.batch) return {p.num_heads_q, rows.count};
  return {*rows.batch, p.num_heads_q, rows.count};
}

}  // namespace attnforge::cli
