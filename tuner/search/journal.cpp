#include "tuner/search/journal.h"

#include <utility>

#include "attnforge/error.h"
#include "generator/text/utc.h"

namespace attnforge {
namespace {

constexpr double kPutEverySeconds = 0.5;
constexpr double kLeaseSeconds = 30;

}  // namespace

Journal::Journal(Cache& cache, const TuneEnvironment& environment, Try blank)
    : cache_(cache), environment_(environment), blank_(std::move(blank)) {}

template <class Write>
void Journal::attempt(const char* what, Write write) {
  if (!failure_.empty()) return;
  try {
    write();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCache) throw;
    failure_ = std::string(what) + ": " + error.what();
    log(environment_, LogLevel::kWarning,
        "tuning goes on, but its results are not kept: " + failure_);
  }
}

void Journal::note(const std::string& config, const std::string& family, const std::string& digest,
                   double estimate_us, const Measurement& measurement) {
  Try entry = blank_;
  entry.config = config;
  entry.family = family;
  entry.digest = digest;
  entry.estimate_us = estimate_us;
  entry.measurement = measurement;
  entry.measured_at = utc_now();
  if (pending_.empty()) pending_since_s_ = environment_.now_s();
  const auto [it, fresh] = place_.emplace(config, pending_.size());
  if (fresh) {
    pending_.push_back(std::move(entry));
  } else {
    pending_[it->second] = std::move(entry);
  }
}

void Journal::tick() {
  if (!pending_.empty() && environment_.now_s() - pending_since_s_ >= kPutEverySeconds) flush();
}

void Journal::flush() {
  if (pending_.empty()) return;
  attempt("putting tries", [&] { cache_.put(pending_); });
  pending_.clear();
  place_.clear();
}

void Journal::finish(Rigor rigor, const std::string& winner) {
  flush();
  attempt("noting the winner",
          [&] { cache_.finish(blank_.problem, blank_.device_class, rigor, winner); });
}

Lease::Lease(Cache& cache, const TuneEnvironment& environment, std::string problem,
             std::string device_class)
    : cache_(cache),
      environment_(environment),
      problem_(std::move(problem)),
      device_class_(std::move(device_class)) {}

bool Lease::acquire() {
  try {
    held_ = cache_.acquire_lease(problem_, device_class_, kLeaseSeconds);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCache) throw;
    held_ = true;
    log(environment_, LogLevel::kWarning,
        std::string("tuning without a lock against other processes: ") + error.what());
  }
  renewed_s_ = environment_.now_s();
  return held_;
}

void Lease::tick() {
  if (held_ && environment_.now_s() - renewed_s_ >= kLeaseSeconds / 3) acquire();
}

Lease::~Lease() {
  if (!held_) return;
  try {
    cache_.release_lease(problem_, device_class_);
  } catch (const Error&) {
    // It runs out by itself.
  }
}

}  // namespace attnforge
