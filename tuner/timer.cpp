#include "tuner/timer.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <thread>

namespace attnforge {
namespace {

constexpr std::size_t
    kGateItems = 32;  // items after one gate; far from the depth of a stream's queue
constexpr std::size_t kFlushLeast = 64 << 20;
constexpr unsigned long long kGateNs = 50'000'000;
constexpr int kGateTries = 3;
constexpr std::size_t kSmsMost = 1024;

using Clock = std::chrono::steady_clock;

}  // namespace

bool wait(const Event& event, double seconds) {
  const Clock::time_point start = Clock::now();
  while (!event.done()) {
    const double waited_s = std::chrono::duration<double>(Clock::now() - start).count();
    if (waited_s > seconds) return false;
    if (waited_s > 1e-3) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

unsigned SharedWord::load() const {
  return std::atomic_ref<unsigned>(*address()).load(std::memory_order_acquire);
}
void SharedWord::store(unsigned value) {
  std::atomic_ref<unsigned>(*address()).store(value, std::memory_order_release);
}

Timer::Timer(const DeviceFacts& device, const Instruments& instruments)
    : instruments_(instruments),
      num_sms_(device.num_sms),
      flush_(std::max(kFlushLeast, 2 * static_cast<std::size_t>(device.l2_bytes)) / 256 * 256),
      stamps_before_(kSmsMost * sizeof(ClockStamp)),
      stamps_after_(kSmsMost * sizeof(ClockStamp)),
      starts_(kGateItems),
      stops_(kGateItems) {}

Timer::Samples Timer::sample_batch(std::size_t begin, std::size_t count,
                                   const std::function<bool(std::size_t)>& enqueue,
                                   double limit_s) {
  const CUstream stream = stream_.get();
  Samples result;
  result.time_us.assign(count, std::numeric_limits<double>::quiet_NaN());
  std::vector<bool> enqueued(count);

  {
    // Whatever happens between here and the closing brace, the gate is opened.
    struct Opener {
      SharedWord& word;
      unsigned ticket;
      ~Opener() { word.store(ticket); }
    };
    ++ticket_;
    stamps_before_.fill8(0, stream);
    stamps_after_.fill8(0, stream);
    instruments_.gate({open_.address(), expired_.address(), kGateNs, ticket_}, stream);
    const Opener opener{open_, ticket_};
    instruments_.stamp_clocks(static_cast<ClockStamp*>(stamps_before_.data()), kSmsMost, num_sms_,
                              stream);
    for (std::size_t i = 0; i < count; ++i) {
      flush_.fill32(0, stream);
      starts_[i].record(stream);
      enqueued[i] = enqueue(begin + i);
      stops_[i].record(stream);
    }
    instruments_.stamp_clocks(static_cast<ClockStamp*>(stamps_after_.data()), kSmsMost, num_sms_,
                              stream);
    end_.record(stream);
  }

  if (!wait(end_, limit_s)) {
    result.timed_out = true;
    std::size_t first = 0;
    while (first + 1 < count && stops_[first].done()) ++first;
    result.timed_out_at = begin + first;
    return result;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (enqueued[i]) result.time_us[i] = elapsed_us(starts_[i], stops_[i]);
  }
  expired_last_ = expired_.load() == ticket_;
  return result;
}

Timer::Samples Timer::sample(std::size_t count, const std::function<bool(std::size_t)>& enqueue,
                             double limit_s) {
  Samples result;
  std::vector<double> clocks;
  for (std::size_t begin = 0; begin < count; begin += kGateItems) {
    const std::size_t batch = std::min(kGateItems, count - begin);
    Samples part;
    // A gate that opened by itself let the host's latency into the samples. If that happens again
    // and again, the host is so slow that there is nothing better.
    for (int tries = 0; tries < kGateTries; ++tries) {
      part = sample_batch(begin, batch, enqueue, limit_s);
      if (part.timed_out || !expired_last_) break;
    }
    result.time_us.insert(result.time_us.end(), part.time_us.begin(), part.time_us.end());
    if (part.timed_out) {
      result.timed_out = true;
      result.timed_out_at = part.timed_out_at;
      result.time_us.resize(count, std::numeric_limits<double>::quiet_NaN());
      return result;
    }
    const double mhz = attnforge::clock_mhz(stamps_before_.to_host<ClockStamp>(),
                                            stamps_after_.to_host<ClockStamp>());
    if (mhz > 0) clocks.push_back(mhz);
  }
  double sum = 0;
  for (double mhz : clocks) sum += mhz;
  clock_mhz_ = clocks.empty() ? 0 : sum / static_cast<double>(clocks.size());
  return result;
}

}  // namespace attnforge
