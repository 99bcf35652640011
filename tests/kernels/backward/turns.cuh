// turns.cuh - templates/backward/turns.cuh on the host.
#pragma once

#include <functional>

#include "base.cuh"

namespace attnforge {

namespace test {
inline std::function<void(const int*)> turn_passed;  // called with a counter that went up
}

inline void await_turn(const int* counter, int turn) {
  test::wait_until([&] { return *counter == turn; });
}
inline void await_count(const int* counter, int count) { await_turn(counter, count); }
inline void pass_turn(int* counter) {
  ++*counter;
  if (test::turn_passed) test::turn_passed(counter);
}

}  // namespace attnforge
