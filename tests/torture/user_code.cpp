// user_code.cpp - mutated texts of score and mask on the GPU: what the compiler takes is run by the
// tensor-core families and by the oracle, which must agree as far as the text lets rounding errors
// decide. Texts that could read beyond an array or run for ever are not run: that is their author's
// mistake. Ends with 0 if everything agreed, 77 without a GPU.
//   torture_user_code [--seconds S] [--seed X]
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "attnforge/error.h"
#include "generator/tensors/operands.h"
#include "generator/user_code/code_operands.h"
#include "generator/user_code/user_code.h"
#include "reference/half.h"
#include "reference/parallel.h"
#include "runtime/memory.h"
#include "templates/registry.h"
#include "tests/conformance/proof.h"
#include "tests/fuzz/code_inputs.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/mutate.h"
#include "tests/torture/gpu_main.h"

namespace attnforge::torture {
namespace {

using namespace test;

constexpr std::size_t kTogether = 64;  // texts that are compiled at once
constexpr float kPerturbation = 1e-5f;

struct Counts {
  int texts = 0, refused = 0, ran = 0, compared = 0, differed = 0;
  std::string text() const {
    return fmt::format(
        "{} texts: {} the compiler refused, {} ran, {} of them compared, {} differed", texts,
        refused, ran, compared, differed);
  }
};

// ---- Which texts are run, and which are compared ----

bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// What stands in each pair of square brackets; "?" for an array's name without brackets.
std::set<std::string> subscripts(const std::string& text, const std::string& args) {
  std::set<std::string> found;
  for (const CodeArgument& argument : code_arguments(args)) {
    if (!argument.is_array) continue;
    for (std::size_t at = text.find(argument.name); at != text.npos;
         at = text.find(argument.name, at + 1)) {
      const std::size_t end = at + argument.name.size();
      if ((at > 0 && in_name(text[at - 1])) || (end < text.size() && in_name(text[end]))) continue;
      int depth = 0;
      std::size_t close = end;
      for (; close < text.size(); ++close) {
        depth += text[close] == '[' ? 1 : text[close] == ']' ? -1 : 0;
        if (depth == 0) break;
      }
      const bool indexed = end < text.size() && text[end] == '[' && close < text.size();
      found.insert(argument.name + (indexed ? text.substr(end, close - end) : "?"));
    }
  }
  return found;
}

/// Arguments and subscripts of the ready-made texts.
struct Known {
  std::set<std::string> args, subscripts;
};
const Known& known() {
  static const Known all = [] {
    Known result;
    for (const std::string& input : fuzz::right_code_inputs()) {
      const CodeTexts texts = fuzz::texts_of(input);
      result.args.insert(texts.args);
      result.subscripts.merge(subscripts(texts.score, texts.args));
      result.subscripts.merge(subscripts(texts.mask, texts.args));
    }
    return result;
  }();
  return all;
}

/// No statements, no addresses, and arrays are read where they have elements.
bool may_run(const CodeTexts& texts) {
  if (!known().args.contains(texts.args)) return false;
  for (const std::string* text : {&texts.score, &texts.mask}) {
    if (text->find('{') != text->npos) return false;
    for (std::size_t at = 0; (at = text->find('&', at)) != text->npos; at += 2)
      if (text->substr(at, 2) != "&&") return false;
    if (!std::ranges::includes(known().subscripts, subscripts(*text, texts.args))) return false;
  }
  return true;
}

/// Whether a text's value is one in C++: nothing is divided by what may be 0, no shift, no number
/// so large that its rounding is.
bool is_defined(const std::string& text) {
  constexpr double kLargest = 1e4;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '<' || c == '>') {
      if (at + 1 < text.size() && text[at + 1] == c) return false;
    } else if (c == '/' || c == '%') {
      const std::size_t next = text.find_first_not_of(" \n", at + 1);
      if (next == text.npos || std::strtod(text.c_str() + next, nullptr) == 0) return false;
    } else if (std::isdigit(static_cast<unsigned char>(c)) != 0 &&
               (at == 0 || !in_name(text[at - 1]))) {
      if (!(std::strtod(text.c_str() + at, nullptr) <= kLargest)) return false;
    }
  }
  return true;
}

// ---- Runs ----

struct Outputs {
  std::vector<float> o, lse;  // rows of all heads and sequences
};

Outputs outputs_of(HostProblem& host) {
  const Problem& p = host.problem;
  const Tensors t = host.tensors();
  Outputs outputs;
  for (std::int64_t batch = 0; batch < p.batch; ++batch) {
    for (std::int64_t head = 0; head < p.num_heads_q; ++head) {
      for (std::int64_t row = 0; row < p.seqlen_q; ++row) {
        const std::int64_t at = batch * t.o.stride_batch + head * t.o.stride_head +
                                row * t.o.stride_row;
        for (int d = 0; d < p.head_dim_v; ++d)
          outputs.o.push_back(load_element(p.dtype_o, t.o.data, at + d));
        outputs.lse.push_back(
            t.lse.data[batch * t.lse.stride_batch + head * t.lse.stride_head + row]);
      }
    }
  }
  return outputs;
}

Outputs run(const Compiled& compiled, GpuProblem& gpu, const HostProblem& host) {
  HostProblem after = after_run(Loaded(compiled), gpu, host);
  EXPECT_EQ(after.trespass(), "") << to_string(host.problem);
  return outputs_of(after);
}

/// The oracle's launch with scores that are off by a factor.
Compiled perturbed(const Compiled& oracle, Problem problem, float factor) {
  problem.softmax_scale = effective_softmax_scale(problem) * factor;
  Compiled other = oracle;
  other.launch = oracle.candidate.family->launch(oracle.candidate.config, problem, gpu_facts());
  return other;
}

/// "", or the first row that is further off than rounding errors of the scores explain, which
/// `around` are the oracle's outputs with.
std::string difference(const Outputs& got, const Outputs& wanted,
                       const std::vector<Outputs>& around) {
  constexpr float kMostLse = 1e3f, kFactor = 3, kOTolerance = 0.03f, kLseTolerance = 2e-3f;
  const std::size_t columns = wanted.o.size() / wanted.lse.size();
  for (std::size_t row = 0; row < wanted.lse.size(); ++row) {
    const float lse = wanted.lse[row];
    if (std::isnan(lse) || lse > kMostLse || (lse < -kMostLse && !std::isinf(lse))) continue;
    float lse_moves = 0, o_moves = 0;
    bool unsteady = false;
    for (const Outputs& other : around) {
      unsteady |= std::isinf(other.lse[row]) != std::isinf(lse) || std::isnan(other.lse[row]);
      lse_moves = std::max(lse_moves, std::abs(other.lse[row] - lse));
      for (std::size_t d = row * columns; d < (row + 1) * columns; ++d)
        o_moves = std::max(o_moves, std::abs(other.o[d] - wanted.o[d]));
    }
    if (unsteady) continue;
    const bool same_lse = std::isinf(lse)
                              ? got.lse[row] == lse
                              : std::abs(got.lse[row] - lse) <= kLseTolerance + kFactor * lse_moves;
    if (!same_lse) return fmt::format("row {}: lse {} instead of {}", row, got.lse[row], lse);
    for (std::size_t d = row * columns; d < (row + 1) * columns; ++d) {
      if (std::abs(got.o[d] - wanted.o[d]) <= kOTolerance + kFactor * o_moves) continue;
      return fmt::format("row {}, column {}: o {} instead of {}", row, d - row * columns, got.o[d],
                         wanted.o[d]);
    }
  }
  return "";
}

struct TextOnGpu {
  Problem problem;
  std::vector<Compiled> kernels;  // the oracle's is the last
};

void check_text(const TextOnGpu& text, std::uint64_t seed, Counts& counts) {
  const Problem& problem = text.problem;
  const bool refused = std::ranges::any_of(text.kernels,
                                           [](const Compiled& c) { return !c.failure.empty(); });
  if (refused) {
    ++counts.refused;
    return;
  }
  const HostProblem host = make_host_problem(problem, kConformanceSeed);
  GpuProblem gpu(host);
  HostTensors tables;
  set_code_arguments(problem, tables, seed);
  const Buffer arrays = tables.code_arrays.empty()
                            ? Buffer()
                            : Buffer::of(std::span<const std::byte>(tables.code_arrays));
  const std::vector<CodeArgument> arguments = code_arguments(problem.args);
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if (arguments[i].is_array)
      tables.code_words[i] += reinterpret_cast<std::uintptr_t>(arrays.data());
  gpu.tensors.code_arguments = tables.code_words.data();

  const Compiled& oracle = text.kernels.back();
  const Outputs wanted = run(oracle, gpu, host);
  std::vector<Outputs> around;
  for (const float factor : {1 - kPerturbation, 1 + kPerturbation})
    around.push_back(run(perturbed(oracle, problem, factor), gpu, host));
  ++counts.ran;
  const bool compared = is_defined(problem.score) && is_defined(problem.mask);
  counts.compared += compared;
  for (const Compiled& kernel : text.kernels) {
    if (&kernel == &oracle) continue;
    const Outputs got = run(kernel, gpu, host);
    const std::string off = compared ? difference(got, wanted, around) : "";
    if (off.empty()) continue;
    ++counts.differed;
    ADD_FAILURE() << off << "\n  " << to_string(problem) << "\n  "
                  << to_string(kernel.candidate.config);
  }
}

// ---- The loop ----

/// The next text that may run.
Problem next_problem(fuzz::Random& random) {
  static const std::vector<std::string> kInputs = fuzz::right_code_inputs();
  static const std::vector<std::string> kWords = fuzz::code_words(false);
  static const std::vector<const char*> kProblems = {
      "fwd bf16 batch=2 num_heads=4:2 seqlen=150:203 head_dim=64 lse",
      "fwd fp16 batch=2 num_heads=2 seqlen=200 head_dim=128 causal lse",
      "fwd bf16 batch=2 num_heads=4:1 seqlen=70:300 head_dim=64 window_left=100 lse"};
  for (;;) {
    const std::string& input = kInputs[random.below(kInputs.size())];
    const CodeTexts texts = random.below(4) != 0 ? fuzz::other_code(fuzz::texts_of(input), random)
                                                 : fuzz::texts_of(fuzz::mutated(
                                                       input, kInputs[random.below(kInputs.size())],
                                                       kWords, random));
    if (texts.score.size() + texts.mask.size() > 512) continue;
    Problem problem = parse_problem(kProblems[random.below(kProblems.size())]);
    problem.score = texts.score;
    problem.mask = texts.mask;
    problem.args = texts.args;
    try {
      validate(problem);
      if (has_code(problem) && may_run(texts)) return problem;
    } catch (const Error&) {  // tests/fuzz/user_code.cpp is about these
    }
  }
}

std::vector<Compiled> compile_all(const Problem& problem, unsigned seed) {
  std::vector<Compiled> kernels;
  for (const char* name : {"fwd_wgmma_sm90a", "fwd_mma_sm80", "fwd_naive"}) {
    for (Compiled& compiled : compile_some(*find_family(name), problem, 0, seed))
      kernels.push_back(std::move(compiled));
  }
  return kernels;
}

Options options;

TEST(MutatedTexts, AreRefusedOrComputeWhatTheOracleDoes) {
  ScopedContext context(gpu_context());
  fuzz::Random random(options.seed);
  Counts counts;
  {
    Progress progress("torture_user_code");
    // A driver's error is thrown and ends this: a GPU that is lost stays lost.
    while (progress.seconds() < options.seconds) {
      std::vector<TextOnGpu> texts(kTogether);
      for (TextOnGpu& text : texts) text.problem = next_problem(random);
      parallel_for(static_cast<std::int64_t>(texts.size()), 0, [&](std::int64_t i) {
        TextOnGpu& text = texts[static_cast<std::size_t>(i)];
        text.kernels = compile_all(text.problem, kConformanceSeed);
      });
      for (const TextOnGpu& text : texts) {
        ++counts.texts;
        check_text(text, options.seed, counts);
        progress.show(counts.text());
      }
    }
    fmt::print("torture_user_code: {} in {:.1f} s, seed {}\n", counts.text(), progress.seconds(),
               options.seed);
  }
  EXPECT_GT(counts.compared, 0);
}

}  // namespace
}  // namespace attnforge::torture

int main(int argc, char** argv) {
  using namespace attnforge::torture;
  return run_on_gpu("torture_user_code", argc, argv, options);
}
