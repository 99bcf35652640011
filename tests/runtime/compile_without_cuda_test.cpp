// compile_without_cuda_test.cpp - compiling leaves CUDA alone: whoever looks at kernels first and
// forks then has GPUs in the children. NVRTC itself, beside the fake driver that it would find.
#include <gtest/gtest.h>

#include "generator/arch.h"
#include "generator/source.h"
#include "runtime/compile/compiler.h"
#include "tests/support/fake_cuda.h"

namespace attnforge {
namespace {

TEST(Compiling, DoesNotInitialiseCuda) {
  const int before = test::fake_cuda().inits();
  const NvrtcFacts& nvrtc = nvrtc_facts();
  if (!nvrtc.available) GTEST_SKIP() << nvrtc.problem;
  const char* const text = "extern \"C\" __global__ void one(int* x) { *x = 1; }";
  const Source source{.name = "one", .entry = text, .text = text};
  EXPECT_FALSE(compile(source, arch_named("80")).bytes.empty());
  EXPECT_FALSE(compile_to_ptx(source, arch_named("80")).empty());
  EXPECT_EQ(test::fake_cuda().inits(), before);
}

}  // namespace
}  // namespace attnforge
