// cache.h - the database as the tuner and plans see it: tries, winners, cubins. Knows no GPU and no
// family.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attnforge/device.h"
#include "attnforge/problem.h"
#include "attnforge/provenance.h"
#include "attnforge/tune.h"
#include "generator/cubin.h"

namespace attnforge {

/// One try: a config on a problem on a GPU class, with where the number comes from.
struct Try {
  std::string problem;       // to_string(bucket(problem))
  std::string device_class;  // device_class(facts)
  std::string config;
  std::string family;
  std::string digest;  // digest(Source): a changed template makes a try stale
  Rigor rigor = Rigor::kFull;
  double estimate_us = 0;
  bool estimated = false;  // ranked by the model only; measurement has no time
  Measurement measurement;
  // under what it was measured, and when
  std::string driver, nvrtc, uuid, attnforge_version, measured_at;
};

/// A try with as many samples was timed against others, round by round on a warm card. One with
/// fewer was timed in passing; the clock of a cold card makes it look up to 10% faster.
inline constexpr int kRacedSamples = 6;

struct Winner {
  Try best;
  Provenance provenance = Provenance::kMeasured;  // ..., kCompatible, kStale or kNearDevice
  std::optional<Rigor> rigor{};  // of the finished search that chose it; none: no search did
};

/// What a finished search chose.
struct Chosen {
  std::string problem;
  std::string config;

  friend bool operator==(const Chosen&, const Chosen&) = default;
};

class Store;  // cache/store.h

/// One connection to one database file; thread-safe (one mutex; `log` must not call back into the
/// cache). Not to be used across fork(). Look-ups never throw: a broken or busy database is a miss
/// and a log line. Writes wait up to 30 s for other processes and throw Error(kCache) only if the
/// caller could do something about it (disk full, locked for longer); then nothing of the call is
/// stored. In a read-only file they do nothing, with one log line.
class Cache {
 public:
  /// Creates the file and its folder if missing. "" is default_cache_path(), ":memory:" keeps
  /// nothing. Never throws for a file that cannot be used (corrupt, read-only folder,
  /// another schema): it goes on in memory, or in a new file next to the corrupt one, and says so
  /// in the log.
  explicit Cache(const std::string& path, bool read_only = false, LogFunction log = {});
  ~Cache();
  Cache(Cache&&) noexcept;
  Cache& operator=(Cache&&) noexcept;

  const std::string& path() const;  // of the file in use; ":memory:" after a fallback
  /// "" if what is put is kept in the file that was asked for, or in memory where that was; else
  /// why not, as of the last opening or write.
  std::string not_kept() const;
  /// Throws Error(kCache), which says that `what` cannot be stored and why, if that is so or if a
  /// trial write fails: on a full disk, for one.
  void require_keeping(std::string_view what);

  /// What is running now; tells measured from compatible winners and finds GPUs of the same sm. A
  /// driver or NVRTC of "" is not compared.
  struct Current {
    std::string device_class, driver, nvrtc;
    int sm = 0;
  };
  /// What the most rigorous finished search chose, else (only if `at_least` is empty) the fastest
  /// good try that `may_answer` (empty: any) says yes to, raced ones first; with `at_least` only
  /// searches of that rigor or better count.
  /// Estimated tries never win. Tries with today's digest come first, then a stale one of this GPU
  /// class, then one of another class of the same sm with today's digest. `digest_of` computes the
  /// digest a config has today, at most once a config and outside of any lock; if it throws or
  /// gives "", the config is unknown today and passed over. `may_answer` is called likewise.
  std::optional<Winner> best(std::string_view problem, const Current& current,
                             const std::function<std::string(std::string_view config)>& digest_of,
                             std::optional<Rigor> at_least = {},
                             const std::function<bool(const Try& unchosen)>& may_answer = {});
  /// All of them: good ones by time, then estimated ones by estimate, then failures.
  std::vector<Try> tries(std::string_view problem, std::string_view device_class);

  /// What searches on a GPU class that ran to their end chose: of each problem the most rigorous
  /// one's, whatever the templates are today.
  std::vector<Chosen> chosen(std::string_view device_class);

  /// Puts tries in one transaction. The same config, problem, device class and digest again
  /// replaces the try if the new one has at least its rigor, was raced (kRacedSamples), or failed.
  void put(const std::vector<Try>& tries);
  /// Notes that a search ran to its end and which config won (the tie rule is the tuner's): what
  /// best() answers.
  void finish(std::string_view problem, std::string_view device_class, Rigor rigor,
              std::string_view winner_config);

  /// The cubin of a source digest, arch and NVRTC version; nvrtc "" is any, the newest first: code
  /// runs without the compiler that made it. A blob whose checksum does not match is dropped and
  /// missed.
  std::optional<Cubin> get_cubin(std::string_view source_digest, std::string_view arch,
                                 std::string_view nvrtc);
  void put_cubin(const Cubin& cubin, std::string_view source_text, std::string_view kernel_symbol);

  /// The one process that tunes a problem; others wait or go on with an estimate. True if this
  /// caller holds it now. A lease of a dead process on this host is taken over at once, any other
  /// after `seconds` without renew (acquiring again). The holder is this Cache, whichever thread
  /// asks; its end releases. True also where nothing can be written: then there is no one to share
  /// the result with.
  bool acquire_lease(std::string_view problem, std::string_view device_class, double seconds);
  void release_lease(std::string_view problem, std::string_view device_class);

 private:
  std::unique_ptr<Store> store_;
  std::string owner_;  // of leases: this Cache, among all of all processes
  std::unique_ptr<std::atomic<bool>> may_hold_leases_;
};

}  // namespace attnforge
