// choice.h - which config a plan should use: the one that the caller forces, the database's winner,
// that of a problem like this one, the model's. Runs nothing. `device` is limited() by the same
// overrides.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "attnforge/plan.h"
#include "cache/cache.h"
#include "generator/arch.h"
#include "generator/candidates.h"
#include "generator/cubin.h"
#include "generator/source.h"
#include "plan/loaded_kernel.h"
#include "runtime/log.h"

namespace attnforge {

class DeviceState;

/// What a config becomes, and the digest of that.
struct Rendered {
  Source source;
  std::string digest;
};

/// A config and how it was come by.
struct Choice {
  const Family* family = nullptr;
  Config config;
  Provenance provenance = Provenance::kEstimated;
  Layer layer = Layer::kNone;
  double measured_us = 0;
  std::string nvrtc = {};                 // that compiled what was measured; "": any
  std::string why = {};                   // a sentence for inspect and the log
  std::optional<Rendered> rendered = {};  // where choosing took it already
  std::optional<Cubin> cubin = {};        // of `rendered`, where choosing took it
  std::optional<Try> stale = {};  // what it won by, where its source has another digest since then
  std::string stale_code = {};  // machine_code_digest() of what `stale` measured; "": see `cubins`
  Cache* cubins = nullptr;      // of the layer; none of one that ships
};

/// The registry without what must be named, or only the family of that name, or the one that is
/// forced. Throws Error(kInvalidArgument) for an unknown one, listing all, and for one that is not
/// the forced one.
std::vector<const Family*> families_named(const std::string& name, const Overrides& overrides);

/// "" if `config` may be used for `problem`, else why not: of an unknown family, unsupported, cut,
/// or made for other head dims or dtypes. What a database or a caller says is checked by this
/// before it is compiled.
std::string illegal(const Config& config, const Problem& problem, const DeviceFacts& device);

/// Throws Error(kInvalidArgument) if the text is not a config or is illegal, Error(kUnsupported) if
/// its family does not serve the problem.
Choice forced_choice(const std::string& config_text, const Problem& problem,
                     const DeviceFacts& device, const Overrides& overrides);

Rendered rendered(const Config& config, const Problem& problem, const Overrides& overrides);

/// The model's first choice. Throws Error(kUnsupported). Looks at the whole search space: a few ms.
Choice untuned_choice(const ChoiceKey& key, const DeviceFacts& device, const Overrides& overrides);

/// `config`, which is legal for `problem`, with what the family's model says of it.
Candidate candidate_of(const Family& family, Config config, const Problem& problem,
                       const DeviceFacts& device);

/// What may answer for one key that forces no config, of what databases and the library have and of
/// the model. Borrows all. Looks at the whole search space, which takes a few ms, once and where it
/// has to.
class Chooser {
 public:
  /// `site`: a database that is asked where `cache` has no winner; or none.
  Chooser(const ChoiceKey& key, const DeviceFacts& device, Cache& cache, Cache* site,
          const Overrides& overrides, const Logger& log);

  /// Throws Error(kUnsupported) with each family's reason if none serves the problem. Cheap.
  void require_support() const;

  /// The winner for the bucket, if it can be used: of the first layer whose winner was measured as
  /// the code of today, else of the first that has any. `on_found` may recognise a stale one: its
  /// template has changed since, and unrecognised it counts as an estimate. Under force it is the
  /// winner under the same force. A row whose config cannot be used is skipped with a warning, one
  /// of a family that was not named and that a better tier makes needless without. With `at_least`
  /// only what a finished search of that rigor chose; a caller who insists on a family gets the
  /// fastest of its tries, since searches of one family are not noted.
  std::optional<Choice> stored(std::optional<Rigor> at_least = {},
                               const std::function<void(Choice&)>& on_found = {});

  /// Why stored() has none: that nothing was measured, or how many tries decide nothing.
  std::string undecided() const;

  /// The winner of the nearest problem (cache/near_problems.h) of all layers on this GPU class that
  /// would be a candidate of this one's search too. The model has a veto: it must not predict that
  /// the config takes more than 5% longer than the model's own choice. Nothing under force: then
  /// the model alone decides what is left.
  std::optional<Choice> near();

  Choice untuned() const { return untuned_choice(key_, device_, overrides_); }

  /// What to try when that one fails: the model's best few of each product, then its best of each
  /// family of the ladder, the oracle last.
  std::vector<Choice> fallbacks() const;

 private:
  struct Database {
    Cache* cache;
    Layer layer;
  };

  /// The config of a row of the database, if a plan may use it. Else a line in the log: a row may
  /// be damaged, imported, or of another version, and must cost no plan more than itself.
  std::optional<Config> usable(const std::string& text) const;
  /// What a config becomes today. Keeps the last: that is the winner, as a rule.
  const Rendered& today(const Config& config);
  /// What a search would try.
  const std::vector<Candidate>& legal();
  /// Whether a search that names what the key names would look at the family.
  bool would_be_tried(const Family& family);
  /// Whether a try that no finished search chose may answer. It was timed beside nobody, maybe: one
  /// family was looked at alone, one config was forced, a search was killed, a part was imported.
  /// So the model's own choice must not be faster, as it was measured there, else as the model has
  /// it.
  bool may_answer(const Try& unchosen, Cache& cache);
  std::optional<Choice> stored_in(Cache& cache, std::optional<Rigor> at_least);
  /// The fastest good try of the key's family: a winner of all families does not answer for one,
  /// but one of its own is not doubted. Those whose kernel is the one of today come first, of these
  /// those that were raced.
  std::optional<Choice> stored_of_family(Cache& cache);
  /// Of the winners that ship with the library.
  std::optional<Choice> shipped();

  const ChoiceKey& key_;
  const DeviceFacts& device_;
  std::vector<Database> databases_;
  const Overrides& overrides_;
  const Logger& log_;
  const std::string stored_as_, class_;
  Config last_config_;
  std::optional<Rendered> last_;
  std::optional<std::vector<Candidate>> legal_;
  std::optional<Tier> serving_;  // of the model's own choice
};

/// The call that a first run is for.
struct FirstCall {
  const Problem& asked;        // of the bucket
  std::optional<Choice> near;  // Chooser::near()
};

struct FirstRun {
  std::optional<Choice> choice{};  // nothing: no config worked, or none was tried; it is logged
  bool provisional = false;        // another process was still tuning when the time was over
};

/// A plan that tunes because nothing was measured for its bucket gets the winner of the one process
/// that tunes the bucket, be it this one or another that is waited for, within options.time_limit_s
/// of `called`. In vain: the best of what the other has stored so far, or nothing. All that find a
/// winner find the same, since they take it from the database. For the sizes of the call that tunes
/// the winner is not slower than what that call might have had without a search.
FirstRun first_run(const ChoiceKey& key, const FirstCall& call, const PlanOptions& options,
                   DeviceState& state, std::chrono::steady_clock::time_point called);

/// Whether a problem is served worse than it could be: by no product, or for something about its
/// tensors that is easily changed. "": it is not, or a family is forced. Else one line: which
/// family serves `problem`, how much slower than another one would be by their models, and what has
/// to be changed for that: dtypes that differ, tensors that are not aligned to 16 bytes. The
/// simplest change that gains nearly all there is to gain. Where no product serves there is always
/// a line, with the products' reasons if no change helps. Some tens of ms where there is something
/// to change or no product, else nothing. Pure.
std::string slow_path(const Problem& problem, const DeviceFacts& device,
                      const Overrides& overrides = {});

/// Logs slow_path(), once for each bucket, unless the kernel was forced.
void warn_of_slow_path(const ChoiceKey& key, DeviceState& state);

}  // namespace attnforge
