#include "cli/strategy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

#include "attnforge/error.h"
#include "attnforge/inspect.h"
#include "attnforge/measure.h"
#include "cli/options/problems.h"

namespace attnforge::cli {
namespace {

constexpr std::string_view kNames[] = {"standard", "variable_block", "split_head_dims",
                                       "register_tiled"};
// Other projects call it so, where "k" is the dimension that products sum over; here k are keys.
constexpr std::string_view kOtherName = "split_k";
constexpr const char* kTensorCores = "fwd_mma_sm80";
constexpr const char* kFp32Tiles = "fwd_regtile_f32";
constexpr std::size_t kMostSplit = 16;  // kernels that split_head_dims chooses among

/// The text of a config: a family, then name=value words.
int field(const std::string& config, const std::string& name) {
  const std::size_t at = config.find(" " + name + "=");
  if (at == std::string::npos) {
    throw Error(ErrorCode::kInternal,
                fmt::format("config \"{}\" has no field {}, which a strategy sets", config, name));
  }
  return std::stoi(config.substr(at + name.size() + 2));
}

std::string with_field(const std::string& config, const std::string& name, int value) {
  field(config, name);
  std::string result;
  std::istringstream words(config);
  for (std::string word; words >> word;) {
    if (word.starts_with(name + "=")) word = fmt::format("{}={}", name, value);
    result += (result.empty() ? "" : " ") + word;
  }
  return result;
}

std::string chosen_config(const Problem& problem, Device& device) {
  return make_plan(problem, device, {.family = kTensorCores}).config();
}

/// The plan of a config, or nothing where it is illegal: too much memory, for one.
std::optional<Plan> plan_of(const std::string& config, const Problem& problem, Device& device) {
  try {
    return make_plan(problem, device, {.config = config});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    return std::nullopt;
  }
}

void tune_first(const Problem& problem, Device& device, const char* family,
                const TuneOptions* tuning) {
  if (tuning == nullptr) return;
  TuneOptions options = *tuning;
  options.family = family;
  tune(problem, device, options);
}

Plan padded(const Problem& problem, Device& device, const TuneOptions* tuning) {
  const auto next_power = [](int dim) {
    return static_cast<int>(std::bit_ceil(static_cast<unsigned>(dim)));
  };
  Problem larger = problem;
  larger.head_dim = next_power(problem.head_dim);
  larger.head_dim_v = next_power(problem.head_dim_v);
  tune_first(larger, device, kTensorCores, tuning);
  std::string config = chosen_config(larger, device);
  config = with_field(config, "pad_head_dim", 1);
  if (const std::optional<Plan> plan = plan_of(config, problem, device)) return *plan;
  throw Error(
      ErrorCode::kUnsupported,
      fmt::format("strategy standard has no kernel for head dims {}:{} padded to {}:{}",
                  problem.head_dim, problem.head_dim_v, larger.head_dim, larger.head_dim_v));
}

/// Whether registers are too few for a legal config.
bool spills(const std::string& config, const Problem& problem, Device& device) {
  const Inspection seen = inspect(problem, device.facts(),
                                  {.config = config, .max_candidates = 1, .cut_candidates = false});
  return seen.compiled.spill_bytes > 0;
}

/// The problem's own candidates, split where that is legal and spills nothing: the first, or the
/// fastest of some.
/// No tuning: searches do not try what they are made of.
Plan split(const Problem& problem, Device& device, const TuneOptions* tuning) {
  const std::size_t most = tuning == nullptr ? 1 : kMostSplit;
  std::vector<std::string> configs = {chosen_config(problem, device)};
  for (const CandidateInfo& candidate :
       inspect(problem, device.facts(),
               {.family = kTensorCores, .compile = false, .cut_candidates = false})
           .candidates)
    configs.push_back(candidate.config);
  std::vector<Plan> plans;
  std::set<std::string> tried;
  for (const std::string& config : configs) {
    const int warps = field(config, "num_warps");
    for (const int num_warps : {warps, 2 * warps}) {
      std::string half = with_field(config, "head_dim_warps", 2);
      half = with_field(half, "step_n", field(config, "block_n"));
      half = with_field(half, "pad_head_dim", 0);
      half = with_field(half, "num_warps", num_warps);
      if (plans.size() == most || !tried.insert(half).second) continue;
      const std::optional<Plan> plan = plan_of(half, problem, device);
      if (plan && !spills(half, problem, device)) plans.push_back(*plan);
    }
  }
  if (plans.empty()) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("strategy split_head_dims has no kernel for \"{}\" here", to_string(problem)));
  }
  const auto time_us = [&](const Plan& plan) {
    return measure(plan, device, {.min_samples = 5, .max_samples = 10, .time_limit_s = 0.1})
        .time_us;
  };
  if (plans.size() == 1) return plans.front();
  std::vector<double> times;
  for (const Plan& plan : plans) times.push_back(time_us(plan));
  const auto fastest = std::min_element(times.begin(), times.end());
  return plans[static_cast<std::size_t>(fastest - times.begin())];
}

}  // namespace

std::vector<std::string> strategies_of(const std::string& list) {
  std::vector<std::string> names = names_of(list);
  for (std::string& name : names) {
    if (name == kOtherName) name = "split_head_dims";
    if (std::find(std::begin(kNames), std::end(kNames), name) == std::end(kNames)) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("there is no strategy \"{}\"; there are {}", name, fmt::join(kNames, ", ")));
    }
  }
  return names;
}

Plan apply_strategy(const std::string& strategy, const Problem& problem, Device& device,
                    const TuneOptions* tuning) {
  const bool fp32 = problem.dtype_q == DType::kFp32;
  if (strategy == "register_tiled" && !fp32) {
    throw Error(
        ErrorCode::kUnsupported,
        "strategy register_tiled is fp32 outer products on CUDA cores; 16-bit dtypes go to "
        "tensor cores, whose tiles in registers every other strategy here has: ask for fp32");
  }
  if (strategy != "register_tiled" && fp32) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("strategy {} is one of the tensor cores' 16-bit kernels; fp32 has "
                            "register_tiled",
                            strategy));
  }
  if (strategy == "standard") return padded(problem, device, tuning);
  if (strategy == "split_head_dims") return split(problem, device, tuning);
  const char* const family = strategy == "register_tiled" ? kFp32Tiles : kTensorCores;
  tune_first(problem, device, family, tuning);
  return make_plan(problem, device, {.family = family});
}

}  // namespace attnforge::cli
