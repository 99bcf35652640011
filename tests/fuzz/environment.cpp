// environment.cpp - any values of the variables that attnforge reads: refused in words, or obeyed
// by candidates and sources. An input is lines of NAME=value.
#include <stdlib.h>

#include <algorithm>
#include <cstdio>

#include "attnforge/cache.h"
#include "attnforge/inspect.h"
#include "cli/terminal/terminal.h"
#include "generator/candidates.h"
#include "plan/overrides.h"
#include "runtime/log.h"
#include "templates/registry.h"
#include "tests/fuzz/fuzz.h"

namespace attnforge::fuzz {
namespace {

// Those whose value is a number, a word or a path that is not walked through.
constexpr const char* kNames[] = {"ATTNFORGE_FAMILY",
                                  "ATTNFORGE_BLOCK_N",
                                  "ATTNFORGE_SMEM_BYTES",
                                  "ATTNFORGE_KERNEL_NAME",
                                  "ATTNFORGE_PRINT_LAUNCH",
                                  "ATTNFORGE_CHECK_INPUTS",
                                  "ATTNFORGE_LOG",
                                  "ATTNFORGE_CACHE",
                                  "ATTNFORGE_CACHE_WAL",
                                  "XDG_CACHE_HOME",
                                  "HOME",
                                  "COLUMNS",
                                  "TERM",
                                  "NO_COLOR"};

void set_variables(const std::string& text) {
  for (const char* name : kNames) unsetenv(name);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    for (const char* name : kNames) {
      if (line.starts_with(std::string(name) + "="))
        setenv(name, line.c_str() + std::string(name).size() + 1, 1);
    }
  }
}

/// What is forced is so in the first and the last candidate.
void check_obeyed(const Overrides& overrides, const Config& config, const Family& family,
                  const Problem& problem, const DeviceFacts& device) {
  const std::string text = to_string(config);
  require(contradiction(config, overrides).empty(), contradiction(config, overrides) + text);
  const bool has_block_n = text.find(" block_n=") != std::string::npos;
  require(overrides.block_n == 0 || !has_block_n || config.get("block_n") == overrides.block_n,
          "another block_n than the forced one: " + text);
  for (const LaunchStep& step : family.launch(config, problem, device).steps)
    require(overrides.smem_bytes == 0 || step.smem_bytes <= overrides.smem_bytes,
            "more shared memory than allowed: " + text);
  const Source source = render(family, config, problem, overrides);
  require(source.text.find(overrides.kernel_name) != std::string::npos,
          "no kernel is named " + overrides.kernel_name);
}

}  // namespace

int fuzz_one(const std::uint8_t* data, std::size_t size) {
  set_variables(text_of(data, size));
  accepts([] { require(log_level_from_environment() <= LogLevel::kOff, "a log level"); });
  require(!default_cache_path().empty(), "the database has no path");
  accepts([] { cli::terminal_columns(stdout); });
  Overrides overrides;
  if (!accepts([&] { overrides = overrides_from_environment(); })) return 0;
  const std::span<const Family* const> families = registry();
  const Family& family = overrides.family.empty() ? *families[size % families.size()]
                                                  : *find_family(overrides.family);
  const DeviceFacts device = limited(typical_device(size % 2 == 0 ? "90a" : "80"), overrides);
  const Problem problem = parse_problem("fwd bf16 num_heads=2 seqlen=256 head_dim=64 causal");
  const std::vector<Candidate> all = candidates(family, problem, device, nullptr, overrides);
  for (std::size_t i = 0; i < all.size(); i += std::max<std::size_t>(1, all.size() - 1))
    check_obeyed(overrides, all[i].config, family, problem, device);
  return all.empty() ? 0 : 1;
}

std::vector<std::string> corpus() {
  return {"ATTNFORGE_FAMILY=fwd_naive\nATTNFORGE_LOG=debug",
          "ATTNFORGE_BLOCK_N=64\nATTNFORGE_SMEM_BYTES=49152",
          "ATTNFORGE_FAMILY=fwd_mma_sm80\nATTNFORGE_BLOCK_N=128\nATTNFORGE_PRINT_LAUNCH=1",
          "ATTNFORGE_KERNEL_NAME=mine\nCOLUMNS=100\nTERM=dumb",
          "ATTNFORGE_CACHE=/tmp/x.db\nXDG_CACHE_HOME=relative\nHOME=",
          ""};
}

std::vector<std::string> words() {
  std::vector<std::string> all = {"\n",  "=",    "fwd_naive", "fwd_wgmma_sm90a", "0",
                                  "1",   "loud", ":memory:",  "\x1b[2J",         "2147483647",
                                  "1e3", " 64",  "yes"};
  for (const char* name : kNames) {
    all.push_back(std::string("\n") + name + "=");
    all.push_back(std::string(name) + "=");
  }
  for (const FamilyInfo& family : list_families()) all.push_back("ATTNFORGE_FAMILY=" + family.name);
  return all;
}

}  // namespace attnforge::fuzz
