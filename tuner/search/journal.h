// journal.h - writes tries to the database as a search goes, at least once a second, so that a
// killed run loses little.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "cache/cache.h"
#include "tuner/search/environment.h"

namespace attnforge {

/// Collects tries and puts them in one transaction a second. A database that cannot be written is
/// logged once and the search goes on without it; failure() says why.
class Journal {
 public:
  /// Borrows `cache` and `environment`. `blank` has what all tries of the search have in common.
  Journal(Cache& cache, const TuneEnvironment& environment, Try blank);

  /// Remembers a try; a later one of the same config replaces it.
  void note(const std::string& config, const std::string& family, const std::string& digest,
            double estimate_us, const Measurement& measurement);
  /// Puts what is due. Called often.
  void tick();
  /// Puts everything now.
  void flush();
  /// Puts everything and notes the end of the search. `rigor` is what the search reached.
  void finish(Rigor rigor, const std::string& winner);
  /// The first write that failed; "": none. There was no other since.
  const std::string& failure() const { return failure_; }

 private:
  /// Runs a write, unless one failed before.
  template <class Write>
  void attempt(const char* what, Write write);

  Cache& cache_;
  const TuneEnvironment& environment_;
  Try blank_;
  std::vector<Try> pending_;
  std::unordered_map<std::string, std::size_t> place_;  // of a config in pending_
  double pending_since_s_ = 0;
  std::string failure_;
};

/// The one process that tunes a problem. Without a database that can be written every process is.
class Lease {
 public:
  Lease(Cache& cache, const TuneEnvironment& environment, std::string problem,
        std::string device_class);
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  bool acquire();
  bool held() const { return held_; }
  /// Renews when a third of its time has passed. Called often.
  void tick();

 private:
  Cache& cache_;
  const TuneEnvironment& environment_;
  std::string problem_, device_class_;
  double renewed_s_ = 0;
  bool held_ = false;
};

}  // namespace attnforge
