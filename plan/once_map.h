// once_map.h - a map whose values are made once however many threads ask for them. A look-up takes
// one shared lock.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace attnforge {

/// Values live as long as the map: one that is replaced or forgotten is kept aside, since others
/// may still point to it. Thread-safe.
template <class Key, class Value, class Hash>
class OnceMap {
 public:
  /// nullptr when there is none.
  Value* find(const Key& key) const {
    const std::shared_lock lock(mutex_);
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : found->second;
  }

  /// The value of `key` if `acceptable(value)`, else the one that make() returns (a
  /// std::unique_ptr<Value>). While one thread makes a value, others that want the same key wait
  /// for it and then decide again. If make() throws, the caller gets the exception and one of the
  /// waiting threads tries in its turn.
  template <class Acceptable, class Make>
  Value& find_or_make(const Key& key, Acceptable&& acceptable, Make&& make) {
    {
      std::unique_lock lock(mutex_);
      for (;;) {
        const auto found = values_.find(key);
        if (found != values_.end() && acceptable(std::as_const(*found->second)))
          return *found->second;
        if (being_made_.insert(key).second) break;
        changed_.wait(lock);
      }
    }
    const Making making{*this, key};
    return put(key, make());
  }

  /// Puts or replaces.
  Value& put(const Key& key, std::unique_ptr<Value> value) {
    const std::unique_lock lock(mutex_);
    owned_.push_back(std::move(value));
    return *(values_[key] = owned_.back().get());
  }

  /// Calls visit(key, value) for each value in use and forgets it if the answer is true.
  template <class Visit>
  void forget_if(Visit&& visit) {
    const std::unique_lock lock(mutex_);
    std::erase_if(values_, [&](const auto& entry) { return visit(entry.first, *entry.second); });
  }

  std::size_t size() const {
    const std::shared_lock lock(mutex_);
    return values_.size();
  }

 private:
  /// Ends the making of a key on every path, and wakes who waits for it.
  struct Making {
    OnceMap& map;
    const Key& key;
    ~Making() {
      {
        const std::unique_lock lock(map.mutex_);
        map.being_made_.erase(key);
      }
      map.changed_.notify_all();
    }
  };

  mutable std::shared_mutex mutex_;
  std::condition_variable_any changed_;
  std::unordered_map<Key, Value*, Hash> values_;
  std::unordered_set<Key, Hash> being_made_;
  std::vector<std::unique_ptr<Value>> owned_;
};

}  // namespace attnforge
