// text_runs.h - runs of kernels with a text that nobody chose, small enough for the host: what
// write_text_runs.cpp writes the entries of, and random_texts_test.cpp launches.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "generator/launch.h"
#include "templates/registry.h"
#include "tests/support/any_text.h"
#include "tests/support/random_choices.h"

namespace attnforge::test {

struct TextRun {
  AnyText text;
  Problem problem;
  const Family* family;
  Config config{};
};

inline const DeviceFacts& device_of(const Family& family) {
  return typical_device(family.name.ends_with("sm90a") ? "90a" : "80");
}

/// Of a family of 16 bits, which serves it. Seeds that follow each other draw all kinds of texts.
inline TextRun text_run(std::string_view family, std::uint64_t seed) {
  RandomChoices choices(seed);
  for (;;) {
    TextRun run{
        any_text(choices, static_cast<std::int64_t>(seed % kTextKinds)), {}, find_family(family)};
    const bool backward = run.family->op == Op::kBackward;
    using Words = std::vector<std::string>;
    std::string words = (backward ? "bwd " : "fwd lse ") + choices.among(Words{"bf16", "fp16"});
    words += " head_dim=64 batch=2 num_heads=" + choices.among(Words{"3", "4:2", "4:1"});
    words += " seqlen=" + std::to_string(choices.between(1, 90));
    words += ":" + std::to_string(choices.between(1, 130));
    for (const char* option : {" causal", " softcap=3", " window_left=40"})
      if (choices.one_in(3)) words += option;
    words += choices.among(Words{"", "", " lengths=used", " lengths=packed"});
    run.problem = parse_problem(words);
    set_text(run.problem, run.text);
    const auto all = candidates(*run.family, run.problem, device_of(*run.family));
    if (all.empty()) continue;
    run.config = choices.one_in(2) ? all.front().config : choices.among(all).config;
    return run;
  }
}

/// A step of a run by the entry that was written for it.
struct TextLaunch {
  const char* family;
  std::uint64_t seed;
  void (*launch)(const LaunchStep& step);
};
/// All that were written.
std::span<const TextLaunch> text_launches();

}  // namespace attnforge::test
