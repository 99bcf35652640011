#include "cli/parts/tensors.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "cli/refuse.h"

namespace attnforge::cli {
namespace {

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

Problem problem_of_files(const InputHeaders& in, const std::vector<std::string>& arguments,
                         const SequenceFiles& sequences, const ReadText& read) {
  const Words words = words_of(arguments);
  const Layout layout = layout_of(words);
  const Packing packing = packing_of(words, sequences);
  const NamedHeader* const files[] = {&in.q, &in.k, &in.v};
  std::array<FileSizes, 3> sizes;
  std::array<DType, 3> dtypes;
  for (std::size_t i = 0; i < 3; ++i) {
    sizes[i] = sizes_of(*files[i], layout, i == 0 ? packing.q : packing.kv);
    dtypes[i] = npy_dtype(files[i]->header, in.uint16_is_bf16, files[i]->name);
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
