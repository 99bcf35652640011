// recent_map.h - a map of bounded size that keeps what was looked up of late. A look-up takes one
// shared lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace attnforge {

/// Values are shared: one that is replaced or dropped lives as long as someone holds it.
/// Thread-safe. At the limit a new key takes the location of one that was not looked up since the
/// last time around ("second chance": what is in use stays, at the cost of a flag a look-up).
template <class Key, class Value, class Hash>
class RecentMap {
 public:
  explicit RecentMap(std::size_t limit) : limit_(limit) {}

  /// nullptr when there is none.
  std::shared_ptr<const Value> find(const Key& key) const {
    const std::shared_lock lock(mutex_);
    const auto found = values_.find(key);
    if (found == values_.end()) return nullptr;
    const Entry& entry = found->second;
    // Read first: many threads may look up one key, and a write would take its line from them.
    if (!entry.used.load(std::memory_order_relaxed))
      entry.used.store(true, std::memory_order_relaxed);
    return entry.value;
  }

  /// Puts or replaces, and returns `value`.
  std::shared_ptr<const Value> put(const Key& key, std::shared_ptr<const Value> value) {
    std::shared_ptr<const Value> dropped;  // destroyed without the lock
    const std::unique_lock lock(mutex_);
    const auto [node, is_new] = values_.try_emplace(key);
    dropped = std::exchange(node->second.value, value);
    if (!is_new) return value;
    if (places_.size() < limit_) {
      places_.push_back(&*node);
      return value;
    }
    while (places_[hand_]->second.used.exchange(false, std::memory_order_relaxed)) advance();
    dropped = std::move(places_[hand_]->second.value);
    values_.erase(values_.find(places_[hand_]->first));
    places_[hand_] = &*node;
    advance();
    return value;
  }

  std::size_t size() const {
    const std::shared_lock lock(mutex_);
    return values_.size();
  }

 private:
  struct Entry {
    std::shared_ptr<const Value> value;
    mutable std::atomic<bool> used{false};  // looked up since the hand came by
  };
  using Map = std::unordered_map<Key, Entry, Hash>;

  void advance() { hand_ = (hand_ + 1) % places_.size(); }

  const std::size_t limit_;
  mutable std::shared_mutex mutex_;
  Map values_;
  std::vector<typename Map::value_type*> places_;  // in a circle
  std::size_t hand_ = 0;
};

}  // namespace attnforge
