#include "plan/choice/choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "attnforge/error.h"
#include "cache/near_problems.h"
#include "cache/shipped.h"
#include "templates/registry.h"

namespace attnforge {
namespace {

constexpr std::size_t kFallbacksPerProduct = 3;

// How much slower than its own choice the model may think a near winner. Of 130 winners on an H200
// (bench/results/h200), each predicted from the others: up to 1.05 the near winner was the true one
// in 59 of 118 cases and the model's choice in 61, beyond in 1 and 5 of 12. Where the model was not
// fitted, on other GPUs, what was measured knows more.
constexpr double kNearVeto = 1.05;
constexpr double kColdCard = 1.1;  // times of different moments differ by as much (kRacedSamples)

/// Which of `legal` a stored text is; nullptr: none, or it is no config.
const Candidate* find_candidate(const std::vector<Candidate>& legal, const std::string& text) {
  try {
    const auto found = std::ranges::find(legal, parse_config(text), &Candidate::config);
    return found == legal.end() ? nullptr : &*found;
  } catch (const Error&) {
    return nullptr;
  }
}

/// `why`: of a try that is of today's source.
Choice choice_of(const Try& won, Config config, const Rendered& today, std::string why) {
  Choice choice{
      .family = find_family(config.family), .config = std::move(config), .rendered = today};
  if (won.digest == today.digest) {
    choice.provenance = Provenance::kMeasured;
    choice.measured_us = won.measurement.time_us;
    choice.nvrtc = won.nvrtc;
    choice.why = std::move(why);
  } else {
    choice.provenance = Provenance::kStale;
    choice.stale = won;
    choice.why = why +
                 "; its template was changed since and it was not measured again, so it counts as "
                 "an estimate";
  }
  return choice;
}

}  // namespace

Rendered rendered(const Config& config, const Problem& problem, const Overrides& overrides) {
  Source source = render(*find_family(config.family), config, problem, overrides);
  std::string sum = digest(source);
  return {std::move(source), std::move(sum)};
}

std::vector<const Family*> families_named(const std::string& asked, const Overrides& overrides) {
  const std::span<const Family* const> all = registry();
  const std::string& forced = overrides.family;
  if (!asked.empty() && !forced.empty() && asked != forced) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} was asked for, but ATTNFORGE_FAMILY forces {}: drop one of the two",
                            asked, forced));
  }
  const std::string& name = asked.empty() ? forced : asked;
  if (name.empty()) {
    std::vector<const Family*> unnamed;
    for (const Family* family : all) {
      if (!family->only_named) unnamed.push_back(family);
    }
    return unnamed;
  }
  if (const Family* family = find_family(name)) return {family};
  std::vector<std::string_view> known;
  for (const Family* family : all) known.push_back(family->name);
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("no kernel family is named \"{}\"; there are {}", name, fmt::join(known, ", ")));
}

std::string illegal(const Config& config, const Problem& problem, const DeviceFacts& device) {
  const Family* family = find_family(config.family);
  if (family == nullptr) return fmt::format("there is no kernel family \"{}\"", config.family);
  const std::string unserved = rejection(*family, problem, device.arch);
  if (!unserved.empty()) return unserved;
  return illegal(*family, config, problem, device);
}

Choice forced_choice(const std::string& config_text, const Problem& problem,
                     const DeviceFacts& device, const Overrides& overrides) {
  Config config = parse_config(config_text);
  const Family* family = families_named(config.family, {}).front();
  const std::string unserved = rejection(*family, problem, device.arch);
  if (!unserved.empty()) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{} does not serve \"{}\" on {}: {}", family->name, to_string(problem),
                            device.name, unserved));
  }
  std::string reason = contradiction(config, overrides);
  if (reason.empty()) reason = illegal(config, problem, device);
  if (!reason.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("config \"{}\" cannot be used for \"{}\" on {}: {}", config_text,
                            to_string(problem), device.name, reason));
  }
  return {.family = family,
          .config = std::move(config),
          .provenance = Provenance::kForced,
          .why = "the caller asked for it"};
}

Choice untuned_choice(const ChoiceKey& key, const DeviceFacts& device, const Overrides& overrides) {
  const std::vector<const Family*> families = families_named(key.family, overrides);
  Candidate candidate = untuned(families, key.problem, device, overrides);
  return {.family = candidate.family,
          .config = std::move(candidate.config),
          .why = fmt::format("the model predicts {:.1f} us, its best", candidate.estimate_us)};
}

Candidate candidate_of(const Family& family, Config config, const Problem& problem,
                       const DeviceFacts& device) {
  const double estimate_us = family.estimate_us(config, problem, device);
  const double spread = family.spread ? family.spread(config, problem, device) : 1;
  return {&family, std::move(config), estimate_us, spread};
}

// ---- Chooser ----

Chooser::Chooser(const ChoiceKey& key, const DeviceFacts& device, Cache& cache, Cache* site,
                 const Overrides& overrides, const Logger& log)
    : key_(key),
      device_(device),
      databases_{{&cache, Layer::kDatabase}},
      overrides_(overrides),
      log_(log),
      stored_as_(stored_as(key.problem, overrides)),
      class_(device_class(device)) {
  if (site != nullptr) databases_.push_back({site, Layer::kSite});
}

std::optional<Config> Chooser::usable(const std::string& text) const {
  std::string reason;
  try {
    Config config = parse_config(text);
    reason = illegal(config, key_.problem, device_);
    if (reason.empty()) return config;
  } catch (const Error& error) {
    reason = error.what();
  }
  log_.warning(fmt::format("the stored config \"{}\" is skipped for \"{}\": {}", text,
                           to_string(key_.problem), reason));
  return std::nullopt;
}

const Rendered& Chooser::today(const Config& config) {
  if (!last_ || last_config_ != config) {
    last_ = rendered(config, key_.problem, overrides_);
    last_config_ = config;
  }
  return *last_;
}

const std::vector<Candidate>& Chooser::legal() {
  if (!legal_)
    legal_ = candidates(families_named(key_.family, overrides_), key_.problem, device_, overrides_);
  return *legal_;
}

bool Chooser::would_be_tried(const Family& family) {
  if (!key_.family.empty()) return family.name == key_.family;
  if (family.tier == Tier::kProduct || family.name == overrides_.family) return true;
  if (family.only_named) return false;
  if (!serving_) serving_ = untuned().family->tier;
  return family.tier == *serving_;
}

bool Chooser::may_answer(const Try& unchosen, Cache& cache) {
  const Candidate* const same = find_candidate(legal(), unchosen.config);
  if (same == nullptr) return false;  // no search would try it
  const Candidate& first = legal().front();
  if (same == &first) return true;
  const std::string own = to_string(first.config);
  bool failed = false;
  for (const Try& each : cache.tries(unchosen.problem, unchosen.device_class)) {
    if (each.estimated || each.config != own) continue;
    failed |= each.measurement.status != Status::kOk;
    if (each.measurement.status == Status::kOk)
      return unchosen.measurement.time_us <= kColdCard * each.measurement.time_us;
  }
  return failed || same->estimate_us <= kNearVeto * first.estimate_us;
}

std::optional<Choice> Chooser::stored_of_family(Cache& cache) {
  std::optional<Choice> stale;
  const std::vector<Chosen> all = cache.chosen(class_);  // by finished searches, of any family
  const auto chosen = std::ranges::find(all, stored_as_, &Chosen::problem);
  std::vector<Try> tries = cache.tries(stored_as_, class_);
  std::stable_partition(tries.begin(), tries.end(),
                        [](const Try& each) { return each.measurement.samples >= kRacedSamples; });
  for (const Try& each : tries) {
    if (each.family != key_.family || each.estimated || each.measurement.status != Status::kOk)
      continue;
    std::optional<Config> own = usable(each.config);
    if (!own || own->family != key_.family) continue;
    const Rendered& now = today(*own);
    if (stale && each.digest != now.digest) continue;
    const bool was_chosen = chosen != all.end() && chosen->config == each.config;
    if (!was_chosen && !may_answer(each, cache)) continue;
    Choice choice = choice_of(
        each, *std::move(own), now,
        fmt::format("it is the fastest measured config of {} for this bucket on this GPU class",
                    key_.family));
    if (!choice.stale) return choice;
    stale = std::move(choice);
  }
  return stale;
}

std::optional<Choice> Chooser::stored_in(Cache& cache, std::optional<Rigor> at_least) {
  if (!key_.family.empty()) return stored_of_family(cache);
  // driver and nvrtc stay empty: they only tell kMeasured from kCompatible, which are the same to a
  // plan, and asking NVRTC for its version takes longer than everything else here.
  const Cache::Current current{
      .device_class = class_, .driver = "", .nvrtc = "", .sm = device_.arch.sm};
  // Without a digest a row is passed over, and the next best is asked about. A database may hold
  // winners of searches that tried every family; a plan that names none takes what a search would
  // try today.
  const auto digest_today = [&](std::string_view text) {
    const std::optional<Config> config = usable(std::string(text));
    const bool answers = config && would_be_tried(*find_family(config->family));
    return answers ? today(*config).digest : "";
  };
  const std::optional<Winner> winner = cache.best(
      stored_as_, current, digest_today, at_least,
      [&](const Try& each) { return may_answer(each, cache); });
  if (!winner) return std::nullopt;
  Config config = parse_config(winner->best.config);
  const Rendered& now = today(config);
  const bool near = winner->provenance == Provenance::kNearDevice;
  const std::string what = winner->rigor
                               ? fmt::format("it won a {} search", to_string(*winner->rigor))
                               : "no search ended, but it is the fastest measured config";
  Choice choice = choice_of(
      winner->best, std::move(config), now,
      fmt::format("{} of this bucket on {}", what,
                  near ? winner->best.device_class + ", a GPU of the same sm" : "this GPU class"));
  if (near) choice.provenance = Provenance::kNearDevice;
  return choice;
}

std::optional<Choice> Chooser::shipped() {
  for (const auto& [best, code] : shipped_winners(stored_as_, class_, device_.arch.sm)) {
    std::optional<Config> config = usable(best.config);
    if (!config || !would_be_tried(*find_family(config->family))) continue;
    const bool near = best.device_class != class_;
    const Rendered& now = today(*config);
    if (near && best.digest != now.digest) continue;
    Choice choice = choice_of(
        best, *std::move(config), now,
        fmt::format("it won a {} search of this bucket on {}, and ships with the library",
                    to_string(best.rigor),
                    near ? best.device_class + ", a GPU of the same sm" : "this GPU class"));
    choice.stale_code = code;
    if (near) choice.provenance = Provenance::kNearDevice;
    return choice;
  }
  return std::nullopt;
}

std::optional<Choice> Chooser::stored(std::optional<Rigor> at_least,
                                      const std::function<void(Choice&)>& on_found) {
  std::optional<Choice> first;
  const auto answers = [&](std::optional<Choice>&& found, Layer layer, Cache* cache) {
    if (!found) return false;
    found->layer = layer;
    found->cubins = cache;
    if (on_found) on_found(*found);
    const bool measured = is_measured(found->provenance);
    if (!first || measured) first = std::move(found);
    return measured;
  };
  for (const auto& [cache, layer] : databases_)
    if (answers(stored_in(*cache, at_least), layer, cache)) return first;
  answers(shipped(), Layer::kShipped, nullptr);
  return first;
}

std::optional<Choice> Chooser::near() {
  if (!forced_text(overrides_).empty()) return std::nullopt;
  std::vector<Chosen> all;
  std::vector<std::pair<std::size_t, Layer>> ends;  // of a layer's winners in `all`
  const auto add = [&](std::vector<Chosen>&& of_layer, Layer layer) {
    std::ranges::move(of_layer, std::back_inserter(all));
    ends.emplace_back(all.size(), layer);
  };
  for (const auto& [cache, layer] : databases_) add(cache->chosen(class_), layer);
  add(shipped_chosen(class_), Layer::kShipped);
  for (const Chosen& other : near_winners(key_.problem, all)) {
    const Candidate* const same = find_candidate(legal(), other.config);
    if (same == nullptr) continue;
    const double model_us = legal().front().estimate_us;  // of untuned()
    if (same->estimate_us > kNearVeto * model_us) continue;
    const auto at = static_cast<std::size_t>(std::ranges::find(all, other) - all.begin());
    return Choice{
        .family = same->family,
        .config = same->config,
        .provenance = Provenance::kNearProblem,
        .layer = std::ranges::find_if(ends, [&](const auto& end) { return at < end.first; })
                     ->second,
        .why = fmt::format("it won on \"{}\", the nearest problem with a winner that serves here; "
                           "the model predicts {:.1f} us, and {:.1f} us for its own choice",
                           other.problem, same->estimate_us, model_us)};
  }
  return std::nullopt;
}

void Chooser::require_support() const {
  const std::vector<const Family*> families = families_named(key_.family, overrides_);
  const auto serves = [&](const Family* family) {
    return rejection(*family, key_.problem, device_.arch).empty();
  };
  if (std::ranges::any_of(families, serves)) return;
  attnforge::untuned(families, key_.problem, device_, overrides_);  // throws with the reasons
}

std::string Chooser::undecided() const {
  const std::vector<Try> tries = databases_.front().cache->tries(stored_as_, class_);
  const auto measured = std::ranges::count(tries, false, &Try::estimated);
  if (measured == 0) return "nothing was measured for it on this GPU class";
  return fmt::format("of what was measured for it nothing decides ({} stored)",
                     measured == 1 ? "1 try is" : fmt::format("{} tries are", measured));
}

std::vector<Choice> Chooser::fallbacks() const {
  std::vector<Choice> choices;
  for (const Family* family : families_named(key_.family, overrides_)) {
    std::vector<Candidate> of_family = candidates(*family, key_.problem, device_, nullptr,
                                                  overrides_);
    const std::size_t most = family->tier == Tier::kProduct ? kFallbacksPerProduct : 1;
    for (std::size_t i = 0; i < std::min(of_family.size(), most); ++i) {
      choices.push_back({.family = family,
                         .config = std::move(of_family[i].config),
                         .why = "what was preferred to it could not be compiled or loaded"});
    }
  }
  return choices;
}

}  // namespace attnforge
