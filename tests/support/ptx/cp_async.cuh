// cp_async.cuh - templates/ptx/cp_async.cuh with host_grid.h: a thread's copies come when it waits
// for them, and not before. Until then nothing else may be copied there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "base.cuh"

namespace attnforge {
namespace test {

struct HostCopy {
  void* to;
  const void* from;  // nullptr: zeros
  std::size_t bytes;
};
/// Of a thread: committed groups, and the copies after them.
struct HostCopies {
  std::deque<std::vector<HostCopy>> groups;
  std::vector<HostCopy> open;
};
inline std::vector<HostCopies>& copies_of_threads() {
  static std::vector<HostCopies> of_threads(1024);
  return of_threads;
}
inline HostCopies& own_copies() { return copies_of_threads()[thread_index.x]; }
/// Of all threads, that nobody waited for.
inline std::size_t copies_left() {
  std::size_t left = 0;
  for (const HostCopies& copies : copies_of_threads()) {
    left += copies.open.size();
    for (const std::vector<HostCopy>& group : copies.groups) left += group.size();
  }
  return left;
}
inline void add_copy(HostCopies& copies, const HostCopy& copy) {
  const auto expect_no_other = [&](const std::vector<HostCopy>& group) {
    for (const HostCopy& each : group) {
      if (each.to != copy.to) continue;
      std::fputs("a copy goes where one is under way\n", stderr);
      std::abort();
    }
  };
  expect_no_other(copies.open);
  for (const std::vector<HostCopy>& group : copies.groups) expect_no_other(group);
  copies.open.push_back(copy);
}
/// What smem_address() was asked about: of its address it says the low half, and all that is shared
/// is static.
inline void* at_smem_address(u32 address) {
  static char near;
  const auto low = static_cast<u32>(reinterpret_cast<std::uintptr_t>(&near));
  return &near + static_cast<std::int32_t>(address - low);
}

}  // namespace test

template <int kBytes>
void cp_async_or_zero(u32 smem_dst, const void* gmem_src, bool in_bounds) {
  test::add_copy(test::own_copies(),
                 {test::at_smem_address(smem_dst), in_bounds ? gmem_src : nullptr, kBytes});
}
template <int kBytes, bool kWholeLine = false>
void cp_async(u32 smem_dst, const void* gmem_src) {
  cp_async_or_zero<kBytes>(smem_dst, gmem_src, true);
}
inline void cp_async_commit() {
  test::HostCopies& copies = test::own_copies();
  copies.groups.push_back(std::move(copies.open));
  copies.open.clear();
}
template <int kPending>
void cp_async_wait() {
  test::HostCopies& copies = test::own_copies();
  for (; copies.groups.size() > kPending; copies.groups.pop_front())
    for (const test::HostCopy& each : copies.groups.front()) {
      if (each.from != nullptr)
        std::memcpy(each.to, each.from, each.bytes);
      else
        std::memset(each.to, 0, each.bytes);
    }
}

}  // namespace attnforge
