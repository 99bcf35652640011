#include "tuner/trials/worker_trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "attnforge/error.h"
#include "tuner/worker/serve.h"

namespace attnforge {
namespace {

using Clock = std::chrono::steady_clock;

// Beside the limit that the worker itself has for a kernel: a driver that does not answer.
constexpr double kAnswerSeconds = 5, kBeginSeconds = 60;
constexpr std::chrono::seconds kStopping{1};  // for what is under way when the caller wants to stop
constexpr int kDeathsInARow = 4;  // without an answer between them: it is not the candidates

class WorkerTrials : public Trials {
 public:
  WorkerTrials(const Problem& problem, const DeviceFacts& device, const WorkerProgram& program,
               const TrialOptions& options, Clock::time_point end,
               const std::function<bool()>& cancelled)
      : problem_(problem),
        device_(device),
        program_(program),
        options_(options),
        end_(end),
        cancelled_(cancelled) {}

  bool start() override {
    if (!loss_ && stage_ < Stage::kBegun) go_on(0);
    return stage_ >= Stage::kBegun;
  }

  bool get_ready(const OwnCode& code) override {
    if (code_.empty()) code_ = code;
    if (!loss_ && stage_ < Stage::kReady) go_on(0);
    return stage_ == Stage::kReady;
  }

  Measurement load(const Candidate& candidate, const Compiled& compiled, double rough_us) override {
    const std::string config = to_string(candidate.config);
    known_.insert_or_assign(config, Known{&candidate, &compiled, rough_us});
    return loaded(config);
  }

  Measurement prove(const Config& config) override {
    const std::string text = to_string(config);
    Measurement result = loaded(text);
    if (result.status != Status::kOk) return result;
    Known& known = known_.at(text);
    const Answer answer = ask(request("prove", std::span(&config, 1)), 2 * limit_s(known));
    result = measurement_of(answer);
    if (result.status == Status::kOk) {
      known.rough_us = result.time_us;
      best_us_ = best_us_ == 0 ? result.time_us : std::min(best_us_, result.time_us);
    }
    return result;
  }

  std::vector<double> sample_us(std::span<const Config> order, Sizes sizes) override {
    const std::vector<double> nothing(order.size(), std::numeric_limits<double>::quiet_NaN());
    const Answer answer = run(sizes == Sizes::kAsked ? "sample asked" : "sample", order);
    if (answer.dead && !loss_ && order.size() > 1 && distinct(order) > 1)
      return one_by_one(order, sizes);
    if (answer.dead || answer.message.size() != order.size() + 2) return nothing;
    clock_mhz_ = number_of(answer.message[1]);
    std::vector<double> times;
    for (std::size_t i = 0; i < order.size(); ++i)
      times.push_back(number_of(answer.message[i + 2]));
    return times;
  }

  void heat(std::span<const Config> configs) override {
    if (configs.empty()) return;
    const Answer answer = run("heat", configs);  // of a dead one the next sample says so
    if (!answer.dead) clock_mhz_ = number_of(answer.message.at(1));
  }

  double clock_mhz() override { return clock_mhz_; }

  void release(const Config& config) override {
    const std::string text = to_string(config);
    known_.erase(text);
    if (in_worker_.erase(text) != 0 && !loss_) ask(request("release", std::span(&config, 1)), 0);
  }

  const Loss* lost() const override { return loss_ ? &*loss_ : nullptr; }

 private:
  struct Known {
    const Candidate* candidate;
    const Compiled* compiled;
    double rough_us;
  };
  struct Answer {
    Message message;
    std::optional<Measurement> dead;  // the worker: why
  };

  /// The next step to a worker that is ready, if the last one is over; ends it where it cannot be.
  void go_on(double seconds) {
    if (stage_ == Stage::kNone) {
      process_ = std::make_unique<WorkerProcess>(program_, WorkerRole::kGpu);
      begun_ = Clock::now();
      process_->channel().send(begin_request(program_.identity, problem_, device_, options_),
                               kSendSeconds);
      stage_ = Stage::kBeginning;
    } else if (stage_ == Stage::kBegun) {
      process_->channel().send(ready_request(code_), kSendSeconds);
      begun_ = Clock::now();
      stage_ = Stage::kGettingReady;
    }
    Message answer;
    const Channel::Got got = process_->channel().receive(answer, seconds);
    if (got == Channel::Got::kMessage) {
      throw_trouble(answer);
      stage_ = stage_ == Stage::kBeginning ? Stage::kBegun : Stage::kReady;
      return;
    }
    const std::chrono::duration<double> since = Clock::now() - begun_;
    if (got == Channel::Got::kGone) {
      died("could not begin");
    } else if (since.count() > kBeginSeconds) {
      died(fmt::format("was not ready after {:.0f} s", since.count()));
    }
  }

  /// Has a worker that is ready, unless time is over or no worker lives.
  bool alive() {
    while (!loss_ && stage_ != Stage::kReady) {
      go_on(0.05);
      if (stage_ != Stage::kReady && is_over()) give_up();
    }
    return !loss_;
  }

  /// Loads what is not loaded in the worker of now.
  Measurement loaded(const std::string& config) {
    if (!alive()) return loss_->measurement;
    if (in_worker_.contains(config)) return {};
    const Known& known = known_.at(config);
    const Answer answer = ask(load_request(*known.candidate, *known.compiled, known.rough_us), 0);
    const Measurement result = measurement_of(answer);
    if (result.status == Status::kOk) in_worker_.insert(config);
    return result;
  }

  Answer run(const char* what, std::span<const Config> configs) {
    double limit_s = 0;
    for (const Config& config : configs) {
      const std::string text = to_string(config);
      const Measurement result = loaded(text);
      if (result.status != Status::kOk) return {{}, result};
      limit_s = std::max(limit_s, this->limit_s(known_.at(text)));
      limit_s += 50e-6 * known_.at(text).rough_us;
    }
    return ask(request(what, configs), limit_s);
  }

  /// Who of several broke the worker is not known: each is sampled alone.
  std::vector<double> one_by_one(std::span<const Config> order, Sizes sizes) {
    std::vector<double> times;
    std::set<std::string> bad;
    for (const Config& config : order) {
      const bool tried = bad.contains(to_string(config));
      times.push_back(tried || loss_ ? std::numeric_limits<double>::quiet_NaN()
                                     : sample_us(std::span(&config, 1), sizes).front());
      if (!(times.back() > 0)) bad.insert(to_string(config));
    }
    return times;
  }

  static std::size_t distinct(std::span<const Config> order) {
    std::set<std::string> texts;
    for (const Config& config : order) texts.insert(to_string(config));
    return texts.size();
  }

  double limit_s(const Known& known) const {
    return hang_limit_s(options_.hang_least_s, best_us_, known.rough_us,
                        known.candidate->estimate_us);
  }

  /// `limit_s`: what the worker may wait for kernels.
  Answer ask(const Message& message, double limit_s) {
    const std::chrono::duration<double> wait(limit_s + kAnswerSeconds);
    const Clock::time_point limit = Clock::now() +
                                    std::chrono::duration_cast<Clock::duration>(wait);
    Channel& channel = process_->channel();
    channel.send(message, kSendSeconds);
    Answer answer;
    for (;;) {
      const Channel::Got got = channel.receive(answer.message, 0.05);
      const Clock::time_point now = Clock::now();
      if (got == Channel::Got::kMessage) break;
      if (got == Channel::Got::kGone) return {{}, died("")};
      if (now > limit) return {{}, died(fmt::format("gave no answer for {:.1f} s", wait.count()))};
      if (is_over()) {
        give_up();
        return {{}, loss_->measurement};
      }
    }
    if (answer.message.front() == "lost") {
      const Measurement why = measurement_at(answer.message, 1);
      end_worker();
      deaths_ = why.status == Status::kTimedOut ? 0 : deaths_ + 1;
      check_deaths(why);
      return {{}, why};
    }
    throw_trouble(answer.message);
    deaths_ = 0;
    return answer;
  }

  static Measurement measurement_of(const Answer& answer) {
    return answer.dead ? *answer.dead : measurement_at(answer.message, 1);
  }

  void end_worker() {
    process_.reset();
    in_worker_.clear();
    stage_ = Stage::kNone;
  }

  /// `how` "": as its end says.
  Measurement died(const std::string& how) {
    const std::string end = process_->end();
    const Measurement result = failed(
        how.find("no answer") == std::string::npos ? Status::kLaunchError : Status::kTimedOut,
        fmt::format("the worker {}{}{}", how, how.empty() ? "" : ": it ", end));
    end_worker();
    ++deaths_;
    check_deaths(result);
    return result;
  }

  void check_deaths(const Measurement& last) {
    if (deaths_ < kDeathsInARow) return;
    loss_ = Loss{"", last,
                 fmt::format("{} workers in a row ended, the last one: {}. What was tried is "
                             "stored; see whether attnforge doctor finds something",
                             deaths_, last.detail)};
  }

  /// Whether nothing is waited for any more.
  bool is_over() {
    const Clock::time_point now = Clock::now();
    if (!stop_ && cancelled_ && cancelled_()) stop_ = now + kStopping;
    return now > end_ || (stop_ && now > *stop_);
  }

  void give_up() {
    loss_ = Loss{"", failed(Status::kTimedOut, "the time of the search was over"),
                 fmt::format("{} while a worker was at work. What was tried is stored",
                             stop_ ? "that was asked for" : "its time was over")};
    end_worker();
  }

  const Problem problem_;
  const DeviceFacts device_;
  const WorkerProgram program_;
  const TrialOptions options_;
  const Clock::time_point end_;
  const std::function<bool()> cancelled_;
  std::optional<Clock::time_point> stop_;  // once cancelled
  std::unique_ptr<WorkerProcess> process_;
  enum class Stage { kNone, kBeginning, kBegun, kGettingReady, kReady } stage_ = Stage::kNone;
  OwnCode code_;
  Clock::time_point begun_;
  std::map<std::string, Known> known_;
  std::set<std::string> in_worker_;  // those of known_ that the worker of now has
  int deaths_ = 0;                   // since the last answer
  double best_us_ = 0, clock_mhz_ = 0;
  std::optional<Loss> loss_;
};

}  // namespace

std::unique_ptr<Trials> make_worker_trials(const Problem& problem, const DeviceFacts& device,
                                           const WorkerProgram& program,
                                           const TrialOptions& options, Clock::time_point end,
                                           const std::function<bool()>& cancelled) {
  return std::make_unique<WorkerTrials>(problem, device, program, options, end, cancelled);
}

}  // namespace attnforge
