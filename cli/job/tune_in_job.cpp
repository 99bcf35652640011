#include "cli/job/tune_in_job.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>

#include "attnforge/cache.h"
#include "attnforge/device.h"
#include "attnforge/printable.h"
#include "cli/job/child.h"
#include "cli/job/hand_out.h"
#include "cli/job/messages.h"
#include "cli/output/json.h"
#include "cli/terminal/terminal.h"
#include "cli/verbs/verbs.h"

namespace attnforge::cli {
namespace {

constexpr double kAliveSeconds = 1;
// A process that hears nothing of the first one goes: nobody would take its results.
constexpr double kFirstSilentSeconds = 10 * kSilentSeconds;
constexpr auto kPause = std::chrono::milliseconds(10);

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The same for two processes that write one file.
std::string identity_of(const std::string& database) {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  std::error_code ignored;
  return fmt::format("{}:{}", host, std::filesystem::weakly_canonical(database, ignored).string());
}

/// What is stored of a problem's bucket, and of those whose text begins so.
std::string stored_rows(const std::string& database, const std::string& bucket) {
  std::ostringstream rows;
  if (!bucket.empty() && std::filesystem::exists(database)) cache_export(database, rows, bucket);
  return rows.str();
}

void merge_rows(const std::string& database, const std::string& rows) {
  if (rows.empty()) return;
  std::istringstream lines(rows);
  cache_import(database, lines);
}

/// A message is a line of words, and a text.
struct JobMessage {
  std::vector<std::string> words;
  std::string text;
};
JobMessage message_of(const std::string& whole) {
  const std::size_t end = std::min(whole.find('\n'), whole.size());
  JobMessage message;
  std::istringstream line(whole.substr(0, end));
  for (std::string word; line >> word;) message.words.push_back(word);
  if (end < whole.size()) message.text = whole.substr(end + 1);
  if (message.words.empty()) message.words.emplace_back();
  return message;
}

/// How a problem ended: an entry of `attnforge tune --json`, and the process's exit code.
struct Ended {
  std::size_t problem = 0;
  int exit_code = 0;
  Json result;
};

/// One process's part of the job: at most one problem at a time.
class Rank {
 public:
  Rank(const JobTask& task, JobMessages& job)
      : task_(task), job_(job), database_(task.cache.empty() ? default_cache_path() : task.cache) {
    const std::size_t gpus = std::max<std::size_t>(enumerate_devices().size(), 1);
    options_ = {"tune",
                "--json",
                "--quiet",
                "--cache",
                database_,
                "--gpu",
                std::to_string(static_cast<std::size_t>(job.local_rank()) % gpus)};
    int threads = task.compile_threads;
    if (threads == 0 && job.local_size() > 1)
      threads = std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)) / job.local_size());
    options_.insert(options_.end(), {"--compile-threads", std::to_string(threads)});
    options_.insert(options_.end(), task.options.begin(), task.options.end());
  }

  const std::string& database() const { return database_; }
  bool busy() const { return child_.has_value(); }

  void begin(std::size_t problem) {
    problem_ = problem;
    std::vector<std::string> words = options_;
    words.push_back(to_string(task_.problems[problem]));
    child_.emplace(words);
  }

  std::optional<Ended> ended() {
    const std::optional<int> code = child_ ? child_->ended() : std::nullopt;
    if (!code) return std::nullopt;
    Ended result{.problem = problem_, .exit_code = *code, .result = {}};
    const Json whole = Json::parse(child_->output(), nullptr, false);
    if (whole.is_object() && whole.contains("results") && whole["results"].size() == 1) {
      result.result = whole["results"][0];
    } else {
      const std::string how = *code > 128 ? fmt::format("signal {} ended it", *code - 128)
                                          : fmt::format("it ended with {}", *code);
      result.exit_code = kExitFailed;
      result.result = {{"problem", to_string(task_.problems[problem_])},
                       {"error", {{"code", "internal"}, {"message", "its process: " + how}}}};
    }
    child_.reset();
    return result;
  }

  void interrupt() {
    if (child_ && !std::exchange(interrupted_, true)) child_->interrupt();
  }

 private:
  const JobTask& task_;
  JobMessages& job_;
  const std::string database_;
  std::vector<std::string> options_;
  std::size_t problem_ = 0;
  std::optional<Child> child_;
  bool interrupted_ = false;
};

std::string bucket_of(const Json& result) {
  return result.value("measured_as", result.value("problem", std::string()));
}

std::string line_of(const Ended& ended) {
  const Json& r = ended.result;
  const std::string problem = r.value("problem", std::string());
  if (r.contains("error"))
    return fmt::format("failed: {}: {}", problem, printable(r["error"].value("message", "")));
  if (r.value("winner", "").empty()) return fmt::format("failed: {}: no config worked", problem);
  return fmt::format("{:.2f} us, {:.3f}x, {} tried: {}", r.value("winner_us", 0.0),
                     r.value("speed_up", 0.0), r.value("tried", 0), problem);
}

/// The first process.
class FirstRank {
 public:
  FirstRank(const JobTask& task, JobMessages& job)
      : task_(task),
        job_(job),
        rank_(task, job),
        hand_out_(task.problems.size(), job.size(), now_s()),
        waiting_(static_cast<std::size_t>(job.size())),
        identities_(static_cast<std::size_t>(job.size())),
        results_(task.problems.size()) {
    identities_[0] = identity_of(rank_.database());
  }

  int run() {
    double told_s = 0;
    while (!hand_out_.finished() && !(interrupted() && !rank_.busy())) {
      while (const auto received = job_.receive()) take(*received);
      if (interrupted()) rank_.interrupt();
      if (const auto ended = rank_.ended()) note(0, *ended);
      for (const int lost : hand_out_.lose_silent(now_s())) {
        lost_any_ = true;
        say(fmt::format("attnforge: process {} of the job is lost; others go on with what it had",
                        lost));
      }
      if (!interrupted()) hand_out();
      if (now_s() - told_s >= kAliveSeconds) tell("alive"), told_s = now_s();
      std::this_thread::sleep_for(kPause);
    }
    tell("end");
    return report();
  }
  bool lost_any() const { return lost_any_; }

 private:
  void take(const JobMessages::Received& received) {
    const auto from = static_cast<std::size_t>(received.from);
    hand_out_.heard(received.from, now_s());
    const JobMessage message = message_of(received.text);
    if (message.words[0] == "ready" && message.words.size() == 2) {
      identities_[from] = message.words[1];
      waiting_[from] = true;
    } else if (message.words[0] == "done" && message.words.size() == 4) {
      const std::size_t result_size = std::stoul(message.words[3]);
      merge_rows(rank_.database(), message.text.substr(result_size));
      note(received.from, {.problem = std::stoul(message.words[1]),
                           .exit_code = std::stoi(message.words[2]),
                           .result = Json::parse(message.text.substr(0, result_size))});
      waiting_[from] = true;
    }
  }

  void note(int rank, const Ended& ended) {
    if (!hand_out_.done(rank, ended.problem)) return;
    ++done_;
    if (!task_.json)
      write_out(fmt::format("{}/{} process {}: {}\n", done_, task_.problems.size(), rank,
                            line_of(ended)));
    results_[ended.problem] = ended;
  }

  void hand_out() {
    if (!rank_.busy())
      if (const auto problem = hand_out_.next(0)) rank_.begin(*problem);
    for (int to = 1; to < job_.size(); ++to) {
      const auto place = static_cast<std::size_t>(to);
      if (!waiting_[place] || hand_out_.lost(to)) continue;
      const auto problem = hand_out_.next(to);
      if (!problem) return;
      waiting_[place] = false;
      const std::string rows = identities_[place] == identities_[0]
                                   ? ""
                                   : stored_rows(rank_.database(),
                                                 to_string(task_.problems[*problem]));
      job_.send(to, fmt::format("tune {}\n{}", *problem, rows));
    }
  }

  void tell(const char* text) {
    for (int to = 1; to < job_.size(); ++to)
      if (!hand_out_.lost(to)) job_.send(to, text);
  }

  int report() {
    int code = interrupted() ? kExitInterrupted : kExitOk;
    Json all = Json::array();
    std::size_t failed = 0, left = 0;
    for (std::size_t i = 0; i < results_.size(); ++i) {
      if (results_[i]) {
        all.push_back(results_[i]->result);
        failed += results_[i]->exit_code != kExitOk;
        if (code == kExitOk) code = results_[i]->exit_code;
        continue;
      }
      const std::string why = hand_out_.given_up(i) ? "each process that tuned it was lost"
                                                    : "not begun";
      all.push_back({{"problem", to_string(task_.problems[i])},
                     {"error", {{"code", "not_begun"}, {"message", why}}}});
      ++left;
      if (code == kExitOk) code = kExitFailed;
    }
    if (task_.json) {
      print_json({{"attnforge", kVersion}, {"interrupted", interrupted()}, {"results", all}});
    } else {
      write_out(fmt::format("{} problems tuned, {} failed, {} left; all of it is in {}\n",
                            done_ - failed, failed, left, rank_.database()));
    }
    return code;
  }

  const JobTask& task_;
  JobMessages& job_;
  Rank rank_;
  HandOut hand_out_;
  std::vector<bool> waiting_;  // ranks that asked for a problem
  std::vector<std::string> identities_;
  std::vector<std::optional<Ended>> results_;
  std::size_t done_ = 0;
  bool lost_any_ = false;
};

/// Any other process. Returns whether the first one said that all is over.
bool serve_first(const JobTask& task, JobMessages& job) {
  Rank rank(task, job);
  job.send(0, "ready " + identity_of(rank.database()));
  double told_s = now_s(), heard_s = told_s;
  while (now_s() - heard_s < kFirstSilentSeconds) {
    while (const auto received = job.receive()) {
      heard_s = now_s();
      const JobMessage message = message_of(received->text);
      if (message.words[0] == "end") return true;
      if (message.words[0] != "tune" || rank.busy()) continue;
      merge_rows(rank.database(), message.text);
      rank.begin(std::stoul(message.words.at(1)));
    }
    if (interrupted()) rank.interrupt();
    if (const auto ended = rank.ended()) {
      const std::string result = ended->result.dump();
      job.send(0,
               fmt::format("done {} {} {}\n{}{}", ended->problem, ended->exit_code, result.size(),
                           result, stored_rows(rank.database(), bucket_of(ended->result))));
    }
    if (now_s() - told_s >= kAliveSeconds) job.send(0, "alive"), told_s = now_s();
    std::this_thread::sleep_for(kPause);
  }
  return false;
}

}  // namespace

int tune_in_job(const JobTask& task) {
  const std::unique_ptr<JobMessages> job = join_job();
  const InterruptScope scope;
  int code = kExitOk;
  bool whole = true;
  if (job->rank() == 0) {
    FirstRank first(task, *job);
    code = first.run();
    whole = !first.lost_any();
  } else {
    whole = serve_first(task, *job);
  }
  job->leave(whole, code);
  return code;
}

}  // namespace attnforge::cli
