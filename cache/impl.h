// impl.h - what a Cache owns. Its member functions are in cache.cpp, best.cpp, cubins.cpp and
// lease.cpp.
#pragma once

#include <atomic>
#include <string>

#include "cache/cache.h"
#include "cache/store.h"

namespace attnforge {

class Cache::Impl {
 public:
  Impl(const std::string& path, bool read_only, LogFunction log);
  ~Impl();  // gives back the leases

  Store store;
  const std::string owner;  // of leases: this Cache, among all of all processes
  std::atomic<bool> may_hold_leases = false;
};

}  // namespace attnforge
