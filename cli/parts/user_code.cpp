#include "cli/parts/user_code.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <span>
#include <sstream>

#include "attnforge/printable.h"
#include "cli/files/npy.h"
#include "cli/parts/part.h"
#include "cli/refuse.h"

namespace attnforge::cli {
namespace {

struct Given {
  std::string name, value;
  bool is_file() const { return value.ends_with(".npy"); }
  bool is_random() const { return value == "random"; }
};

Given given_of(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == 0 || equals == text.npos || equals + 1 == text.size()) {
    refuse(kInvalidArgument,
           "--arg {} must be NAME=VALUE, with a number, an .npy file or `random` for an array",
           printable(text));
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

/// An argument as args has it: "float* slope[num_heads_q]". The library checks the text; this only
/// finds the type and the name.
struct Declared {
  std::string type, name;
  bool is_array = false, has_size = false;
};

std::vector<Declared> declared_in(const std::string& args) {
  std::vector<Declared> all;
  std::istringstream list(args);
  for (std::string one; std::getline(list, one, ',');) {
    Declared& declared = all.emplace_back();
    declared.is_array = one.find('*') != one.npos;
    declared.has_size = one.find('[') != one.npos;
    for (char& c : one)
      if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_') c = ' ';
    std::istringstream words(one);
    for (std::string word; declared.name.empty() && words >> word;) {
      if (word == "const" || word == "__restrict__") continue;
      (declared.type.empty() ? declared.type : declared.name) = word;
    }
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
  refuse(kInvalidArgument,
         "{}: its {} cannot be an argument; use float32, int32, float16, bfloat16 or bool", path,
         descr);
}

std::int64_t elements_of(const NpyArray& array) {
  const auto& shape = array.header.shape;
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

/// What is given, as args declares it. The library refuses arrays of no elements.
std::string declaration(const Given& given) {
  if (given.is_random()) return fmt::format("float* {}", given.name);
  if (given.is_file()) {
    const NpyArray array = read_npy(given.value);
    return fmt::format("{}* {}[{}]", type_of(array, given.value), given.name, elements_of(array));
  }
  if (number_in<std::int32_t>(given.value))
    return fmt::format("int {} = {}", given.name, given.value);
  if (number_in<float>(given.value)) return fmt::format("float {} = {}", given.name, given.value);
  refuse(kInvalidArgument,
         "--arg {}={} must be a number, an .npy file, or `random` for an array of floats",
         printable(given.name), printable(given.value));
}

/// Adds a text as a word: a problem is read with all that its args may belong to.
void add_text(std::string& problem, std::string_view name, const std::string& given) {
  if (given.empty()) return;
  const std::string begin = fmt::format("{}=", name);
  for (const std::string& word : split_words(problem)) {
    if (word.starts_with(begin))
      refuse(kInvalidArgument, "the problem says {} already; leave out --{}", printable(word),
             name);
  }
  problem += " " + quoted_word(begin, given);
}

/// The files of --arg, for each of the problem's args in their order: none for the others. Throws
/// as set_code_arrays().
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
      refuse(kInvalidArgument, "{}: it has elements of type {}, and args=\"{}\" says {}* {}",
             given.value, type, printable(problem.args), found->type, found->name);
    }
    files[static_cast<std::size_t>(found - declared.begin())] = std::move(array);
  }
  return files;
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
      refuse(kInvalidArgument, "--arg {}: args=\"{}\" names it already, {}", printable(arg),
             printable(problem.args),
             found->is_array ? "as an array: its value is an .npy file or `random`"
                             : "as a number: write its value there, as int window = 1024");
    }
  }
  validate(problem);
  return problem;
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
      refuse(kInvalidArgument, "{}: its file has {} elements, and args=\"{}\" {} {}",
             declared[index].name, has, printable(problem.args),
             declared[index].has_size ? "says" : "has memory for", wanted);
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

namespace {

/// The user's texts as options of commands.
class CodePart : public RunPart {
 public:
  void add_problem_options(Command& verb) override {
    add_value(verb, "--score TEXT", options_.score, "C++ that says what becomes of a score s");
    add_value(verb, "--mask TEXT", options_.mask, "C++ that says whether query q sees key k");
    may_repeat(add_value(verb, "--arg NAME=VALUE", options_.args,
                         "What the texts name: a number, an .npy file, or random for an array of "
                         "floats; may be repeated"));
  }
  const char* help() const override {
    return R"(--score and --mask are C++ of your own (docs/USER_CODE.md), --arg values for what they name. An array is an .npy file of float32,
int32, float16, bfloat16 or bool, or random; its size and type are then the file's, and other arrays are declared by args=.
)";
  }
  std::string examples(std::string_view verb) const override {
    if (verb == "inspect") {
      return R"(  attnforge inspect --mask 'k <= q && q - k < 1024' --arch sm_90a fwd bf16 num_heads=16 seqlen=4096 head_dim=128
)";
    }
    return R"(  attnforge run --random 1 --score 's + slope[head] * (k - q)' --arg slope=slope.npy fwd bf16 num_heads=16 seqlen=8192 head_dim=128 causal
)";
  }

  void add_words(std::string& text) const override { add_texts(text, options_); }
  Problem completed(const Problem& problem, std::uint64_t) override {
    return with_arguments(problem, options_);
  }
  void check(const Problem& problem, const RunFlags& flags) const override {
    if (flags.random) return;
    std::vector<std::string> given;
    for (const std::string& text : options_.args) given.push_back(given_of(text).name);
    for (const Declared& declared : declared_in(problem.args)) {
      if (!declared.is_array || std::ranges::find(given, declared.name) != given.end()) continue;
      refuse(kInvalidArgument,
             "--arg {0}=FILE.npy is missing: args=\"{1}\" has the array {0}; `random` in place of "
             "the file makes it up",
             declared.name, printable(problem.args));
    }
  }
  void take(const Problem& problem, const RunFlags&, HostTensors& host) const override {
    set_code_arrays(problem, options_, host);
  }
  void know(const Problem& problem, KnownTables& known) const override {
    for (std::optional<NpyArray>& file : code_files(problem, options_))
      known.arrays.push_back(file ? std::move(file->data) : std::vector<std::byte>());
  }
  std::optional<Drawing> drawing(const Problem& problem) const override {
    if (problem.mask.empty()) return std::nullopt;
    const std::vector<std::optional<NpyArray>> files = code_files(problem, options_);
    std::vector<std::span<const std::byte>> arrays(files.size());
    for (std::size_t i = 0; i < files.size(); ++i)
      if (files[i]) arrays[i] = files[i]->data;
    return text_drawing(problem, arrays);
  }

 private:
  CodeOptions options_;
};

}  // namespace

std::unique_ptr<RunPart> code_part() { return std::make_unique<CodePart>(); }

}  // namespace attnforge::cli
