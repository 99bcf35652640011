// counter_pool.h - the counters of kernels whose blocks take tiles from one counter: a set for each
// stream, and one for each captured launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "generator/launch.h"
#include "runtime/memory.h"

namespace attnforge {

/// Sets of counters in one CUDA context, which must be current in every call. Thread-safe.
///
/// What runs on one stream runs one after another, whichever threads enqueue it, so a stream needs
/// one set. Streams are identified by cuStreamGetId, not by their handle: the handle of a destroyed
/// stream comes back for a new one while old work may still run, and handle 2 is another stream in
/// each thread. A captured launch may be replayed at any time, so it has a set of its own for
/// ever. Kernels count the runs that they ended (kRunsCounter): a stream whose runs have all ended
/// gives its set back when many streams have one, alive or not. Nothing here waits for what others
/// have enqueued, and nothing disturbs a stream capture of this thread or another.
///
/// Memory: kCounterBytes for each captured launch and for each stream of the last two thousand, or
/// of as many as have work under way; and a node of a map for each of these streams.
class CounterPool {
 public:
  CounterPool() = default;
  ~CounterPool();
  CounterPool(const CounterPool&) = delete;
  CounterPool& operator=(const CounterPool&) = delete;

  static constexpr std::size_t kSetsPerSlab = 4096;

  /// Allocates the first slab of sets, so that no run need do it. Throws Error(kCuda).
  void reserve();

  /// The counters for the next `launches` launches on `stream` (any handle: nullptr, 1 and 2 too),
  /// all of which must follow. If one does not, its set stays with the stream for ever. Allocates a
  /// slab when all sets are taken. Throws Error(kCuda).
  void* of(CUstream stream, int launches);

  std::size_t device_bytes() const;  // of all slabs

 private:
  struct Slab {
    Buffer sets;
    HostBuffer copy;  // of what the sets were at the last look
  };
  struct Set {
    std::uint32_t index = 0;     // among the sets of all slabs
    std::uint32_t launches = 0;  // that used it, modulo 2^32: kRunsCounter when all have ended
  };

  Set new_set();
  void add_slab();
  void take_back_ended();
  std::size_t sets_left() const { return slabs_.size() * kSetsPerSlab - sets_used_ + free_.size(); }
  void* address(const Set& set) const;

  mutable std::mutex mutex_;
  std::optional<Stream> own_;  // for zeroing and copying: never one that is captured
  std::vector<Slab> slabs_;
  std::uint32_t sets_used_ = 0;                          // of the slabs, from the first on
  std::vector<Set> free_;                                // of these, what was given back
  std::unordered_map<unsigned long long, Set> streams_;  // by their id
  std::size_t look_at_ = 0;        // with this number of streams, look whose runs have ended
  std::size_t slabs_copying_ = 0;  // a look is under way at this number
};

}  // namespace attnforge
