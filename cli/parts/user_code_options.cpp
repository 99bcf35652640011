#include "cli/parts/user_code_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

#include "attnforge/error.h"
#include "attnforge/printable.h"
#include "cli/files/npy.h"
#include "cli/options/quoted_words.h"

namespace attnforge::cli {
namespace {

[[noreturn]] void refuse_code_option(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

struct Given {
  std::string name, value;
  bool is_file() const { return value.ends_with(".npy"); }
  bool is_random() const { return value == "random"; }
};

Given given_of(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == 0 || equals == text.npos || equals + 1 == text.size()) {
    refuse_code_option(fmt::format(
        "--arg {} must be NAME=VALUE, with a number, an .npy file or `random` for an array",
        printable(text)));
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

/// An argument as args has it: "float* slope[num_heads_q]". The library checks the text; this only
/// finds the type and the name.
struct Declared {
  std::string type, name;
  bool is_array = false, has_size = false;
};

std::vector<Declared> declared_in(std::string_view args) {
  std::vector<Declared> all;
  const auto is_part_of_a_name = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  while (!args.empty()) {
    const std::string_view one = args.substr(0, args.find(','));
    args.remove_prefix(std::min(args.size(), one.size() + 1));
    Declared declared{.type = "",
                      .name = "",
                      .is_array = one.find('*') != one.npos,
                      .has_size = one.find('[') != one.npos};
    for (std::size_t at = 0; at < one.size() && declared.name.empty();) {
      std::size_t end = at;
      while (end < one.size() && is_part_of_a_name(one[end])) ++end;
      const std::string word(one.substr(at, end - at));
      at = std::max(end, at + 1);
      if (word.empty() || word == "const" || word == "__restrict__") continue;
      (declared.type.empty() ? declared.type : declared.name) = word;
    }
    all.push_back(declared);
  }
  return all;
}

/// What args calls the elements of a file.
std::string type_of(const NpyArray& array, const std::string& path) {
  const std::string& descr = array.header.descr;
  if (descr == "<f4") return "float";
  if (descr == "<i4") return "int";
  if (descr == "<f2") return "fp16";
  if (descr == "<V2") return "bf16";
  if (descr == "|b1" || descr == "|u1") return "bool";
  refuse_code_option(
      fmt::format("{}: its {} cannot be an argument; use float32, int32, float16, bfloat16 or bool",
                  path, descr));
}

std::int64_t elements_of(const NpyArray& array) {
  std::int64_t count = 1;
  for (const std::int64_t size : array.header.shape) count *= size;
  return count;
}

template <class Number>
bool is_number(const std::string& text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

/// What is given, as args declares it. The library refuses arrays of no elements.
std::string declaration(const Given& given) {
  if (given.is_random()) return fmt::format("float* {}", given.name);
  if (given.is_file()) {
    const NpyArray array = read_npy(given.value);
    return fmt::format("{}* {}[{}]", type_of(array, given.value), given.name, elements_of(array));
  }
  if (is_number<std::int32_t>(given.value))
    return fmt::format("int {} = {}", given.name, given.value);
  if (is_number<float>(given.value)) return fmt::format("float {} = {}", given.name, given.value);
  refuse_code_option(
      fmt::format("--arg {}={} must be a number, an .npy file, or `random` for an array of floats",
                  printable(given.name), printable(given.value)));
}

/// Adds a text as a word: a problem is read with all that its args may belong to.
void add_text(std::string& problem, std::string_view name, const std::string& given) {
  if (given.empty()) return;
  const std::string begin = fmt::format("{}=", name);
  for (const std::string& word : split_words(problem)) {
    if (word.starts_with(begin))
      refuse_code_option(
          fmt::format("the problem says {} already; leave out --{}", printable(word), name));
  }
  problem += " " + quoted_word(begin, given);
}

}  // namespace

void add_texts(std::string& problem, const CodeOptions& options) {
  add_text(problem, "score", options.score);
  add_text(problem, "mask", options.mask);
}

Problem with_arguments(Problem problem, const CodeOptions& options) {
  const std::vector<Declared> declared = declared_in(problem.args);
  for (const std::string& arg : options.args) {
    const Given given = given_of(arg);
    const auto found = std::ranges::find(declared, given.name, &Declared::name);
    if (found == declared.end()) {
      problem.args += (problem.args.empty() ? "" : ", ") + declaration(given);
    } else if (!found->is_array || !(given.is_file() || given.is_random())) {
      refuse_code_option(fmt::format(
          "--arg {}: args=\"{}\" names it already, {}", printable(arg), printable(problem.args),
          found->is_array ? "as an array: its value is an .npy file or `random`"
                          : "as a number: write its value there, as int window = 1024"));
    }
  }
  validate(problem);
  return problem;
}

std::vector<std::optional<NpyArray>> code_files(const Problem& problem,
                                                const CodeOptions& options) {
  const std::vector<Declared> declared = declared_in(problem.args);
  std::vector<std::optional<NpyArray>> files(declared.size());
  for (const std::string& text : options.args) {
    const Given given = given_of(text);
    if (!given.is_file()) continue;
    const auto found = std::ranges::find(declared, given.name, &Declared::name);
    ATTNFORGE_ASSERT(found != declared.end(), "with_arguments() added what was not there");
    NpyArray array = read_npy(given.value);
    if (const std::string type = type_of(array, given.value); type != found->type) {
      refuse_code_option(fmt::format("{}: it has elements of type {}, and args=\"{}\" says {}* {}",
                                     given.value, type, printable(problem.args), found->type,
                                     found->name));
    }
    files[static_cast<std::size_t>(found - declared.begin())] = std::move(array);
  }
  return files;
}

void check_arrays_given(const Problem& problem, const CodeOptions& options) {
  std::vector<std::string> given;
  for (const std::string& text : options.args) given.push_back(given_of(text).name);
  for (const Declared& declared : declared_in(problem.args)) {
    if (!declared.is_array || std::ranges::find(given, declared.name) != given.end()) continue;
    refuse_code_option(
        fmt::format("--arg {0}=FILE.npy is missing: args=\"{1}\" has the array {0}; `random` in "
                    "place of the file makes it up",
                    declared.name, printable(problem.args)));
  }
}

void set_code_arrays(const Problem& problem, const CodeOptions& options, HostTensors& host) {
  const std::vector<Declared> declared = declared_in(problem.args);
  const std::vector<std::optional<NpyArray>> files = code_files(problem, options);
  const std::vector<std::int64_t> elements = code_array_elements(problem);
  for (std::size_t index = 0; index < files.size(); ++index) {
    if (!files[index]) continue;
    const NpyArray& array = *files[index];
    const std::int64_t has = elements_of(array), wanted = elements[index];
    if (declared[index].has_size ? has != wanted : has > wanted) {
      refuse_code_option(fmt::format("{}: its file has {} elements, and args=\"{}\" {} {}",
                                     declared[index].name, has, printable(problem.args),
                                     declared[index].has_size ? "says" : "has memory for", wanted));
    }
    std::ranges::copy(
        array.data, host.code_arrays.begin() + static_cast<std::ptrdiff_t>(host.code_words[index]));
  }
}

std::vector<std::uint64_t> code_words_at(const Problem& problem, const HostTensors& host,
                                         const void* arrays) {
  const std::vector<Declared> declared = declared_in(problem.args);
  std::vector<std::uint64_t> words = host.code_words;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (declared[i].is_array) words[i] += reinterpret_cast<std::uintptr_t>(arrays);
  }
  return words;
}

}  // namespace attnforge::cli
