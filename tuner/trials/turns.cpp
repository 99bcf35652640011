#include "tuner/trials/turns.h"

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

namespace attnforge {
namespace {

/// Of one GPU. std::mutex would let the thread that has just run go first again.
class Turns {
 public:
  void take() {
    std::unique_lock lock(mutex_);
    const std::uint64_t mine = next_++;
    given_.wait(lock, [&] { return now_ == mine; });
  }
  /// False, at once, while another has it.
  bool try_take() {
    const std::lock_guard lock(mutex_);
    if (now_ != next_) return false;
    ++next_;
    return true;
  }
  void give() {
    {
      const std::lock_guard lock(mutex_);
      ++now_;
    }
    given_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable given_;
  std::uint64_t next_ = 0, now_ = 0;  // guarded
};

Turns& turns_of(const std::string& uuid) {
  static std::mutex mutex;
  static std::map<std::string, Turns> all;
  const std::lock_guard lock(mutex);
  return all[uuid];
}

class TrialsInTurn : public Trials {
 public:
  TrialsInTurn(std::unique_ptr<Trials> trials, Turns& turns)
      : turns_(turns), trials_(std::move(trials)) {}
  ~TrialsInTurn() override {
    trials_.reset();  // a worker at work ends
    give();
  }

  void start() override { trials_->start(); }

  bool get_ready(const OwnCode& code) override {
    if (!ready_) {
      if (!has_turn_ && !turns_.try_take()) return false;
      has_turn_ = true;
      ready_ = trials_->get_ready(code);
      if (ready_ || lost() != nullptr) give();
    }
    return ready_;
  }

  Measurement load(const Candidate& candidate, const Compiled& compiled, double rough_us) override {
    const Turn turn(*this);
    return trials_->load(candidate, compiled, rough_us);
  }
  Measurement prove(const Config& config) override {
    const Turn turn(*this);
    return trials_->prove(config);
  }
  std::vector<double> sample_us(std::span<const Config> order, Sizes sizes) override {
    const Turn turn(*this);
    return trials_->sample_us(order, sizes);
  }
  void heat(std::span<const Config> configs) override {
    const Turn turn(*this);
    trials_->heat(configs);
  }
  double clock_mhz() override { return trials_->clock_mhz(); }
  void release(const Config& config) override { trials_->release(config); }
  const Loss* lost() const override { return trials_->lost(); }

 private:
  /// get_ready() may have left it with this search.
  struct Turn {
    explicit Turn(TrialsInTurn& owner) : owner(owner) {
      if (!std::exchange(owner.has_turn_, true)) owner.turns_.take();
    }
    ~Turn() { owner.give(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    TrialsInTurn& owner;
  };

  void give() {
    if (std::exchange(has_turn_, false)) turns_.give();
  }

  Turns& turns_;
  std::unique_ptr<Trials> trials_;
  bool has_turn_ = false, ready_ = false;
};

}  // namespace

std::unique_ptr<Trials> taking_turns(std::unique_ptr<Trials> trials, const DeviceFacts& device) {
  return std::make_unique<TrialsInTurn>(std::move(trials), turns_of(device.uuid));
}

}  // namespace attnforge
