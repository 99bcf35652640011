#include "tuner/compile_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "reference/usable_cores.h"

namespace attnforge {

/// What the workers of one run share. Workers that outlive the run keep it alive.
struct CompilePool::Shared {
  Job job;
  std::size_t count = 0;
  std::atomic<std::size_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::condition_variable arrived;
  std::deque<std::pair<std::size_t, Compiled>> done;  // guarded by mutex

  void work() {
    while (!stop) {
      const std::size_t index = next++;
      if (index >= count) return;
      Compiled compiled = job(index, stop);
      const std::lock_guard lock(mutex);
      done.emplace_back(index, std::move(compiled));
      arrived.notify_one();
    }
  }
};

CompilePool::CompilePool(int threads) : threads_(threads > 0 ? threads : usable_cores()) {}

void CompilePool::run(std::size_t count, Job job, const std::function<bool()>& keep_going,
                      const std::function<void(std::size_t, Compiled&&)>& on_done) {
  // Workers of earlier runs have at most the job left that they were in. They are waited for at the
  // end: this run may have a deadline.
  const auto shared = std::make_shared<Shared>();
  shared->job = std::move(job);
  shared->count = count;
  struct Stopper {
    Shared& shared;
    ~Stopper() { shared.stop = true; }
  };
  const Stopper stopper{*shared};
  for (std::size_t i = 0; i < std::min(count, static_cast<std::size_t>(threads_)); ++i) {
    workers_.emplace_back([shared] { shared->work(); });
  }
  for (std::size_t taken = 0; taken < count;) {
    if (!keep_going()) return;
    std::unique_lock lock(shared->mutex);
    if (!shared->arrived.wait_for(lock, std::chrono::milliseconds(50),
                                  [&] { return !shared->done.empty(); }))
      continue;
    auto [index, compiled] = std::move(shared->done.front());
    shared->done.pop_front();
    lock.unlock();
    ++taken;
    on_done(index, std::move(compiled));
  }
}

}  // namespace attnforge
