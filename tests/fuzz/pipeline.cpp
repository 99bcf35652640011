// pipeline.cpp - any valid problem on any GPU: candidates, source and launch are sound, and every
// shape that is computed from the problem agrees.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "plan/choice/choice.h"
#include "plan/plan_state.h"
#include "templates/registry.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/launches.h"
#include "tests/support/any_problem.h"

namespace attnforge::fuzz {
namespace {

constexpr test::MostSizes kMost = {.batch_bits = 12, .heads_bits = 6, .seqlen_bits = 27};

/// A GPU of a known arch that never was.
DeviceFacts any_device(Bytes& bytes) {
  DeviceFacts device = typical_device(bytes.among(known_archs()));
  if (bytes.flag()) device.num_sms = static_cast<int>(bytes.between(1, 300));
  if (bytes.flag()) device.l2_bytes = bytes.between(0, std::int64_t{1} << 28);
  if (bytes.byte() % 8 == 0)
    device.arch.smem_per_block_bytes = static_cast<int>(
        bytes.between(1024, device.arch.smem_per_block_bytes));
  return device;
}

void check_candidate(const Candidate& candidate, const Problem& problem,
                     const DeviceFacts& device) {
  const Family& family = *candidate.family;
  const std::string text = to_string(candidate.config);
  require(parse_config(text) == candidate.config, "another config is read back from " + text);
  require(std::isfinite(candidate.estimate_us) && candidate.estimate_us >= 0,
          fmt::format("an estimate of {} us of {}", candidate.estimate_us, text));
  const std::string reason = illegal(candidate.config, problem, device);
  require(reason.empty(), fmt::format("candidate {} is illegal: {}", text, reason));
  const Source source = family.render(candidate.config, problem);
  const Launch launch = family.launch(candidate.config, problem, device);
  require_sound(launch, source, problem, device);
  const std::size_t bound = workspace_bound(problem, text, device);
  require(bound >= launch.workspace_bytes,
          fmt::format("a bound of {} for a workspace of {} bytes of {}", bound,
                      launch.workspace_bytes, text));
}

}  // namespace

int fuzz_one(const std::uint8_t* data, std::size_t size) {
  Bytes bytes(data, size);
  const Problem problem = test::any_problem(bytes, kMost);
  const DeviceFacts device = any_device(bytes);
  const std::vector<const Family*> families(registry().begin(), registry().end());
  const Family& family = *bytes.among(families);
  const std::string reason = rejection(family, problem, device.arch);
  Cuts cuts;
  std::vector<Candidate> all = candidates(family, problem, device, &cuts);
  if (!reason.empty()) {
    require_readable(reason);
    require(all.empty(), "candidates in spite of: " + reason);
    return 0;
  }
  for (int i = 0; i < 3 && !all.empty(); ++i) check_candidate(bytes.among(all), problem, device);
  if (!cuts.configs.empty()) require_readable(bytes.among(cuts.configs).reason);
  return all.empty() ? 0 : 1;
}

std::vector<std::string> corpus() { return random_inputs(64, 160); }
std::vector<std::string> words() { return {}; }

}  // namespace attnforge::fuzz
