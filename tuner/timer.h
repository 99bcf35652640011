// timer.h - cold-L2 times of work on a stream. The work of a whole batch is put after a gate
// before any of it runs, so the host's launch latency is in no sample, however short the kernel and
// however busy the host.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "attnforge/device.h"
#include "runtime/memory.h"
#include "tuner/instruments.h"

namespace attnforge {

/// True once the GPU has passed `event`; false if it has not after `seconds`. Throws Error(kCuda)
/// if work before it failed.
bool wait(const Event& event, double seconds);

/// A word in host memory that the GPU sees.
class SharedWord {
 public:
  SharedWord() { store(0); }

  unsigned* address() const { return static_cast<unsigned*>(memory_.data()); }
  unsigned load() const;
  void store(unsigned value);

 private:
  HostBuffer memory_{sizeof(unsigned)};
};

class Timer {
 public:
  /// Borrows `instruments`. Throws Error(kCuda).
  Timer(const DeviceFacts& device, const Instruments& instruments);

  CUstream stream() const { return stream_.get(); }

  struct Samples {
    std::vector<double> time_us;  // NaN where enqueue said no
    bool timed_out = false;       // the GPU did not finish: stream and timer are of no use any more
    std::size_t timed_out_at = 0;  // the first item that it did not finish
  };
  /// Times items 0 to count - 1 in turn, L2 flushed before each, outside of the time.
  /// `enqueue(item)` puts an item on stream() without synchronising and returns false if it could
  /// not. `limit_s` is for all of them together. Throws Error(kCuda) if a kernel faults.
  Samples sample(std::size_t count, const std::function<bool(std::size_t item)>& enqueue,
                 double limit_s);

  /// Mean SM clock during the last sample(), flushes included; 0: unknown.
  double clock_mhz() const { return clock_mhz_; }

 private:
  Samples sample_batch(std::size_t begin, std::size_t count,
                       const std::function<bool(std::size_t item)>& enqueue, double limit_s);

  const Instruments& instruments_;
  const int num_sms_;
  Stream stream_;
  Buffer flush_;
  Buffer stamps_before_, stamps_after_;
  SharedWord open_, expired_;
  unsigned ticket_ = 0;
  bool expired_last_ = false;
  std::vector<Event> starts_, stops_;
  Event end_;
  double clock_mhz_ = 0;
};

}  // namespace attnforge
