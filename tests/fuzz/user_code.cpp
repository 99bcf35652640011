// user_code.cpp - any text as score, mask and args: refused in words, or it stays in its place in
// the source, and the compiler takes it or names its line.
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <span>
#include <thread>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "generator/shape.h"
#include "generator/user_code/mask_rule.h"
#include "generator/user_code/mask_windows.h"
#include "generator/user_code/user_code.h"
#include "runtime/compile/compiler.h"
#include "templates/registry.h"
#include "tests/fuzz/code_inputs.h"
#include "tests/fuzz/fuzz.h"

namespace attnforge::fuzz {
namespace {

constexpr const char* kArch = "80";
// Of what is accepted, one of so many is compiled: a compile takes as long as thousands of texts.
constexpr std::uint64_t kCompiledOne = 8;
constexpr std::size_t kLongestCompiled = 1024;
constexpr auto kMostCompileTime = std::chrono::seconds(5);

Problem with_texts(const CodeTexts& texts) {
  Problem problem = parse_problem("fwd bf16 batch=2 num_heads=2 seqlen=64 head_dim=64");
  problem.score = texts.score;
  problem.mask = texts.mask;
  problem.args = texts.args;
  return problem;
}

/// What the scanner of tokens says, by bytes: nothing in it is read as another language than
/// expressions, and it closes what it opens.
void require_closed(std::string_view text) {
  std::string open;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    require(c == '\n' || (' ' <= c && c <= '~'), "a text with other bytes is accepted");
    require(std::string_view("\"'\\#`@$").find(c) == std::string_view::npos,
            fmt::format("a text with {} is accepted", c));
    for (const char* two : {"//", "/*", "??", "<:", ":>", "<%", "%>", "%:"})
      require(text.substr(i, 2) != two, fmt::format("a text with {} is accepted", two));
    const std::size_t opens = std::string_view("([{").find(c);
    const std::size_t closes = std::string_view(")]}").find(c);
    if (opens != std::string_view::npos) open += ")]}"[opens];
    if (closes == std::string_view::npos) continue;
    require(open.ends_with(c), "a text that leaves its brackets is accepted");
    open.pop_back();
  }
  require(open.empty(), "a text that leaves a bracket open is accepted");
}

/// A source has the text so many times, on lines of its own under its name.
void require_in_place(const std::string& entry, std::string_view name, const std::string& text,
                      int times = 1) {
  if (text.empty()) return;
  const std::string there = fmt::format("#line 1 \"{}\"\n{} ));\n#line 1 \"entry\"\n", name, text);
  std::size_t at = 0;
  for (int i = 0; i < times; ++i, ++at) {
    at = entry.find(there, at);
    require(at != entry.npos, fmt::format("the source does not have {} as it is", name));
  }
  require(entry.find(fmt::format("#line 1 \"{}\"", name), at) == entry.npos,
          fmt::format("the source has more texts {}", name));
}

/// The config that an untuned plan would take, which texts decide only by what of them there is.
const Config& config_of(const Family& family, const Problem& problem) {
  static std::map<std::pair<const Family*, std::string>, Config> known;
  const auto [entry, is_new] = known.try_emplace({&family, initializer(shape_of(problem))});
  if (is_new) entry->second = candidates(family, problem, typical_device(kArch)).front().config;
  return entry->second;
}

Source source_of(const Family& family, const Problem& problem) {
  const Config& config = config_of(family, problem);
  const Source source = family.render(config, problem);
  const bool plain = std::ranges::all_of(
      source.name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  require(plain, "a kernel of the name " + source.name);
  const Launch launch = family.launch(config, problem, typical_device(kArch));
  require(launch.steps.back().kernel == source.name, "another kernel is launched");
  return source;
}

/// Makes a compile give up that takes too long.
class Deadline {
 public:
  Deadline() : thread_([this] { wait(); }) {}
  ~Deadline() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  const std::atomic<bool>& passed() const { return passed_; }

 private:
  void wait() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kMostCompileTime, [this] { return done_; })) passed_ = true;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::atomic<bool> passed_ = false;
  std::thread thread_;
};

/// Whether an error's text names a line and a column that one of the texts has, or the place after
/// its last.
bool names_a_place(const std::string& message, const Problem& problem) {
  for (const auto& [name, text] :
       {std::pair("score", &problem.score), std::pair("mask", &problem.mask)}) {
    const std::string begin = fmt::format("{}, line ", name);
    const std::size_t at = message.find(begin);
    if (at == message.npos) continue;
    int line = 0, column = 0;
    if (std::sscanf(message.c_str() + at + begin.size(), "%d, column %d", &line, &column) != 2)
      return false;
    const auto lines = 1 + std::count(text->begin(), text->end(), '\n');
    return 1 <= line && line <= lines && column >= 1;
  }
  return false;
}

void require_compiled_or_explained(const Source& source, const Problem& problem) {
  const Deadline deadline;
  try {
    compile(source, typical_device(kArch).arch, {.unwanted = &deadline.passed()});
  } catch (const Error& error) {
    require_readable(error.what());
    require(error.code() == ErrorCode::kCompile, error.what());
    require(deadline.passed() || names_a_place(error.what(), problem),
            "an error that names no place in the text: " + std::string(error.what()));
  }
}

/// The same texts backward, with the gradient of the first array of floats that the score reads.
void fuzz_dargs(Problem problem, bool compiled) {
  problem.op = Op::kBackward;
  for (const CodeArgument& argument : code_arguments(problem.args)) {
    const bool floats = argument.type != CodeArgument::Type::kInt &&
                        argument.type != CodeArgument::Type::kBool;
    if (problem.dargs.empty() && argument.is_array && floats && names(problem.score, argument.name))
      problem.dargs = argument.name;
  }
  if (problem.dargs.empty()) return;
  require(accepts([&] { validate(problem); }), "not valid with dargs: " + to_string(problem));
  require(parse_problem(to_string(problem)) == problem, "another problem is read back");
  for (const char* name : {"bwd_naive", "bwd_mma_sm80"}) {
    const Family& family = *find_family(name);
    const Source source = family.render(config_of(family, problem), problem);
    require_in_place(source.entry, "score", problem.score, 2);
    if (compiled && family.tier == Tier::kOracle) require_compiled_or_explained(source, problem);
  }
}

/// What the CPU computes of texts, as far as it knows them: nothing is read outside of arrays, and
/// windows with what they leave of a mask see what the whole text sees.
void fuzz_on_cpu(const Problem& problem) {
  const std::vector<CodeArgument> arguments = code_arguments(problem.args);
  const std::vector<std::byte> bytes(64, std::byte{0x3d});
  const std::vector<std::span<const std::byte>> arrays(arguments.size(), bytes);
  const std::vector<CodeValue> values(arguments.size(), {1, bytes});
  constexpr std::int64_t kPlaces[] = {0, 1, 5, 31, 63};
  const CodeTree score = code_tree(problem.score, CodeText::kScore, arguments);
  for (const std::int64_t place : kPlaces) {
    if (!score.unknown.empty()) break;
    const TakeRead read = [&](std::size_t argument, std::int64_t element, double) {
      require(argument < arguments.size() && element >= 0 && element < 64, "a read outside");
    };
    slope_of(score, {double(place) - 2, 1, 1, place, 63 - place, 64, 64}, values, &read);
  }
  if (problem.mask.empty()) return;
  const MaskTerms terms = mask_terms(problem);
  const MaskRule whole(problem.mask, problem, arrays);
  const MaskRule rest(terms.code.empty() ? "1" : terms.code, problem, arrays);
  if (!whole.unknown().empty() || !rest.unknown().empty()) return;
  for (const std::int64_t q : kPlaces) {
    for (const std::int64_t k : kPlaces) {
      const bool windows = (!terms.bounds.right || k - q <= *terms.bounds.right) &&
                           (!terms.bounds.left || k - q >= -*terms.bounds.left);
      const MaskRule::Pair pair{1, 1, q, k};
      require((windows && rest.sees(pair)) == whole.sees(pair),
              fmt::format("\"{}\" is not \"{}\" and its windows", problem.mask, terms.code));
    }
  }
}

}  // namespace

int fuzz_one(const std::uint8_t* data, std::size_t size) {
  const Problem problem = with_texts(texts_of(text_of(data, size)));
  const std::string text = to_string(problem);
  const bool accepted = accepts([&] { validate(problem); });
  Problem again;
  require(accepts([&] { again = parse_problem(text); }) == accepted,
          "the text form is not accepted as the problem is: " + text);
  if (!accepted) return 0;
  require(again == problem, "another problem is read back from " + text);
  require_closed(problem.score);
  require_closed(problem.mask);
  for (const CodeArgument& argument : code_arguments(problem.args))
    require(!argument.is_array || array_elements(argument, problem) >= 1, "an array of nothing");

  fuzz_on_cpu(problem);
  const std::uint64_t draw = XXH3_64bits(data, size);
  const bool is_short = problem.score.size() + problem.mask.size() <= kLongestCompiled;
  const bool may_compile = is_short && nvrtc_facts().available;
  fuzz_dargs(problem, may_compile && draw % (4 * kCompiledOne) == 1);
  for (const char* name : {"fwd_naive", "fwd_mma_sm80", "fwd_wgmma_sm90a", "fwd_regtile_f32"}) {
    const Family& family = *find_family(name);
    if (!rejection(family, problem, typical_device(kArch).arch).empty()) continue;
    const Source source = source_of(family, problem);
    if (source.entry.find("struct UserCode ") != source.entry.npos) {
      if (has_score_code(problem)) require_in_place(source.entry, "score", problem.score);
      require_in_place(source.entry, "mask", mask_code(problem));  // windows are built in
    }
    // The oracle compiles fastest; one of four is a product.
    const bool wanted = draw % kCompiledOne == 0 &&
                        &family == find_family(draw / kCompiledOne % 4 == 0 ? "fwd_mma_sm80"
                                                                            : "fwd_naive");
    if (wanted && may_compile) require_compiled_or_explained(source, problem);
  }
  return 1;
}

std::vector<std::string> corpus() {
  std::vector<std::string> inputs = right_code_inputs();
  for (std::string& input : wrong_code_inputs()) inputs.push_back(std::move(input));
  return inputs;
}

std::vector<std::string> words() { return code_words(true); }

}  // namespace attnforge::fuzz
