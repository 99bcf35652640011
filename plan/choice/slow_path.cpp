// slow_path.cpp - what serves a problem, and whether a change of its tensors would be served
// better.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "attnforge/error.h"
#include "generator/candidates.h"
#include "plan/choice/choice.h"
#include "plan/device_state.h"
#include "plan/overrides.h"
#include "templates/registry.h"

namespace attnforge {
namespace {

constexpr double kSlow = 2;          // times as long: worth a line, and more than the models err
constexpr double kNearlyAll = 1.25;  // times as long as after the best change: as good as that
constexpr int kAligned = 16;         // bytes; what every family takes

struct Change {
  Problem to;
  std::string what;
};

/// What would serve a problem untuned; nullopt if nothing does.
std::optional<Candidate> served_by(const Problem& problem, const DeviceFacts& device,
                                   const Overrides& overrides) {
  try {
    return untuned(families_named("", overrides), problem, device, overrides);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported && error.code() != ErrorCode::kInvalidProblem)
      throw;
    return std::nullopt;
  }
}

Problem all_of(Problem problem, DType dtype) {
  problem.dtype_q = problem.dtype_k = problem.dtype_v = problem.dtype_o = dtype;
  problem.tf32 = problem.tf32 && dtype == DType::kFp32;
  problem.fast_sums = false;
  return problem;
}

std::vector<Change> dtype_changes(const Problem& p) {
  std::vector<Change> changes;
  if (p.dtype_o != p.dtype_q && !is_low_bit(p.dtype_q)) {
    Problem to = p;
    to.dtype_o = p.dtype_q;
    changes.push_back({to, fmt::format("make o {} as q is (it is {})", to_string(p.dtype_q),
                                       to_string(p.dtype_o))});
  }
  for (const DType dtype : {p.dtype_k, p.dtype_v, is_low_bit(p.dtype_q) ? p.dtype_o : p.dtype_q}) {
    Problem to = all_of(p, dtype);
    if (is_low_bit(p.dtype_q)) to.kv_scale = KvScale::kNone;
    const auto same = [&](const Change& change) { return change.to == to; };
    if (to == p || std::any_of(changes.begin(), changes.end(), same)) continue;
    changes.push_back({to, fmt::format("make q, k, v and o all {} (they are {}, {}, {} and {})",
                                       to_string(dtype), to_string(p.dtype_q), to_string(p.dtype_k),
                                       to_string(p.dtype_v), to_string(p.dtype_o))});
  }
  return changes;
}

Change aligned(const Change& change) {
  Problem to = change.to;
  to.alignment_bytes = kAligned;
  return {to,
          fmt::format("{}{}align pointers and strides of q, k, v and o to {} bytes (now {}), by a "
                      "copy if need be",
                      change.what, change.what.empty() ? "" : ", and ", kAligned,
                      change.to.alignment_bytes)};
}

/// One change at a time first, then both.
std::vector<Change> changes_of(const Problem& problem) {
  std::vector<Change> changes = dtype_changes(problem);
  if (problem.alignment_bytes >= kAligned) return changes;
  const std::vector<Change> dtypes = changes;
  changes.push_back(aligned({problem, ""}));
  for (const Change& change : dtypes) changes.push_back(aligned(change));
  return changes;
}

bool a_product_serves(const Problem& problem, const DeviceFacts& device) {
  return std::any_of(registry().begin(), registry().end(), [&](const Family* family) {
    return family->tier == Tier::kProduct && rejection(*family, problem, device.arch).empty();
  });
}

/// "by the models 9.1 times slower than FAMILY would: WHAT TO CHANGE", or "" if no change is worth
/// its words.
std::string better_after_a_change(const Problem& problem, const Candidate& now,
                                  const DeviceFacts& device, const Overrides& overrides) {
  const std::vector<Change> changes = changes_of(problem);
  std::vector<std::optional<Candidate>> then;
  double best_us = now.estimate_us;
  for (const Change& change : changes) {
    then.push_back(served_by(change.to, device, overrides));
    if (then.back()) best_us = std::min(best_us, then.back()->estimate_us);
  }
  if (now.estimate_us < kSlow * best_us) return "";
  for (std::size_t i = 0; i < changes.size(); ++i) {
    if (!then[i] || then[i]->estimate_us > kNearlyAll * best_us) continue;
    if (then[i]->family == now.family) return "";  // the work is less, not the kernel worse
    return fmt::format("by the models {:.1f} times slower than {} would: {}",
                       now.estimate_us / then[i]->estimate_us, then[i]->family->name,
                       changes[i].what);
  }
  return "";
}

/// Why none of them serves: "fwd_mma_sm80 takes fp16 or bf16, not fp32; ...".
std::string reasons_of_products(const Problem& problem, const DeviceFacts& device) {
  std::string reasons;
  for (const Family* family : registry()) {
    if (family->tier != Tier::kProduct || family->op != problem.op) continue;
    const std::string reason = rejection(*family, problem, device.arch);
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", family->name,
                           reason.empty() ? "every config is cut" : reason);
  }
  return reasons;
}

}  // namespace

Support supported(const Problem& problem, const DeviceFacts& device) {
  validate(problem);
  const std::string forced = family_from_environment();
  Support support;
  for (const Family* family : registry()) {
    if (forced.empty() ? family->only_named || family->op != problem.op : family->name != forced)
      continue;
    const std::string reason = rejection(*family, problem, device.arch);
    if (reason.empty()) return {true, std::string(family->name), ""};
    support.reason += fmt::format("{}{}: {}", support.reason.empty() ? "" : "\n", family->name,
                                  reason);
  }
  if (!forced.empty() && support.reason.empty())
    support.reason = fmt::format("ATTNFORGE_FAMILY={} is not a kernel family", forced);
  return support;
}

std::string slow_path(const Problem& problem, const DeviceFacts& device,
                      const Overrides& overrides) {
  if (problem.batch == 0 || problem.seqlen_q == 0 || !overrides.family.empty()) return "";
  if (changes_of(problem).empty() && a_product_serves(problem, device)) return "";
  const std::optional<Candidate> now = served_by(problem, device, overrides);
  if (!now) return "";
  const std::string better = better_after_a_change(problem, *now, device, overrides);
  const bool product = now->family->tier == Tier::kProduct;
  if (product && better.empty()) return "";
  return fmt::format("{} serves \"{}\", {}{}", now->family->name, to_string(problem),
                     product ? "" : "which no product family does, ",
                     better.empty() ? reasons_of_products(problem, device) : better);
}

void warn_of_slow_path(const ChoiceKey& key, DeviceState& state) {
  if (!key.family.empty() || !key.config.empty() || !forced_text(state.overrides).empty()) return;
  if (!state.log.enabled(LogLevel::kWarning)) return;
  const std::string slow = slow_path(key.problem, state.facts, state.overrides);
  if (!slow.empty() && state.slow_paths.first(slow)) state.log.warning(slow);
}

}  // namespace attnforge
