// candidates.h - which configurations are worth trying for a problem on a device. Pure: no GPU, no
// I/O.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "generator/family.h"
#include "generator/overrides.h"

namespace attnforge {

struct Candidate {
  const Family* family = nullptr;
  Config config;
  double estimate_us = 0;
  double spread = 1;  // Family::spread()
};

struct CutCandidate {
  Config config;
  std::string reason;
};

/// Configs that were cut for reasons that differ only in numbers.
struct CutKind {
  std::size_t count = 0;
  CutCandidate first;
};

/// What a search cuts: for few query rows, hundreds of thousands of configs. So configs and reasons
/// are made only for those that are shown: the first of each kind, and the first `most` of all.
struct Cuts {
  std::size_t most = std::numeric_limits<std::size_t>::max();
  std::vector<CutCandidate> configs{};
  std::size_t count = 0;                                // made or not
  std::map<std::string, CutKind, std::less<>> kinds{};  // by a reason without its numbers

  /// config() makes the one that is cut.
  template <class MakeConfig>
  void add(const Reason& reason, const MakeConfig& config) {
    ++count;
    CutKind& kind = kind_of(reason.words());
    if (++kind.count == 1) kind.first = {config(), reason.text()};
    if (configs.size() < most) configs.push_back({config(), reason.text()});
  }

 private:
  CutKind& kind_of(std::string_view words);
};

/// "" if `family` serves `problem` on `arch`, else why not (missing features first).
std::string rejection(const Family& family, const Problem& problem, const Arch& arch);

/// "" if `config`, which need not come from candidates(), may be used for `problem`, which the
/// family serves; else why not: fields of another family or version, a value that is not allowed, a
/// combination that Family::illegal() refuses. Nothing else of the family sees the config before.
/// Whether a search would try the config does not count.
std::string illegal(const Family& family, const Config& config, const Problem& problem,
                    const DeviceFacts& device);

/// All configs of `family` that are legal and not needless, best estimate first; ties in the order
/// of the axes, so the result is deterministic. Empty when rejection() is not "". `cuts`, if given,
/// receives the others with their reasons. Throws Error(kInvalidProblem) if the problem is not
/// valid. Cost: up to 10 ms, and 100 ms for few query rows. An override replaces its axis by one
/// value; the shared-memory override is already in `device` (limited()).
std::vector<Candidate> candidates(const Family& family, const Problem& problem,
                                  const DeviceFacts& device, Cuts* cuts = nullptr,
                                  const Overrides& overrides = {});

/// What a search leaves out, with the reasons.
struct LeftOut {
  std::vector<std::pair<const Family*, std::string>> families{};
  Cuts cuts{};  // configs of the other families
};

/// Candidates of all families of the problem's op, in the order of `families`. Only the first tier
/// that has any is used, products first. `left_out`, if given, receives the rest.
std::vector<Candidate> candidates(std::span<const Family* const> families, const Problem& problem,
                                  const DeviceFacts& device, const Overrides& overrides = {},
                                  LeftOut* left_out = nullptr);

/// The config to use when nothing was measured: the best estimate of the first family that serves
/// the problem, or of a later one of its tier whose model sees it clearly faster. Throws
/// Error(kUnsupported) with one line per family.
Candidate untuned(std::span<const Family* const> families, const Problem& problem,
                  const DeviceFacts& device, const Overrides& overrides = {});

}  // namespace attnforge
