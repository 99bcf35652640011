// turns.cuh - templates/tile/turns.cuh on the host.
#pragma once

#include "base.cuh"

namespace attnforge {

inline void await_turn(const int* counter, int turn) {
  test::wait_until([&] { return *counter == turn; });
}
inline void await_count(const int* counter, int count) { await_turn(counter, count); }
inline void pass_turn(int* counter) { ++*counter; }

}  // namespace attnforge
