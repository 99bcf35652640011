// closure_test.cpp - what the source of a kernel holds: of a problem without parts no header of a
// part, so that editing one leaves the kernel's digest, and not more than a reader can take in.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "generator/candidates.h"
#include "generator/overrides.h"
#include "templates/embedded.h"
#include "templates/registry.h"

namespace attnforge {
namespace {

constexpr const char* kDense[] = {
    "fwd bf16 batch=2 num_heads=8 seqlen=1024 head_dim=128",
    "fwd bf16 batch=2 num_heads=8 seqlen=1024 head_dim=128 causal lse",
    "fwd bf16 batch=2 num_heads=8 seqlen=1024 head_dim=128 window_left=100",
    "fwd fp32 batch=2 num_heads=8 seqlen=1024 head_dim=64 causal",
    "bwd bf16 batch=2 num_heads=8 seqlen=1024 head_dim=128",
    "bwd bf16 batch=2 num_heads=8 seqlen=1024 head_dim=128 causal",
};

/// Calls visit(family, problem, config) for what product families make of these on Hopper.
template <class Visit>
void for_each_product(const Visit& visit) {
  const DeviceFacts& device = typical_device("90a");
  for (const Family* family : registry()) {
    if (family->tier != Tier::kProduct || family->op > Op::kBackward) continue;
    int served = 0;
    for (const char* const text : kDense) {
      const Problem problem = parse_problem(text);
      if (!rejection(*family, problem, device.arch).empty()) continue;
      visit(*family, problem, candidates(*family, problem, device).front().config);
      ++served;
    }
    EXPECT_GT(served, 0) << family->name << " serves none of the problems";
  }
}

TEST(SourceOfADenseKernel, HoldsNoHeaderOfAPart) {
  constexpr std::string_view kHeader = "\n// ---- ";
  for_each_product([&](const Family& family, const Problem& problem, const Config& config) {
    const std::string text = family.render(config, problem).text;
    for (std::size_t at = 0; (at = text.find(kHeader, at)) != text.npos;) {
      at += kHeader.size();
      const std::string header = text.substr(at, text.find('\n', at) - at);
      EXPECT_FALSE(header.starts_with("parts/"))
          << family.name << ", " << to_string(problem) << ": " << header;
    }
  });
}

TEST(SourceOfADenseKernel, HasTheSameDigestWhateverHeadersOfPartsHold) {
  Overrides edited;
  edited.own_templates = true;
  for (const Header& header : embedded_headers()) {
    const bool of_part = header.path.starts_with("parts/");
    edited.headers.push_back(
        {std::string(header.path),
         std::string(header.text) + (of_part ? "inline constexpr int kEdited = 1;\n" : "")});
  }
  for_each_product([&](const Family& family, const Problem& problem, const Config& config) {
    EXPECT_EQ(digest(render(family, config, problem, edited)),
              digest(family.render(config, problem)))
        << family.name << ", " << to_string(problem);
  });
}

TEST(SourceOfADenseKernel, IsNoLongerThanAReaderCanTakeIn) {
  constexpr std::ptrdiff_t kMostLines = 2700;
  const Problem problem = parse_problem(kDense[0]);
  const Family& family = *find_family("fwd_wgmma_sm90a");
  const Config config = candidates(family, problem, typical_device("90a")).front().config;
  const Source source = family.render(config, problem);
  const auto lines = [](std::string_view text) { return std::ranges::count(text, '\n'); };
  EXPECT_LE(lines(source.text) - lines(source.entry), kMostLines);
}

}  // namespace
}  // namespace attnforge
