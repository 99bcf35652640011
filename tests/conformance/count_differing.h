// count_differing.h - how many words of two arrays in device memory differ, counted by the GPU, so
// that thousands of runs can be compared.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "runtime/compile/compiler.h"
#include "tests/conformance/gpu.h"

namespace attnforge::test {

/// Counts on and on, of any arrays.
class DifferenceCounter {
 public:
  DifferenceCounter() {
    const std::array<unsigned, 1> zero = {0};
    differing_ = Buffer::of(std::span<const unsigned>(zero));
  }

  /// Enqueues it.
  void count(const void* a, const void* b, std::int64_t bytes, CUstream stream) const {
    const Params params = {a, b, static_cast<unsigned long long>(bytes / 4), differing_.data()};
    std::array<std::byte, sizeof(params)> argument;
    std::memcpy(argument.data(), &params, sizeof(params));
    LaunchStep step;
    step.kernel = kName;
    step.grid.x = 132;
    step.block.x = 512;
    kernel_.launch(step, argument, stream);
  }

  /// After the stream has passed.
  unsigned words() const { return differing_.to_host<unsigned>()[0]; }

 private:
  struct Params {
    const void *a, *b;
    unsigned long long words;
    void* differing;
  };
  static constexpr const char* kName = "count_differing";
  static constexpr const char* kText = R"(
struct Params { const unsigned *a, *b; unsigned long long words; unsigned* differing; };
extern "C" __global__ void count_differing(const __grid_constant__ Params p) {
  const unsigned long long first = blockIdx.x * blockDim.x + threadIdx.x;
  for (unsigned long long i = first; i < p.words; i += gridDim.x * blockDim.x)
    if (p.a[i] != p.b[i]) atomicAdd(p.differing, 1u);
}
)";

  static Kernel load() {
    Source source;
    source.name = kName;
    source.text = kText;
    return Kernel::load(compile(source, gpu_facts().arch).bytes, source.name, 0);
  }

  Kernel kernel_ = load();
  Buffer differing_;
};

}  // namespace attnforge::test
