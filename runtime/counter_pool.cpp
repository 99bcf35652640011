#include "runtime/counter_pool.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "attnforge/error.h"
#include "runtime/driver.h"

namespace attnforge {
namespace {

/// While it lives, this thread may allocate and look at streams that are not captured, although a
/// stream of this thread or another is.
class OutsideOfCaptures {
 public:
  OutsideOfCaptures() {
    check(driver().cuThreadExchangeStreamCaptureMode(&mode_),
          "leave the restrictions of a stream capture");
  }
  ~OutsideOfCaptures() { driver().cuThreadExchangeStreamCaptureMode(&mode_); }
  OutsideOfCaptures(const OutsideOfCaptures&) = delete;
  OutsideOfCaptures& operator=(const OutsideOfCaptures&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

constexpr std::size_t kSlabBytes = CounterPool::kSetsPerSlab * kCounterBytes;

}  // namespace

CounterPool::~CounterPool() {
  // A copy under way writes to memory that is freed next.
  if (slabs_copying_ > 0) driver().cuStreamSynchronize(own_->get());
}

void CounterPool::reserve() {
  const std::lock_guard lock(mutex_);
  if (slabs_.empty()) add_slab();
}

void* CounterPool::of(CUstream stream, int launches) {
  if (is_captured(stream)) {
    const std::lock_guard lock(mutex_);
    return address(new_set());
  }
  unsigned long long id = 0;
  check(driver().cuStreamGetId(stream, &id), "ask for the id of a stream");
  const std::lock_guard lock(mutex_);
  auto found = streams_.find(id);
  if (found == streams_.end()) {
    if (!slabs_.empty() && streams_.size() >= look_at_) take_back_ended();
    found = streams_.emplace(id, new_set()).first;
  }
  found->second.launches += static_cast<std::uint32_t>(launches);
  return address(found->second);
}

std::size_t CounterPool::device_bytes() const {
  const std::lock_guard lock(mutex_);
  return slabs_.size() * kSlabBytes;
}

CounterPool::Set CounterPool::new_set() {
  if (!free_.empty()) {
    const Set set = free_.back();
    free_.pop_back();
    return set;
  }
  if (sets_left() == 0) add_slab();
  return {.index = sets_used_++};
}

void CounterPool::add_slab() {
  const OutsideOfCaptures outside;
  if (!own_) own_.emplace();
  Slab slab{Buffer(kSlabBytes), HostBuffer(kSlabBytes)};
  slab.sets.fill8(0, own_->get());
  own_->synchronize();  // with a stream on which nothing but this and copies runs
  slabs_.push_back(std::move(slab));
  look_at_ = streams_.size() + sets_left() / 2;
}

/// Copies the counters without waiting for the copy; a later call looks at them. That they are old
/// by then does no harm: a stream that had as many runs ended as it has launches now is idle.
void CounterPool::take_back_ended() {
  const OutsideOfCaptures outside;
  const Driver& cuda = driver();
  if (slabs_copying_ == 0) {
    for (const Slab& slab : slabs_) {
      check(cuda.cuMemcpyDtoHAsync(slab.copy.data(), slab.sets.address(), kSlabBytes, own_->get()),
            "copy the counters of all streams");
    }
    slabs_copying_ = slabs_.size();
  }
  const CUresult copied = cuda.cuStreamQuery(own_->get());
  if (copied == CUDA_ERROR_NOT_READY) return;
  check(copied, "ask whether the counters are copied");

  const auto ended = [&](const Set& set) {
    if (set.index >= slabs_copying_ * kSetsPerSlab) return false;
    const auto* const copy = static_cast<const std::byte*>(
        slabs_[set.index / kSetsPerSlab].copy.data());
    std::uint32_t runs = 0;
    std::memcpy(&runs,
                copy + set.index % kSetsPerSlab * kCounterBytes + kRunsCounter * sizeof(runs),
                sizeof(runs));
    return runs == set.launches;
  };
  std::erase_if(streams_, [&](const auto& stream) {
    if (!ended(stream.second)) return false;
    free_.push_back(stream.second);
    return true;
  });
  slabs_copying_ = 0;
  // Half of what is left, and half of that: busy streams are looked at a few times, not each time.
  look_at_ = streams_.size() + std::max<std::size_t>(1, sets_left() / 2);
}

void* CounterPool::address(const Set& set) const {
  return static_cast<std::byte*>(slabs_[set.index / kSetsPerSlab].sets.data()) +
         set.index % kSetsPerSlab * kCounterBytes;
}

}  // namespace attnforge
