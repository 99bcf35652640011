// warpgroup.cuh - templates/ptx/warpgroup.cuh on the host.
#pragma once

#include "base.cuh"

namespace attnforge {

template <int kRegisters>
void registers_grow() {}
template <int kRegisters>
void registers_shrink() {}

inline void named_barrier_arrive(int id, int threads) {
  test::NamedBarrier& own = test::own_sm().named[static_cast<u32>(id)];
  if (++own.arrived != static_cast<u32>(threads)) return;
  own.arrived = 0;
  ++own.round;
}
inline void named_barrier_wait(int id, int threads) {
  const test::NamedBarrier& own = test::own_sm().named[static_cast<u32>(id)];
  const u32 round = own.round;
  named_barrier_arrive(id, threads);
  test::wait_until([&] { return own.round != round; });
}

}  // namespace attnforge
