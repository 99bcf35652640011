#include "tuner/trials/turns.h"

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

namespace attnforge {
namespace {

/// Of one GPU. std::mutex would let the thread that has just run go first again.
class Queue {
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

/// Never destroyed: a thread may wait when the process ends.
Queue& queue_of(const std::string& uuid) {
  static auto& mutex = *new std::mutex;
  static auto& all = *new std::map<std::string, Queue>;
  const std::lock_guard lock(mutex);
  return all[uuid];
}

class TrialsInTurn : public Trials {
 public:
  TrialsInTurn(std::unique_ptr<Trials> trials, Queue& queue, Turns turns)
      : queue_(queue), turns_(turns), trials_(std::move(trials)) {}
  ~TrialsInTurn() override {
    if (had_turn_) take();  // memory is freed, or a worker ends; else there is nothing on the GPU
    trials_.reset();
    if (has_turn_) queue_.give();
  }

  bool start() override { return trials_->start(); }

  bool get_ready(const OwnCode& code) override {
    if (code_.empty()) code_ = code;
    if (!ready_) {
      if (!has_turn_ && !queue_.try_take()) return false;
      has_turn_ = had_turn_ = true;
      ready_ = trials_->get_ready(code_);
      if (ready_ || lost() != nullptr) end_turn();
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
  void release(const Config& config) override {
    const Turn turn(*this, false);
    trials_->release(config);
  }
  const Loss* lost() const override { return trials_->lost(); }

 private:
  /// get_ready() may have left it with this search.
  struct Turn {
    explicit Turn(TrialsInTurn& owner, bool runs = true) : owner(owner) {
      owner.take();
      // The others may not have let get_ready() have a turn.
      if (runs && !owner.ready_) owner.ready_ = owner.trials_->get_ready(owner.code_);
    }
    ~Turn() { owner.end_turn(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    TrialsInTurn& owner;
  };

  void take() {
    if (!std::exchange(has_turn_, true)) queue_.take();
    had_turn_ = true;
  }
  void end_turn() {
    if (turns_ == Turns::kEachCall && std::exchange(has_turn_, false)) queue_.give();
  }

  Queue& queue_;
  const Turns turns_;
  std::unique_ptr<Trials> trials_;
  OwnCode code_;
  bool has_turn_ = false, had_turn_ = false, ready_ = false;
};

}  // namespace

std::unique_ptr<Trials> taking_turns(std::unique_ptr<Trials> trials, const DeviceFacts& device,
                                     Turns turns) {
  return std::make_unique<TrialsInTurn>(std::move(trials), queue_of(device.uuid), turns);
}

}  // namespace attnforge
