#include "cli/parts/tensors.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "cli/refuse.h"

namespace attnforge::cli {
namespace {

/// Whose sequences lie one after another: those of keys and values do not where they lie in pages.
struct Packing {
  bool q = false, kv = false;
};

/// Throws Error(kInvalidProblem) unless the arrays of packed sequences are there.
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

using Words = std::vector<std::string>;

/// Sizes of the file of q, k or v; packed files have one sequence, and sequences of pools are
/// pages.
struct FileSizes {
  std::int64_t batch, seqlen, num_heads, head_dim;
};

FileSizes sizes_of(const NamedHeader& file, Layout layout, bool packed) {
  const bool heads_first = layout == Layout::kBhsd;
  std::vector<std::int64_t> s = file.header.shape;
  if (s.size() != (packed ? 3 : 4)) {
    const char* const rows = packed ? "tokens" : "seqlen";
    refuse(kInvalidProblem,
           "{}: its shape {} has {} dimensions; {} are needed: [{}{}, {}, head_dim]{}", file.name,
           shape_text(s), s.size(), packed ? "of packed ones 3" : "4", packed ? "" : "batch, ",
           heads_first ? "num_heads" : rows, heads_first ? rows : "num_heads",
           heads_first ? "" : " (or the word layout=bhsd)");
  }
  if (packed) s.insert(s.begin(), 1);
  if (heads_first) std::swap(s[1], s[2]);
  return {s[0], s[1], s[2], s[3]};
}

Layout layout_of(const Words& words) {
  if (std::ranges::find(words, "layout=packed_qkv") != words.end()) {
    refuse(kInvalidProblem,
           "layout=packed_qkv has no files of its own for q, k and v; save them apart, or use "
           "--random");
  }
  // A layout that does not exist is refused with the rest of the text.
  return std::ranges::find(words, "layout=bhsd") != words.end() ? Layout::kBhsd : Layout::kBshd;
}

/// What the words say is packed. Throws Error(kInvalidProblem) unless the arrays of packed
/// sequences are there.
Packing packing_of(const Words& words, const SequenceFiles& files) {
  const bool packed = std::ranges::find(words, "lengths=packed") != words.end();
  const bool pages = files.has_table() || std::ranges::any_of(words, [](const std::string& word) {
                       return word.starts_with("page_size=") && word != "page_size=0";
                     });
  const Packing packing{packed, packed && !pages};
  check_packed(files, packing);
  return packing;
}

std::int64_t longest(const std::vector<int>& begins) {
  std::int64_t most = 0;
  for (std::size_t i = 1; i < begins.size(); ++i)
    most = std::max<std::int64_t>(most, std::int64_t{begins[i]} - begins[i - 1]);
  return most;
}

/// "fwd", the words, and for each size and dtype that no word gives what the files say.
std::string complete_text(const Words& words, Packing packing,
                          const std::array<FileSizes, 3>& sizes, const std::array<DType, 3>& dtypes,
                          const SequenceFiles& sequences) {
  const auto& [q, k, v] = sizes;
  std::set<std::string> given;  // what the words say before "="
  for (const std::string& word : words) given.insert(word.substr(0, word.find('=')));
  const auto has = [&](std::string_view key) { return given.count(std::string(key)) != 0; };
  std::string text = std::ranges::any_of(given, is_operation) ? "" : "fwd";
  for (const std::string& word : words) text += " " + word;
  const auto add = [&](const char* key, const auto& value) {
    if (!has(key)) text += fmt::format(" {}={}", key, value);
  };
  if (sequences.has_table()) {
    add("lengths", "used");
    add("page_size", k.seqlen);
  }
  // seqlen of packed sequences is how long the longest may be.
  add("batch", packing.q ? static_cast<std::int64_t>(sequences.q.size()) - 1 : q.batch);
  if (!has("seqlen")) {
    // An empty file may have any extents: their product is cut at what no problem has.
    constexpr std::int64_t kMost = std::int64_t{1} << 31;
    const std::int64_t pages = sequences.has_table() ? std::min(sequences.table_shape[1], kMost)
                                                     : 1;
    add("seqlen_q", packing.q ? longest(sequences.q) : q.seqlen);
    add("seqlen_kv", packing.kv ? longest(sequences.kv) : std::min(k.seqlen, kMost) * pages);
  }
  if (packing.q && !has("tokens")) {
    add("tokens_q", q.seqlen);
    add("tokens_kv", packing.kv ? k.seqlen : 0);
  }
  if (!has("num_heads")) {
    add("num_heads_q", q.num_heads);
    add("num_heads_kv", k.num_heads);
  }
  add("head_dim", q.head_dim);
  if (!has("head_dim")) add("head_dim_v", v.head_dim);
  const bool for_all = std::ranges::any_of(
      element_formats(), [&](const ElementFormat& format) { return has(format.name); });
  if (for_all) return text;
  const std::pair<const char*, DType> tensors[] = {
      {"q", dtypes[0]}, {"k", dtypes[1]}, {"v", dtypes[2]}, {"o", dtypes[0]}};
  for (const auto& [name, dtype] : tensors) add(name, to_string(dtype));
  return text;
}

/// How many rows the files of q, or of k and v, have, as the problem calls it, and how many
/// sequences, where it says that.
struct FileRows {
  std::string name;
  std::int64_t count = 0;
  std::optional<std::int64_t> batch{};
};

FileRows rows_of_files(const Problem& p, bool of_keys) {
  if (of_keys && has_pages(p)) return {"page_size", p.page_size};
  const Tokens tokens = total_tokens(p);
  const char* const side = of_keys ? "kv" : "q";
  if (p.lengths == Lengths::kPacked)
    return {fmt::format("tokens_{}", side), of_keys ? tokens.kv : tokens.q};
  return {fmt::format("seqlen_{}", side), of_keys ? p.seqlen_kv : p.seqlen_q, p.batch};
}

/// Throws Error(kInvalidProblem) unless k and v are pools of as many pages where there is a table,
/// and there is one where the problem wants it.
void check_pools(const InputHeaders& in, std::int64_t pages_k, std::int64_t pages_v,
                 const SequenceFiles& files, const Problem& p) {
  if (has_pages(p) && !files.has_table()) {
    refuse(kInvalidProblem,
           "page_size={} of files needs --page-table: int32 [batch, pages of a sequence]",
           p.page_size);
  }
  if (!files.has_table()) return;
  if (!has_pages(p))
    refuse(kInvalidProblem, "{}: the problem has page_size=0 and no pages", files.table_name);
  if (pages_k == 0) refuse(kInvalidProblem, "{} has no pages", in.k.name);
  if (pages_k != pages_v) {
    refuse(kInvalidProblem, "{} has {} pages and {} has {}; a page table is of both", in.k.name,
           pages_k, in.v.name, pages_v);
  }
}

void check_size(const NamedHeader& file, const std::string& name, std::int64_t in_file,
                std::int64_t in_problem) {
  if (in_file == in_problem) return;
  refuse(kInvalidProblem,
         "{}: its shape {} says {}={}, but the problem has {}={}; drop the word, or check the "
         "layout and the other files",
         file.name, shape_text(file.header.shape), name, in_file, name, in_problem);
}

void check_dtype(const NamedHeader& file, DType in_file, DType in_problem) {
  // fp32 holds every value of the others; they do not hold each other's.
  if (in_file == in_problem || in_file == DType::kFp32 || in_problem == DType::kFp32) return;
  refuse(kInvalidProblem,
         "{}: its values are {}, but the problem wants {}; drop the word, or convert the file",
         file.name, to_string(in_file), to_string(in_problem));
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

/// Bytes are two int4, or blocks where the words say so.
DType dtype_of_file(const NamedHeader& file, bool uint16_is_bf16, const Words& words,
                    std::string_view tensor) {
  const DType dtype = npy_dtype(file.header, uint16_is_bf16, file.name);
  for (const DType blocks : {DType::kQ8_0, DType::kQ4_0}) {
    const bool said = std::ranges::find(words, fmt::format("{}={}", tensor, to_string(blocks))) !=
                      words.end();
    if (said && dtype == DType::kInt4) return blocks;
  }
  return dtype;
}

Problem problem_of_files(const InputHeaders& in, const std::vector<std::string>& arguments,
                         const SequenceFiles& sequences, const ReadText& read) {
  const Words words = words_of(arguments);
  const Layout layout = layout_of(words);
  const Packing packing = packing_of(words, sequences);
  const NamedHeader* const files[] = {&in.q, &in.k, &in.v};
  constexpr std::string_view kNames[] = {"q", "k", "v"};
  std::array<FileSizes, 3> sizes;
  std::array<DType, 3> dtypes;
  for (std::size_t i = 0; i < 3; ++i) {
    sizes[i] = sizes_of(*files[i], layout, i == 0 ? packing.q : packing.kv);
    dtypes[i] = dtype_of_file(*files[i], in.uint16_is_bf16, words, kNames[i]);
    if (dtypes[i] == DType::kInt4 || is_blocks(dtypes[i])) {  // bytes
      const std::int64_t row = std::min(sizes[i].head_dim, std::int64_t{1} << 40);
      sizes[i].head_dim = elements_in(dtypes[i], static_cast<std::size_t>(row));
    }
  }
  Problem p = read(complete_text(words, packing, sizes, dtypes, sequences));
  // That a packed file has no rows is for seqlen to say: tokens=0 is batch * seqlen.
  if (packing.q && sizes[0].seqlen == 0 && p.tokens_q == 0) p.seqlen_q = 0;
  if (packing.kv && sizes[1].seqlen == 0 && p.tokens_kv == 0) p.seqlen_kv = 0;
  check_pools(in, sizes[1].batch, sizes[2].batch, sequences, p);
  const DType wanted[] = {p.dtype_q, p.dtype_k, p.dtype_v};
  for (std::size_t i = 0; i < 3; ++i) {
    const NamedHeader& file = *files[i];
    const FileSizes& has = sizes[i];
    const FileRows rows = rows_of_files(p, i > 0);
    if (rows.batch) check_size(file, "batch", has.batch, *rows.batch);
    check_size(file, rows.name, has.seqlen, rows.count);
    if (i == 0) check_size(file, "num_heads_q", has.num_heads, p.num_heads_q);
    if (i > 0) check_size(file, "num_heads_kv", has.num_heads, p.num_heads_kv);
    if (i < 2) check_size(file, "head_dim", has.head_dim, p.head_dim);
    if (i == 2) check_size(file, "head_dim_v", has.head_dim, p.head_dim_v);
    check_dtype(file, dtypes[i], wanted[i]);
  }
  return p;
}

std::vector<std::byte> converted(NpyArray&& array, DType from, DType to) {
  if (from == to) return std::move(array.data);
  const std::size_t count = static_cast<std::size_t>(elements_in(from, array.data.size()));
  std::vector<float> values(count);
  values_to_float(from, array.data.data(), count, values.data());
  std::vector<std::byte> result(static_cast<std::size_t>(bytes_of(to, count)));
  values_from_float(to, values.data(), count, result.data());
  return result;
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
