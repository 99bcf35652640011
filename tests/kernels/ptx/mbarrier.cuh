// mbarrier.cuh - templates/ptx/mbarrier.cuh on the host.
#pragma once

#include "base.cuh"

namespace attnforge {

inline test::Mbarrier& mbarrier_at(u32 barrier) { return test::own_sm().mbarriers[barrier]; }

inline void mbarrier_init(u32 barrier, int arrivals) {
  mbarrier_at(barrier) = {.arrivals = arrivals, .pending = arrivals};
}
inline void mbarrier_init_fence() {}
inline void mbarrier_arrive_expect(u32 barrier, int bytes) {
  test::Mbarrier& own = mbarrier_at(barrier);
  ATTNFORGE_ASSERT(own.pending > 0, "more arrivals than the barrier counts");
  own.bytes += bytes;
  --own.pending;
  own.end_if_complete();
}
inline void mbarrier_arrive(u32 barrier) { mbarrier_arrive_expect(barrier, 0); }
inline bool mbarrier_test(u32 barrier, u32 parity) {
  return (mbarrier_at(barrier).phase + 1) % 2 == parity;
}
inline void mbarrier_wait(u32 barrier, u32 parity) {
  test::wait_until([&] { return mbarrier_test(barrier, parity); });
}

}  // namespace attnforge
