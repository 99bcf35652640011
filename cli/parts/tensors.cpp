#include "cli/parts/tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "attnforge/error.h"
#include "cli/options/problems.h"
#include "cli/options/quoted_words.h"

namespace attnforge::cli {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::kInvalidProblem, why); }

FileSizes sizes_of(const NamedHeader& file, Layout layout, bool packed) {
  const std::vector<std::int64_t>& s = file.header.shape;
  if (packed) {
    if (s.size() != 3) {
      refuse(fmt::format("{}: its shape {} has {} dimensions; of packed ones 3 are needed: {}",
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

/// "fwd", the words, and for each size and dtype that no word gives what the files say.
std::string complete_text(const std::vector<std::string>& words, const FileSizes& q,
                          const FileSizes& k, const FileSizes& v,
                          const std::array<DType, 3>& dtypes, const SequenceFiles& sequences) {
  const std::set<std::string> given = keys_of(words);
  const auto has = [&](std::string_view key) { return given.count(std::string(key)) != 0; };
  std::string text = std::ranges::any_of(given, is_operation) ? "" : "fwd";
  for (const std::string& word : words) text += " " + word;
  const auto add = [&](const char* key, std::int64_t value) {
    text += fmt::format(" {}={}", key, value);
  };

  text += sequence_words(sequences, given, packing_of(words, sequences), q, k);
  if (!has("num_heads")) {
    if (!has("num_heads_q")) add("num_heads_q", q.num_heads);
    if (!has("num_heads_kv")) add("num_heads_kv", k.num_heads);
  }
  if (!has("head_dim")) add("head_dim", q.head_dim);
  if (!has("head_dim_v") && !has("head_dim")) add("head_dim_v", v.head_dim);
  const bool for_all = std::ranges::any_of(
      element_formats(), [&](const ElementFormat& format) { return has(format.name); });
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

Problem problem_of_files(const InputHeaders& in, const std::vector<std::string>& arguments,
                         const SequenceFiles& sequences, const ReadText& read) {
  const std::vector<std::string> words = words_of(arguments);
  const Layout layout = layout_of(words);
  const Packing packing = packing_of(words, sequences);
  const FileSizes q = sizes_of(in.q, layout, packing.q), k = sizes_of(in.k, layout, packing.kv),
                  v = sizes_of(in.v, layout, packing.kv);
  const std::array<DType, 3> dtypes = {npy_dtype(in.q.header, in.uint16_is_bf16, in.q.name),
                                       npy_dtype(in.k.header, in.uint16_is_bf16, in.k.name),
                                       npy_dtype(in.v.header, in.uint16_is_bf16, in.v.name)};
  Problem p = read(complete_text(words, q, k, v, dtypes, sequences));
  take_no_rows(packing, q, k, p);
  const auto check_rows = [&](const NamedHeader& file, const FileSizes& sizes, bool of_keys) {
    const FileRows rows = rows_of_files(p, of_keys);
    if (rows.batch) check_size(file, "batch", sizes.batch, *rows.batch);
    check_size(file, rows.name, sizes.seqlen, rows.count);
  };
  check_pools(sequences, p, {in.k.name, k.batch}, {in.v.name, v.batch});
  check_rows(in.q, q, false);
  check_size(in.q, "num_heads_q", q.num_heads, p.num_heads_q);
  check_size(in.q, "head_dim", q.head_dim, p.head_dim);
  check_rows(in.k, k, true);
  check_size(in.k, "num_heads_kv", k.num_heads, p.num_heads_kv);
  check_size(in.k, "head_dim", k.head_dim, p.head_dim);
  check_rows(in.v, v, true);
  check_size(in.v, "num_heads_kv", v.num_heads, p.num_heads_kv);
  check_size(in.v, "head_dim_v", v.head_dim, p.head_dim_v);
  check_dtype(in.q, dtypes[0], p.dtype_q);
  check_dtype(in.k, dtypes[1], p.dtype_k);
  check_dtype(in.v, dtypes[2], p.dtype_v);
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

}  // namespace attnforge::cli
