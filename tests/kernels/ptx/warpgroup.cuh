// warpgroup.cuh - templates/ptx/warpgroup.cuh on the host.
#pragma once

#include <utility>

#include "base.cuh"

namespace attnforge {

template <int kRegisters>
void registers_grow() {}
template <int kRegisters>
void registers_shrink() {}

inline void named_barrier_arrive(int id, int threads, bool what = true) {
  test::NamedBarrier& own = test::own_sm().named[static_cast<u32>(id)];
  own.all &= what;
  if (++own.arrived != static_cast<u32>(threads)) return;
  own.were_all = std::exchange(own.all, true);
  own.arrived = 0;
  ++own.round;
}
inline bool named_barrier_all(int id, int threads, bool what) {
  const test::NamedBarrier& own = test::own_sm().named[static_cast<u32>(id)];
  const u32 round = own.round;
  named_barrier_arrive(id, threads, what);
  test::wait_until([&] { return own.round != round; });
  return own.were_all;
}
inline void named_barrier_wait(int id, int threads) { named_barrier_all(id, threads, true); }

}  // namespace attnforge
