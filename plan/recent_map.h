// recent_map.h - a map of bounded size that keeps what was looked up of late. A look-up takes one
// shared lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

namespace attnforge {

/// Values are shared: one that is replaced or dropped lives as long as someone holds it. Each has
/// its key, which KeyOf takes out of it, so that no key is kept twice; who looks up and then puts
/// computes a hash once. Thread-safe. At the limit a new key takes the location of one that was not
/// looked up since the last time around ("second chance": what is in use stays, at the cost of a
/// flag a look-up).
template <class Value, class KeyOf>
class RecentMap {
 public:
  using Key = std::invoke_result_t<KeyOf, const Value&>;

  explicit RecentMap(std::size_t limit) : limit_(limit) {}

  /// nullptr when there is none. `hash`: of the key.
  std::shared_ptr<const Value> find(const Key& key, std::size_t hash) const {
    const std::shared_lock lock(mutex_);
    const auto found = entries_.find(Sought{key, hash});
    if (found == entries_.end()) return nullptr;
    // Read first: many threads may look up one key, and a write would take its line from them.
    if (!found->used.load(std::memory_order_relaxed))
      found->used.store(true, std::memory_order_relaxed);
    return found->value;
  }

  /// Puts or replaces, and returns `value`. `hash`: of its key.
  std::shared_ptr<const Value> put(std::shared_ptr<const Value> value, std::size_t hash) {
    std::shared_ptr<const Value> dropped;  // destroyed without the lock
    const std::unique_lock lock(mutex_);
    const auto [entry, is_new] = entries_.emplace(value, hash);
    if (!is_new) {
      dropped = std::exchange(entry->value, value);
      return value;
    }
    if (places_.size() < limit_) {
      places_.push_back(&*entry);
      return value;
    }
    while (places_[hand_]->used.exchange(false, std::memory_order_relaxed)) advance();
    dropped = places_[hand_]->value;
    entries_.erase(entries_.find(*places_[hand_]));
    places_[hand_] = &*entry;
    advance();
    return value;
  }

  std::size_t size() const {
    const std::shared_lock lock(mutex_);
    return entries_.size();
  }

 private:
  struct Entry {
    Entry(std::shared_ptr<const Value> value_, std::size_t hash_)
        : value(std::move(value_)), hash(hash_) {}
    Key key() const { return KeyOf()(*value); }

    mutable std::shared_ptr<const Value> value;  // another one has an equal key
    std::size_t hash;
    mutable std::atomic<bool> used{false};  // looked up since the hand came by
  };
  struct Sought {
    const Key& wanted;
    std::size_t hash;
    const Key& key() const { return wanted; }
  };
  struct Hash {
    using is_transparent = void;
    template <class Place>
    std::size_t operator()(const Place& place) const noexcept {
      return place.hash;
    }
  };
  struct Same {
    using is_transparent = void;
    template <class A, class B>
    bool operator()(const A& a, const B& b) const {
      return a.hash == b.hash && a.key() == b.key();
    }
  };

  void advance() { hand_ = (hand_ + 1) % places_.size(); }

  const std::size_t limit_;
  mutable std::shared_mutex mutex_;
  std::unordered_set<Entry, Hash, Same> entries_;
  std::vector<const Entry*> places_;  // in a circle
  std::size_t hand_ = 0;
};

}  // namespace attnforge
