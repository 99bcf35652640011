// text_kernels.h - what generated entries are compiled with on the host: the machine, what texts
// call, and steps that are launched. For the file that write_text_runs.cpp writes, which goes on
// with the headers of the device.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "attnforge/error.h"
#include "tests/kernels/text_runs.h"

// clang-format off
#include "tests/kernels/machine.h"
// What tile/tanh.cuh says in assembly.
#define clamp_magnitude clamp_magnitude_of_ptx
#include "tile/tanh.cuh"
#undef clamp_magnitude
namespace attnforge {
inline float clamp_magnitude(float x, float bound) { return std::clamp(x, -bound, bound); }
}  // namespace attnforge
#include "ptx/convert.cuh"
#include "tile/elements.cuh"
#include "parts/user_code/code.cuh"
// clang-format on

namespace attnforge {

// And conversions of elements.
template <>
inline float to_float<kFp16>(u16 bits) {
  return of_half<kFp16>(bits);
}
template <>
inline auto UserArray<Fp16>::at(const Fp16* element) {
  return of_half<kFp16>(element->bits);
}

namespace test {
namespace texts {

// As texts know them from CUDA.
inline int min(int a, int b) { return std::min(a, b); }
inline int max(int a, int b) { return std::max(a, b); }
inline float min(float a, float b) { return std::fmin(a, b); }
inline float max(float a, float b) { return std::fmax(a, b); }

}  // namespace texts

/// A step with dynamic shared memory is the main kernel, whose blocks run together.
template <class Params>
void run_kernel(void (*kernel)(Params), const LaunchStep& step) {
  std::remove_cv_t<Params> params;
  ASSERT_EQ(sizeof(params), step.params.size()) << step.kernel;
  std::memcpy(static_cast<void*>(&params), step.params.data(), sizeof(params));
  const unsigned blocks = step.grid.x, threads = step.block.x;
  Machine all;
  if (step.smem_bytes > 0) {
    EXPECT_EQ(run_together(all, blocks, threads, static_cast<std::size_t>(step.smem_bytes),
                           [&] { kernel(params); }),
              "")
        << step.kernel;
    return;
  }
  run_together(all, blocks, threads, 0, [] {});  // for the words of its warps
  run_on_host(blocks, threads, [&] { kernel(params); });
}

}  // namespace test
}  // namespace attnforge
