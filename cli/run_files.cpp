#include "cli/run_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "attnforge/error.h"
#include "cli/problems.h"

namespace attnforge::cli {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::kInvalidProblem, why); }

struct Sizes {
  std::int64_t batch, seqlen, num_heads, head_dim;
};

Sizes sizes_of(const NamedHeader& file, Layout layout, bool packed) {
  const std::vector<std::int64_t>& s = file.header.shape;
  if (packed) {
    if (s.size() != 3) {
      refuse(fmt::format("{}: its shape {} has {} dimensions; with lengths=packed 3 are needed: {}",
                         file.name, shape_text(s), s.size(),
                         layout == Layout::kBhsd
                             ? "[num_heads, tokens, head_dim]"
                             : "[tokens, num_heads, head_dim] (or the word layout=bhsd)"));
    }
    if (layout == Layout::kBhsd) return {1, s[1], s[0], s[2]};
    return {1, s[0], s[1], s[2]};
  }
  if (s.size() != 4) {
    refuse(fmt::format("{}: its shape {} has {} dimensions; 4 are needed: {}", file.name,
                       shape_text(s), s.size(),
                       layout == Layout::kBhsd
                           ? "[batch, num_heads, seqlen, head_dim]"
                           : "[batch, seqlen, num_heads, head_dim] (or the word layout=bhsd)"));
  }
  if (layout == Layout::kBhsd) return {s[0], s[2], s[1], s[3]};
  return {s[0], s[1], s[2], s[3]};
}

/// What the words say before "=": which sizes and dtypes are given.
std::set<std::string> keys_of(const std::vector<std::string>& words) {
  std::set<std::string> keys;
  for (const std::string& word : words) keys.insert(word.substr(0, word.find('=')));
  return keys;
}

Layout layout_of(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (word == "layout=bhsd") return Layout::kBhsd;
    if (word == "layout=packed_qkv") {
      refuse(
          "layout=packed_qkv has no files of its own for q, k and v; save them apart, or use "
          "--random");
    }
  }
  return Layout::kBshd;  // a layout that does not exist is refused with the rest of the text
}

/// `lengths`: of packed sequences.
/// "fwd", the words, and for each size and dtype that no word gives what the files say.
std::string complete_text(const std::vector<std::string>& words, const Sizes& q, const Sizes& k,
                          const Sizes& v, const std::array<DType, 3>& dtypes,
                          const LengthFiles* lengths, const PageFile& pages) {
  const bool packed = lengths != nullptr;
  const std::set<std::string> given = keys_of(words);
  const auto has = [&](const char* key) { return given.count(key) != 0; };
  std::string text = has("fwd") || has("bwd") ? "" : "fwd";
  for (const std::string& word : words) text += " " + word;
  const auto add = [&](const char* key, std::int64_t value) {
    text += fmt::format(" {}={}", key, value);
  };

  if (packed) {
    // Of the arrays; seqlen is how long the longest may be.
    if (!has("batch")) add("batch", lengths->sequences());
    if (!has("seqlen") && !has("seqlen_q")) add("seqlen_q", lengths->longest_q());
    if (!has("seqlen") && !has("seqlen_kv")) add("seqlen_kv", lengths->longest_kv());
    if (!has("tokens") && !has("tokens_q")) add("tokens_q", q.seqlen);
    if (!has("tokens") && !has("tokens_kv")) add("tokens_kv", k.seqlen);
  } else if (!has("batch")) {
    add("batch", q.batch);
  }
  if (!has("num_heads")) {
    if (!has("num_heads_q")) add("num_heads_q", q.num_heads);
    if (!has("num_heads_kv")) add("num_heads_kv", k.num_heads);
  }
  if (pages.given()) {
    if (!has("lengths")) text += " lengths=used";
    if (!has("page_size")) add("page_size", k.seqlen);
  }
  if (!packed && !has("seqlen")) {
    if (!has("seqlen_q")) add("seqlen_q", q.seqlen);
    if (!has("seqlen_kv")) add("seqlen_kv", k.seqlen * (pages.given() ? pages.shape[1] : 1));
  }
  if (!has("head_dim")) add("head_dim", q.head_dim);
  if (!has("head_dim_v") && !has("head_dim")) add("head_dim_v", v.head_dim);
  const bool for_all = has("fp32") || has("fp16") || has("bf16");
  if (!for_all) {
    const char* const names[] = {"q", "k", "v"};
    for (std::size_t i = 0; i < 3; ++i) {
      if (!has(names[i])) text += fmt::format(" {}={}", names[i], to_string(dtypes[i]));
    }
    if (!has("o")) text += fmt::format(" o={}", to_string(dtypes[0]));
  }
  return text;
}

void check_size(const NamedHeader& file, const std::string& name, std::int64_t in_file,
                std::int64_t in_problem) {
  if (in_file == in_problem) return;
  refuse(
      fmt::format("{}: its shape {} says {}={}, but the problem has {}={}; drop the word, or check "
                  "the layout and the "
                  "other files",
                  file.name, shape_text(file.header.shape), name, in_file, name, in_problem));
}

void check_dtype(const NamedHeader& file, DType in_file, DType in_problem) {
  // fp32 holds every value of the others; they do not hold each other's.
  if (in_file == in_problem || in_file == DType::kFp32 || in_problem == DType::kFp32) return;
  refuse(fmt::format(
      "{}: its values are {}, but the problem wants {}; drop the word, or convert the file",
      file.name, to_string(in_file), to_string(in_problem)));
}

}  // namespace

std::int64_t LengthFiles::sequences() const { return static_cast<std::int64_t>(q.size()) - 1; }

namespace {

std::int64_t longest(const std::vector<int>& begins) {
  std::int64_t most = 0;
  for (std::size_t i = 1; i < begins.size(); ++i)
    most = std::max<std::int64_t>(most, std::int64_t{begins[i]} - begins[i - 1]);
  return most;
}

}  // namespace

std::int64_t LengthFiles::longest_q() const { return longest(q); }
std::int64_t LengthFiles::longest_kv() const { return longest(kv); }

namespace {

void check_page_files(const InputHeaders& in, const Problem& p, const Sizes& k, const Sizes& v) {
  check_size(in.k, "page_size", k.seqlen, p.page_size);
  check_size(in.v, "page_size", v.seqlen, p.page_size);
  if (k.batch != v.batch) {
    refuse(fmt::format("{} has {} pages and {} has {}; a page table is of both", in.k.name, k.batch,
                       in.v.name, v.batch));
  }
}

}  // namespace

Problem problem_of_files(const InputHeaders& in, const std::vector<std::string>& arguments,
                         const LengthFiles& lengths, const PageFile& pages,
                         const CodeOptions& code) {
  const std::vector<std::string> words = words_of(arguments);
  const Layout layout = layout_of(words);
  const bool packed = std::find(words.begin(), words.end(), "lengths=packed") != words.end();
  if (packed && (lengths.q.empty() || lengths.kv.empty()))
    refuse(
        "lengths=packed needs --lengths-q and --lengths-kv: where each sequence begins, and the "
        "end");
  const Sizes q = sizes_of(in.q, layout, packed), k = sizes_of(in.k, layout, packed),
              v = sizes_of(in.v, layout, packed);
  const std::array<DType, 3> dtypes = {npy_dtype(in.q.header, in.uint16_is_bf16, in.q.name),
                                       npy_dtype(in.k.header, in.uint16_is_bf16, in.k.name),
                                       npy_dtype(in.v.header, in.uint16_is_bf16, in.v.name)};
  const Problem p = problem_of_text(
      complete_text(words, q, k, v, dtypes, packed ? &lengths : nullptr, pages), code);
  if (has_pages(p) != pages.given()) {
    refuse(pages.given() ? fmt::format("{}: the problem has page_size=0 and no pages", pages.name)
                         : fmt::format("page_size={} of files needs --page-table: int32 [batch, "
                                       "pages of a sequence]",
                                       p.page_size));
  }
  const Tokens tokens = total_tokens(p);
  const auto check_rows = [&](const NamedHeader& file, const char* side, const Sizes& sizes,
                              std::int64_t seqlen, std::int64_t all) {
    if (packed) {
      check_size(file, fmt::format("tokens_{}", side), sizes.seqlen, all);
    } else {
      check_size(file, "batch", sizes.batch, p.batch);
      check_size(file, fmt::format("seqlen_{}", side), sizes.seqlen, seqlen);
    }
  };
  if (pages.given()) check_page_files(in, p, k, v);
  check_rows(in.q, "q", q, p.seqlen_q, tokens.q);
  check_size(in.q, "num_heads_q", q.num_heads, p.num_heads_q);
  check_size(in.q, "head_dim", q.head_dim, p.head_dim);
  if (!pages.given()) check_rows(in.k, "kv", k, p.seqlen_kv, tokens.kv);
  check_size(in.k, "num_heads_kv", k.num_heads, p.num_heads_kv);
  check_size(in.k, "head_dim", k.head_dim, p.head_dim);
  if (!pages.given()) check_rows(in.v, "kv", v, p.seqlen_kv, tokens.kv);
  check_size(in.v, "num_heads_kv", v.num_heads, p.num_heads_kv);
  check_size(in.v, "head_dim_v", v.head_dim, p.head_dim_v);
  check_dtype(in.q, dtypes[0], p.dtype_q);
  check_dtype(in.k, dtypes[1], p.dtype_k);
  check_dtype(in.v, dtypes[2], p.dtype_v);
  return p;
}

std::vector<std::byte> converted(NpyArray&& array, DType from, DType to) {
  if (from == to) return std::move(array.data);
  const std::size_t count = array.data.size() / static_cast<std::size_t>(size_bytes(from));
  std::vector<float> values(count);
  values_to_float(from, array.data.data(), count, values.data());
  std::vector<std::byte> result(count * static_cast<std::size_t>(size_bytes(to)));
  values_from_float(to, values.data(), count, result.data());
  return result;
}

std::vector<float> read_rope_table(const std::string& path, const Problem& problem) {
  const NpyArray table = read_npy(path);
  const std::vector<std::int64_t>& shape = table.header.shape;
  const std::int64_t pairs = effective_rope_dim(problem) / 2;
  if (shape.size() != 2 || shape[1] != pairs ||
      npy_dtype(table.header, false, path) != DType::kFp32) {
    refuse(fmt::format("{}: a table of {} is {}; it must be float32 [rows, {}] for rope_dim={}",
                       path, table.header.descr, shape_text(shape), pairs, 2 * pairs));
  }
  std::vector<float> values(table.data.size() / sizeof(float));
  values_to_float(DType::kFp32, table.data.data(), values.size(), values.data());
  return values;
}

std::vector<int> read_lengths(const std::string& path) {
  const NpyArray array = read_npy(path);
  if (array.header.shape.size() != 1 || array.header.descr != "<i4") {
    refuse(fmt::format("{}: lengths of {} are {}; they must be int32 with one dimension", path,
                       array.header.descr, shape_text(array.header.shape)));
  }
  std::vector<int> values(array.data.size() / sizeof(int));
  std::memcpy(values.data(), array.data.data(), values.size() * sizeof(int));
  return values;
}

PageFile read_page_table(const std::string& path) {
  const NpyArray array = read_npy(path);
  if (array.header.shape.size() != 2 || array.header.descr != "<i4") {
    refuse(
        fmt::format("{}: a page table of {} is {}; it must be int32 [batch, pages of a sequence]",
                    path, array.header.descr, shape_text(array.header.shape)));
  }
  PageFile file{path, array.header.shape, {}};
  file.table.resize(array.data.size() / sizeof(int));
  std::memcpy(file.table.data(), array.data.data(), file.table.size() * sizeof(int));
  return file;
}

void check_page_table(const PageFile& file, const Problem& problem, const std::vector<int>& lengths,
                      std::int64_t pages) {
  if (file.shape[0] != problem.batch || file.shape[1] < pages_of_sequence(problem)) {
    refuse(
        fmt::format("{}: its shape {} is not a row for each of {} sequences with the {} pages of "
                    "seqlen_kv={}",
                    file.name, shape_text(file.shape), problem.batch, pages_of_sequence(problem),
                    problem.seqlen_kv));
  }
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const int keys = lengths[static_cast<std::size_t>(b)];
    for (std::int64_t j = 0; j * problem.page_size < keys; ++j) {
      const int page = file.table[static_cast<std::size_t>(b * file.shape[1] + j)];
      if (page >= 0 && page < pages) continue;
      refuse(
          fmt::format("{}: entry [{}, {}] is {}, but sequence {} has {} keys in pages of {}; it "
                      "must be one of the {} pages of k and v",
                      file.name, b, j, page, b, keys, problem.page_size, pages));
    }
  }
}

std::vector<std::int64_t> output_shape(const Problem& p) {
  if (p.lengths == Lengths::kPacked) {
    if (p.layout == Layout::kBhsd) return {p.num_heads_q, total_tokens(p).q, p.head_dim_v};
    return {total_tokens(p).q, p.num_heads_q, p.head_dim_v};
  }
  if (p.layout == Layout::kBhsd) return {p.batch, p.num_heads_q, p.seqlen_q, p.head_dim_v};
  return {p.batch, p.seqlen_q, p.num_heads_q, p.head_dim_v};
}

}  // namespace attnforge::cli
