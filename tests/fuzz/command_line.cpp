// command_line.cpp - the small languages of the command line: sweeps, files of problems, lists of
// names, axes, archs, policies, rigors, log levels.
#include "cli/options/command_line.h"
#include "attnforge/device.h"
#include "attnforge/tune.h"
#include "cli/options/problems.h"
#include "cli/plot/landscape.h"
#include "tests/fuzz/fuzz.h"

namespace attnforge::fuzz {
namespace {

void check_names(const std::string& text) {
  for (const std::string& name : cli::names_of(text))
    require(!name.empty() && name.find(',') == name.npos, "a name with a comma: " + name);
  accepts([&] { cli::landscape_options(text); });
  accepts([&] { cli::policy_named(text); });
  accepts([&] { typical_device(text); });
  accepts([&] { require(to_string(parse_rigor(text)) == text, "rigor " + text); });
  accepts([&] { require(to_string(parse_status(text)) == text, "status " + text); });
}

}  // namespace

int fuzz_one(const std::uint8_t* data, std::size_t size) {
  const std::string text = text_of(data, size);
  check_names(text);
  std::vector<std::string> texts;
  const bool expanded = accepts([&] { texts = cli::expand_sweep(text); });
  require(texts.size() <= cli::kMostProblems, "more problems than allowed");
  if (!expanded || texts.size() > 64) return 0;  // the rest takes as long as there are problems
  std::vector<Problem> from_words, from_file;
  const bool words_ok = accepts([&] { from_words = cli::problems_from_words({text}); });
  accepts([&] { cli::read_problem({text, "causal"}, "run"); });
  const bool file_ok = accepts([&] { from_file = cli::problems_from_text(text, "file"); });
  for (const std::vector<Problem>* problems : {&from_words, &from_file}) {
    for (const Problem& problem : *problems)
      require(parse_problem(to_string(problem)) == problem, to_string(problem));
  }
  return words_ok || file_ok ? 1 : 0;
}

std::vector<std::string> corpus() {
  return {"fwd bf16,fp16 seqlen=512,1024 head_dim=64 causal,full",
          "fwd bf16 seqlen=4096 fwd fp16 seqlen=1,2:3",
          "# a comment\nfwd bf16 seqlen=4096\r\n\nfwd fp16 num_heads=32:8,16 # another\n",
          "block_n,stages",
          "sm_86,sm_90",
          "90a",
          "first_run",
          "exhaustive",
          "timed_out"};
}

std::vector<std::string> words() {
  return {"fwd",
          "bf16,fp16",
          "full",
          "causal,full",
          "seqlen=1,2",
          "head_dim=64,128,",
          ",",
          "#",
          "\n",
          "fwd,",
          "batch=1,2,3,4,5,6,7,8,9,10",
          "lse",
          "=",
          ",,",
          "sm_90,80",
          "block_m",
          "\x1b]0;x\x07",
          "softcap=30"};
}

}  // namespace attnforge::fuzz
