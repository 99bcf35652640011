// host_threads.h - threads of a block of device code, on the host: they take turns on the thread
// that calls, each until it waits for others. With a sanitizer they are threads of the system, so
// that a race is seen; those take most of a test's time to wake one another.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "attnforge/error.h"

#ifdef __has_feature
#define ATTNFORGE_HAS_FEATURE(name) __has_feature(name)
#else
#define ATTNFORGE_HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || \
    ATTNFORGE_HAS_FEATURE(thread_sanitizer) || ATTNFORGE_HAS_FEATURE(address_sanitizer)
#define ATTNFORGE_THREADS_OF_SYSTEM
#include <barrier>
#include <thread>
#else
#include <setjmp.h>
#include <ucontext.h>
#endif

namespace attnforge::test {

#ifdef ATTNFORGE_THREADS_OF_SYSTEM

using HostBarrier = std::barrier<>;

template <class Run>
void run_threads(unsigned count, const Run& run) {
  std::vector<std::thread> all;
  for (unsigned i = 0; i < count; ++i) all.emplace_back([&run, i] { run(i); });
  for (std::thread& thread : all) thread.join();
}

#else

class HostBarrier;

/// A thread of the device: where it is, and what it waits for.
struct HostThread {
  static constexpr std::size_t kStackBytes = 256 * 1024;  // of which pages that are touched count
  ucontext_t first;                                       // where it begins
  jmp_buf place;                                          // where it goes on, once it has begun
  const HostBarrier* barrier = nullptr;
  unsigned round = 0;  // of the barrier's, when it came
  bool begun = false, ended = false;
};

/// The threads of one call of run_threads, whose own place is `place`.
struct HostTurns {
  jmp_buf place;
  HostThread* running = nullptr;
  const void* run = nullptr;
  unsigned number = 0;                                 // of the thread that runs
  std::vector<std::unique_ptr<std::byte[]>> stacks{};  // of all calls
};
inline HostTurns host_turns;

// Not swapcontext(), which asks the system for the signal mask each time: two thirds of a test. Nor
// longjmp() of a fortified library, which takes another stack for a mistake.
#ifdef __clang__  // whose own does not keep all registers
#define ATTNFORGE_SET_PLACE(place) _setjmp(place)
[[gnu::noinline, noreturn]] inline void go_on_at(jmp_buf& place) { _longjmp(place, 1); }
#else
#define ATTNFORGE_SET_PLACE(place) __builtin_setjmp(reinterpret_cast<void**>(place))
[[gnu::noinline, noreturn]] inline void go_on_at(jmp_buf& place) {
  __builtin_longjmp(reinterpret_cast<void**>(place), 1);
}
#endif

/// Ends the turn of a thread; returns in its next one.
[[gnu::noinline]] inline void end_turn(HostThread& thread) {
  if (ATTNFORGE_SET_PLACE(thread.place) == 0) go_on_at(host_turns.place);
}

/// Returns when the thread ends its turn.
[[gnu::noinline]] inline void take_turn(HostThread& thread) {
  if (ATTNFORGE_SET_PLACE(host_turns.place) != 0) return;
  if (thread.begun) go_on_at(thread.place);
  thread.begun = true;
  setcontext(&thread.first);
}

/// As std::barrier: whoever comes waits until all are there.
class HostBarrier {
 public:
  explicit HostBarrier(unsigned threads) : threads_(threads) {}
  void arrive_and_wait() {
    if (++there_ == threads_) {
      there_ = 0;
      ++round_;
      return;
    }
    HostThread& thread = *host_turns.running;
    thread.barrier = this;
    thread.round = round_;
    end_turn(thread);
  }
  unsigned round() const { return round_; }

 private:
  unsigned threads_, there_ = 0, round_ = 0;
};

/// Has the thread begin with begin(), when it is its turn. Not inlined: a function that asks for a
/// context may return twice, and keeps nothing in registers.
[[gnu::noinline]] inline void prepare(HostThread& thread, std::byte* stack, unsigned number,
                                      void (*begin)()) {
  getcontext(&thread.first);
  thread.first.uc_stack.ss_sp = stack;
  // Or what all threads have on their stacks would share a few lines of the cache.
  thread.first.uc_stack.ss_size = HostThread::kStackBytes - number * 320 % 4096;
  thread.first.uc_link = nullptr;
  makecontext(&thread.first, begin, 0);
}

/// Calls run(i) for i below `count`, each with a stack of its own. They go on by turns, upwards and
/// downwards: who reads what another has yet to write finds it missing in one of the two. Not
/// thread-safe. Throws Error(kInternal) when all that are left wait.
template <class Run>
void run_threads(unsigned count, const Run& run) {
  std::vector<HostThread> threads(count);
  host_turns.run = &run;
  auto& stacks = host_turns.stacks;
  while (stacks.size() < count) stacks.emplace_back(new std::byte[HostThread::kStackBytes]);
  for (unsigned i = 0; i < count; ++i) {
    prepare(threads[i], stacks[i].get(), i, [] {
      HostThread& own = *host_turns.running;
      (*static_cast<const Run*>(host_turns.run))(host_turns.number);
      own.ended = true;
      end_turn(own);
    });
  }
  bool upwards = true;
  unsigned left = count;
  for (unsigned ended = 0; ended < count; upwards = !upwards) {
    bool any = false;
    for (unsigned i = 0; i < count; ++i) {
      const unsigned number = upwards ? i : count - 1 - i;
      HostThread& thread = threads[number];
      if (thread.ended || (thread.barrier != nullptr && thread.round == thread.barrier->round()))
        continue;
      any = true;
      thread.barrier = nullptr;
      host_turns.running = &thread;
      host_turns.number = number;
      take_turn(thread);
      if (thread.ended) ++ended;
    }
    if (!any) break;
    left = count - ended;
  }
  host_turns.run = nullptr;
  ATTNFORGE_ASSERT(left == 0, "threads wait for one that does not come");
}

#endif

}  // namespace attnforge::test
