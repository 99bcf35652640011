// loaded_kernel.h - a config chosen for a bucket of problems and its code on the GPU; shared by the
// plans of that bucket.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "attnforge/plan.h"
#include "generator/family.h"
#include "generator/problem/bucket.h"
#include "runtime/loaded_launch.h"

namespace attnforge {

/// What a kernel is chosen by: a bucket's problem and what the caller insists on ("": nothing).
struct ChoiceKey {
  Problem problem;
  std::string family;
  std::string config;

  friend bool operator==(const ChoiceKey&, const ChoiceKey&) = default;
};

/// What a plan was asked for by: the same with the problem itself. Borrows all three.
struct PlanKey {
  const Problem& problem;
  std::string_view family;
  std::string_view config;

  friend bool operator==(const PlanKey& a, const PlanKey& b) {
    return a.problem == b.problem && a.family == b.family && a.config == b.config;
  }
};

inline std::size_t hash_of(const PlanKey& key) noexcept {
  const std::size_t hash = ProblemHash{}(key.problem);
  if (key.family.empty() && key.config.empty()) return hash;  // nearly all
  const std::hash<std::string_view> text;
  return hash ^ (text(key.family) * 31) ^ (text(key.config) * 1009);
}
struct ChoiceKeyHash {
  std::size_t operator()(const ChoiceKey& key) const noexcept {
    return hash_of({key.problem, key.family, key.config});
  }
};

struct LoadedKernel {
  // What the caller insists on, as in its ChoiceKey.
  std::string asked_family;
  std::string asked_config;
  const Family* family = nullptr;
  Config config;
  std::string config_text;
  std::string digest;  // of the source; "" when nothing was loaded
  Provenance provenance = Provenance::kEstimated;
  Layer layer = Layer::kNone;
  double measured_us = 0;
  bool tuning_tried = false;  // a first-run tuning found nothing better: do not repeat it
  // Another process was still tuning when the time limit of a first run was over. Its winner is
  // looked for once a second, by make_plan: after this moment of the steady clock, in ns.
  bool provisional = false;
  std::atomic<std::int64_t> look_again_ns{0};
  LoadedKernels kernels;                // empty when the problem has nothing to compute
  std::atomic<bool> superseded{false};  // a tuning since may have found a better one; runs go on
};

}  // namespace attnforge
