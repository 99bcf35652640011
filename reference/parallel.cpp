#include "reference/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "reference/usable_cores.h"

namespace attnforge {
void parallel_for(std::int64_t count, int threads, const std::function<void(std::int64_t)>& work) {
  if (threads <= 0) threads = usable_cores();
  threads = static_cast<int>(std::min<std::int64_t>(threads, count));
  std::atomic<std::int64_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_mutex;
  const auto take = [&] {
    try {
      for (std::int64_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      next = count;
      const std::lock_guard lock(failure_mutex);
      if (failure == nullptr) failure = std::current_exception();
    }
  };
  {
    // Joined on every way out: a thread that could not be started must not leave them running.
    std::vector<std::jthread> others;
    try {
      for (int t = 1; t < threads; ++t) others.emplace_back(take);
    } catch (const std::system_error&) {
      // No more threads to be had: those that run do the work.
    }
    take();
  }
  if (failure != nullptr) std::rethrow_exception(failure);
}

}  // namespace attnforge
