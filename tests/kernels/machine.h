// machine.h - what an SM does beside computing, on the host: shared memory, mbarriers, copies of
// the tensor memory accelerator and of cp.async, named barriers, warpgroup products. For the
// functions of ptx/ here, which stand in the place of those of templates/ptx. Included as
// tests/support/host_grid.h is.
//
// What is asynchronous happens at once, or as late as the kernel lets it, and one warp may be
// slower than all others: whoever frees a buffer too soon, or reads one before he has waited, is
// caught by one of these.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "attnforge/error.h"
#include "tests/support/host_grid.h"

namespace attnforge::test {

/// A tensor {column, row, head, batch} of elements of 1 or 2 bytes as TensorMap's words hold it,
/// with packed_heads {column, head % packed_heads, row, head / packed_heads, batch}.
struct HostMap {
  const void* data;
  long long stride_row, stride_head, stride_batch;
  int columns, rows, heads, box_rows;
  int element_bytes = 2;
  int packed_heads = 1, box_heads = 1;
};

struct Mbarrier {
  int arrivals = 0, pending = 0;
  long long bytes = 0;  // announced and not yet written
  unsigned phase = 0;   // the one that is going on

  void end_if_complete() {
    if (pending != 0 || bytes != 0) return;
    ++phase;
    pending = arrivals;
  }
};

struct NamedBarrier {
  unsigned arrived = 0, round = 0;
  bool all = true, were_all = true;  // of what was said in this round, in the last one
};

/// Those of every other time: who writes again has met all lanes since they read what is written
/// over.
struct WordsOfLanes {
  using Words = std::array<std::array<unsigned, 8>, 32>;
  std::array<Words, 2> words;
  std::array<unsigned, 32> asked{};
};

/// A block's.
struct Sm {
  std::vector<std::byte> memory;
  std::map<unsigned, Mbarrier> mbarriers;
  std::array<NamedBarrier, 16> named{};
  std::deque<std::function<void()>> copies;  // on their way
  std::vector<WordsOfLanes> words_of_warps;

  const std::byte* at(unsigned address, std::size_t bytes) const {
    ATTNFORGE_ASSERT(address + bytes <= memory.size(), "outside of shared memory");
    return memory.data() + address;
  }
  template <class T>
  T load(unsigned address) const {
    T value;
    std::memcpy(&value, at(address, sizeof(T)), sizeof(T));
    return value;
  }
  template <class T>
  void store(unsigned address, T value) {
    ATTNFORGE_ASSERT(address + sizeof(T) <= memory.size(), "outside of shared memory");
    std::memcpy(memory.data() + address, &value, sizeof(T));
  }
};

/// From shared memory, which it reads before others see what it wrote.
struct BulkStore {
  std::byte* to;
  unsigned from;
  std::size_t bytes;
  bool adds;                      // fp32 numbers
  std::vector<std::byte> read{};  // once it has
};

/// What threads have issued and not waited for, in groups, of which the last is not committed yet.
using Groups = std::vector<std::deque<std::vector<std::function<void()>>>>;

struct Machine {
  bool late = false;
  unsigned slow_warp = 32;  // of a block: others go on for a while whenever its lanes meet
  std::vector<Sm> sms;
  Groups products, copies_of_threads;
  std::vector<std::vector<BulkStore>> stores;  // of threads, on their way
  std::deque<HostBarrier> warpgroups;
  unsigned threads_of_block = 0;
  long long waits = 0;  // since something last happened
  std::string failure;
};
inline Machine* machine = nullptr;

inline Sm& own_sm() { return machine->sms[block_index.x]; }
inline unsigned own_number() { return block_index.x * machine->threads_of_block + thread_index.x; }

/// Lets all others go on. Words of this thread are restored.
inline void yield() {
#ifndef ATTNFORGE_THREADS_OF_SYSTEM
  const Index thread = thread_index, block = block_index;
  HostWarp* const warp = own_warp;
  HostBarrier* const own = own_block;
  end_turn(*host_turns.running);
  thread_index = thread, block_index = block, own_warp = warp, own_block = own;
#endif
}

/// Waits until is_over(). Copies arrive meanwhile, one at a time. Throws Error(kInternal) when
/// nothing has happened for so long that nothing will.
template <class IsOver>
void wait_until(const IsOver& is_over) {
  constexpr long long kMostWaits = 3'000'000;
  while (!is_over()) {
    Sm& sm = own_sm();
    if (!sm.copies.empty()) {
      const std::function<void()> copy = std::move(sm.copies.front());
      sm.copies.pop_front();
      copy();
      machine->waits = 0;
      continue;
    }
    ATTNFORGE_ASSERT(machine->failure.empty(), "another thread failed");
    ATTNFORGE_ASSERT(++machine->waits < kMostWaits, "everybody waits");
    yield();
  }
  machine->waits = 0;
}

template <class Work>
void issue(Groups& groups, const Work& work) {
  if (!machine->late) return work();
  auto& own = groups[own_number()];
  if (own.empty()) own.emplace_back();
  own.back().push_back(work);
}
inline void commit(Groups& groups) {
  auto& own = groups[own_number()];
  if (own.empty()) own.emplace_back();
  own.emplace_back();
}
/// Until at most `pending` committed ones are left.
inline void await_groups(Groups& groups, std::size_t pending) {
  auto& own = groups[own_number()];
  while (own.size() > pending + 1) {
    for (const auto& work : own.front()) work();
    own.pop_front();
  }
}

inline void copy_to_smem(std::function<void()> copy) {
  if (machine->late)
    own_sm().copies.push_back(std::move(copy));
  else
    copy();
}

/// Lets all others go on for a while if this warp is the slow one.
inline void dawdle() {
  constexpr int kOthersGoOn = 6;
  for (int i = 0; thread_index.x / 32 == machine->slow_warp && i < kOthersGoOn; ++i) yield();
}

/// What all lanes of this warp have, word by word, until this lane asks again.
template <std::size_t kWords>
const WordsOfLanes::Words& words_of_lanes(const std::array<unsigned, kWords>& words) {
  dawdle();
  const unsigned lane = thread_index.x % 32;
  WordsOfLanes& all = own_sm().words_of_warps[thread_index.x / 32];
  WordsOfLanes::Words& own = all.words[all.asked[lane]++ % 2];
  for (std::size_t i = 0; i < kWords; ++i) own[lane][i] = words[i];
  wait_at(own_warp->barrier);
  return own;
}

/// Bytes of a 128-byte swizzle: bits 4 to 6 of an address change with bits 7 to 9.
inline unsigned swizzled(unsigned address) { return address ^ (address >> 3 & 0x70); }

/// How a machine may go on.
struct Pace {
  const char* name;
  bool late;
  unsigned slow_warp;
};
inline constexpr Pace kPaces[] = {
    {"at once, the third warp slow", false, 2},
    {"late, the sixth warp slow", true, 5},
};

/// Runs kernel() on `blocks` blocks at a time, which may wait for one another. Returns what went
/// wrong, or "".
template <class Kernel>
std::string run_together(Machine& all, unsigned blocks, unsigned threads, std::size_t smem_bytes,
                         const Kernel& kernel) {
  machine = &all;
  all.threads_of_block = threads;
  all.sms.assign(blocks, Sm{});
  for (Sm& sm : all.sms) {
    sm.memory.assign(smem_bytes, std::byte{0xff});  // NaN of any format
    sm.words_of_warps.resize(threads / 32);
  }
  all.products.assign(std::size_t{blocks} * threads, {});
  all.copies_of_threads.assign(std::size_t{blocks} * threads, {});
  all.stores.assign(std::size_t{blocks} * threads, {});
  all.warpgroups.clear();
  for (unsigned i = 0; i < blocks * threads / 128; ++i) all.warpgroups.emplace_back(128);
  std::deque<HostWarp> warps(std::size_t{blocks} * threads / 32);
  std::deque<HostBarrier> of_blocks;
  for (unsigned i = 0; i < blocks; ++i) of_blocks.emplace_back(threads);
  try {
    run_threads(blocks * threads, [&](unsigned number) {
      thread_index.x = number % threads;
      block_index.x = number / threads;
      grid_size.x = blocks;
      own_warp = &warps[number / 32];
      own_block = &of_blocks[block_index.x];
      try {
        kernel();
      } catch (const Error& error) {
        if (all.failure.empty()) all.failure = error.what();
      }
    });
  } catch (const Error& error) {  // those that wait for one that failed
    if (all.failure.empty()) all.failure = error.what();
  }
  return all.failure;
}

}  // namespace attnforge::test

#ifndef __clang__
#define __builtin_assume(condition) static_cast<void>(condition)
#endif
inline void __syncwarp() {
  attnforge::test::dawdle();
  attnforge::test::wait_at(attnforge::test::own_warp->barrier);
}
#undef __shared__
#define __shared__
