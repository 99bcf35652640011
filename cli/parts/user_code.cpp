// user_code.cpp - the user's texts as options of commands.
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/parts/part.h"
#include "cli/parts/user_code_options.h"

namespace attnforge::cli {
namespace {

class CodePart : public RunPart {
 public:
  void add_problem_options(Command& verb) override {
    verb.add_option("--score", options_.score, "C++ that says what becomes of a score s")
        ->type_name("TEXT");
    verb.add_option("--mask", options_.mask, "C++ that says whether query q sees key k")
        ->type_name("TEXT");
    may_repeat(verb.add_option("--arg", options_.args,
                               "What the texts name: a number, an .npy file, or random for an "
                               "array of floats; may be repeated")
                   ->type_name("NAME=VALUE"));
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
    if (!flags.random) check_arrays_given(problem, options_);
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
