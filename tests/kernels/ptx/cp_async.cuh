// cp_async.cuh - templates/ptx/cp_async.cuh on the host: copies come when they are asked for, or
// when they are waited for.
#pragma once

#include <cstring>
#include <utility>

#include "base.cuh"
#include "ptx/mbarrier.cuh"

namespace attnforge {

template <int kBytes>
void cp_async_or_zero(u32 smem_dst, const void* gmem_src, bool in_bounds) {
  test::issue(test::machine->copies_of_threads, [=, &sm = test::own_sm()] {
    if (in_bounds)
      std::memcpy(sm.memory.data() + smem_dst, gmem_src, kBytes);
    else
      std::memset(sm.memory.data() + smem_dst, 0, kBytes);
  });
}
template <int kBytes, bool kWholeLine = false>
void cp_async(u32 smem_dst, const void* gmem_src) {
  cp_async_or_zero<kBytes>(smem_dst, gmem_src, true);
}
inline void cp_async_arrive(u32 barrier) {
  auto& own = test::machine->copies_of_threads[test::own_number()];
  test::copy_to_smem([groups = std::exchange(own, {}), barrier] {
    for (const auto& group : groups)
      for (const auto& copy : group) copy();
    mbarrier_arrive(barrier);
  });
}
inline void cp_async_commit() { test::commit(test::machine->copies_of_threads); }
template <int kPending>
void cp_async_wait() {
  test::await_groups(test::machine->copies_of_threads, kPending);
}

}  // namespace attnforge
