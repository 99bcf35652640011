// compiler_test.cpp - NVRTC at work: every arch it knows, its errors, threads. Needs NVRTC, no GPU.
#include "runtime/compile/compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "attnforge/error.h"
#include "generator/arch.h"

namespace attnforge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Source source_of(std::string name, std::string text, std::vector<std::string> options = {}) {
  return {.name = std::move(name), .entry = text, .text = text, .options = std::move(options)};
}

/// Fills `out` with scaled indices through dynamic and static shared memory. `factor` makes sources
/// differ.
Source tiny(int factor) {
  return source_of("tiny" + std::to_string(factor), R"(
struct Params { float* out; int n; };
template <int kFactor> struct Scale { static constexpr int value = kFactor; };
template <class T> __device__ T scaled(T x) { return x * Scale<)" +
                                                        std::to_string(factor) + R"(>::value; }
extern "C" __global__ void tiny(const __grid_constant__ Params p) {
  extern __shared__ float dynamic[];
  __shared__ float fixed[64];
  dynamic[threadIdx.x] = float(threadIdx.x);
  fixed[threadIdx.x % 64] = 0.5f;
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < p.n) p.out[i] = scaled(dynamic[threadIdx.x ^ 1]) + fixed[(threadIdx.x + 1) % 64];
}
)");
}

const Arch& some_arch() { return arch_named("80"); }

bool knows(const Arch& arch) {
  const std::vector<int>& archs = nvrtc_facts().archs;
  return std::find(archs.begin(), archs.end(), arch.sm) != archs.end();
}

std::string error_of(const Source& source, const Arch& arch, ErrorCode expected) {
  try {
    compile(source, arch);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), expected) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "compiled";
  return "";
}

TEST(NvrtcFacts, AreComplete) {
  const NvrtcFacts& facts = nvrtc_facts();
  ASSERT_TRUE(facts.available) << facts.problem;
  EXPECT_EQ(facts.problem, "");
  EXPECT_GE(100 * facts.major + facts.minor, 1204);
  EXPECT_THAT(facts.path, HasSubstr("libnvrtc"));
  EXPECT_THAT(facts.build, ::testing::StartsWith("cl-"));
  EXPECT_EQ(facts.version_text(),
            std::to_string(facts.major) + "." + std::to_string(facts.minor) + " " + facts.build);
  EXPECT_TRUE(knows(arch_named("90a")));
}

TEST(Compile, EveryArchThatNvrtcKnows) {
  int compiled = 0;
  for (const Arch& arch : archs()) {
    if (!knows(arch)) {
      EXPECT_THAT(error_of(tiny(3), arch, ErrorCode::kNoDriver),
                  AllOf(HasSubstr("does not know sm_" + std::string(arch.name)),
                        HasSubstr("ATTNFORGE_NVRTC")));
      continue;
    }
    const Cubin cubin = compile(tiny(3), arch);
    ++compiled;
    ASSERT_GT(cubin.bytes.size(), 1000u);
    EXPECT_EQ(std::memcmp(cubin.bytes.data(),
                          "\x7f"
                          "ELF",
                          4),
              0);
    EXPECT_EQ(cubin.arch, arch.name);
    EXPECT_EQ(cubin.source_digest, digest(tiny(3)));
    EXPECT_EQ(cubin.nvrtc, nvrtc_facts().version_text());
    EXPECT_GT(cubin.registers, 4);
    EXPECT_LE(cubin.registers, 255);
    EXPECT_GE(cubin.smem_static_bytes, 256);
    EXPECT_LT(cubin.smem_static_bytes, 8192);
    EXPECT_EQ(cubin.spill_store_bytes, 0);
    EXPECT_EQ(cubin.spill_load_bytes, 0);
    EXPECT_FALSE(cubin.wgmma_serialized);
    EXPECT_GT(cubin.compile_ms, 0);
    EXPECT_EQ(cubin.log, "") << arch.name;
  }
  EXPECT_GE(compiled, 4);
}

TEST(Compile, SpillsAreFacts) {
  const Cubin cubin = compile(source_of("spill", R"(
extern "C" __global__ void spill(float* out, int n) {
  float a[64];
  for (int i = 0; i < 64; i++) a[i] = out[i * n + threadIdx.x];
  for (int j = 0; j < n; j++)
    for (int i = 0; i < 64; i++) a[i] = a[i] * a[(i + 7) % 64] + a[(i + 13) % 64];
  for (int i = 0; i < 64; i++) out[i * n + threadIdx.x] = a[i];
}
)",
                                        {"-maxrregcount=32"}),
                              some_arch());
  EXPECT_LE(cubin.registers, 32);
  EXPECT_GT(cubin.spill_store_bytes, 0);
  EXPECT_GT(cubin.spill_load_bytes, 0);
  EXPECT_GT(cubin.stack_bytes, 0);
}

TEST(Compile, SerializedWgmmaIsAFact) {
  // The accumulator is touched while its product is in flight.
  const Cubin cubin = compile(source_of("serialized", R"(
extern "C" __global__ void __launch_bounds__(128) serialized(float* out, unsigned long long a, unsigned long long b, int n) {
  float c0 = out[0], c1 = out[1], c2 = out[2], c3 = out[3];
  for (int i = 0; i < n; i++) {
    asm volatile("wgmma.fence.sync.aligned;");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3) : "l"(a), "l"(b));
    c0 += 1.0f;
    asm volatile("wgmma.commit_group.sync.aligned;");
    asm volatile("wgmma.wait_group.sync.aligned 0;");
  }
  out[threadIdx.x] = c0 + c1 + c2 + c3;
}
)"),
                              arch_named("90a"));
  EXPECT_TRUE(cubin.wgmma_serialized);
  EXPECT_THAT(cubin.log, HasSubstr("serialized"));
}

TEST(Compile, ErrorNamesTheLineAndTheKernel) {
  const std::string text = error_of(source_of("broken",
                                              "extern \"C\" __global__ void broken(int* out) {\n"
                                              "  int unused = 1;\n"
                                              "  out[0] = not_declared;\n"
                                              "}\n"),
                                    some_arch(), ErrorCode::kCompile);
  EXPECT_THAT(text, AllOf(HasSubstr("refused broken"), HasSubstr("broken.cu(3): error"),
                          HasSubstr("not_declared"), HasSubstr(nvrtc_facts().version_text()),
                          Not(HasSubstr("warning"))));
}

TEST(Compile, AssemblerErrorsAndBadOptionsAreCompileErrors) {
  EXPECT_THAT(
      error_of(
          source_of(
              "ptx",
              "extern \"C\" __global__ void ptx(int* out) { asm volatile(\"bogus.s32 a;\"); }\n"),
          some_arch(), ErrorCode::kCompile),
      HasSubstr("bogus"));
  EXPECT_THAT(error_of(source_of("option", "extern \"C\" __global__ void option() {}\n",
                                 {"--no-such-option"}),
                       some_arch(), ErrorCode::kCompile),
              HasSubstr("--no-such-option"));
}

TEST(Compile, SourceWithoutKernelIsAnError) {
  EXPECT_THAT(error_of(source_of("nothing", "__device__ int f() { return 1; }\n"), some_arch(),
                       ErrorCode::kCompile),
              HasSubstr("__global__"));
}

TEST(Compile, TooMuchStaticSharedMemoryIsAnError) {
  EXPECT_THAT(
      error_of(source_of("large",
                         "extern \"C\" __global__ void large(int* out) { __shared__ int s[20000];\n"
                         "s[threadIdx.x] = 1; __syncthreads(); out[0] = s[out[1]]; }\n"),
               some_arch(), ErrorCode::kCompile),
      HasSubstr("shared"));
}

TEST(Compile, ThreadsGiveTheBytesOfASerialCompile) {
  constexpr int kSources = 4;
  std::vector<Cubin> serial, parallel(kSources);
  for (int i = 0; i < kSources; ++i) serial.push_back(compile(tiny(i + 1), some_arch()));
  std::vector<std::thread> threads;
  for (int i = 0; i < kSources; ++i)
    threads.emplace_back([&, i] { parallel[i] = compile(tiny(i + 1), some_arch()); });
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kSources; ++i) EXPECT_EQ(serial[i].bytes, parallel[i].bytes) << i;
  EXPECT_NE(serial[0].bytes, serial[1].bytes);
}

// NVRTC keeps compiles on disk and gives no remarks with those: the second compile had no
// registers.
TEST(Compile, WhatIsUnwantedIsGivenUpAndLaterCompilesAreUnharmed) {
  const std::vector<std::byte> before = compile(tiny(7), some_arch()).bytes;
  const std::atomic<bool> unwanted = true;
  try {
    // An NVRTC that cannot give up compiles to the end.
    EXPECT_EQ(compile(tiny(7), some_arch(), {.unwanted = &unwanted}).bytes, before);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCompile) << error.what();
  }
  const std::atomic<bool> wanted = false;
  EXPECT_EQ(compile(tiny(7), some_arch(), {.unwanted = &wanted}).bytes, before);
}

TEST(Compile, TheSameSourceAgainStillTellsRegisters) {
  const Cubin first = compile(tiny(1), some_arch()), second = compile(tiny(1), some_arch());
  EXPECT_GT(second.registers, 0);
  EXPECT_EQ(first.registers, second.registers);
}

TEST(Compile, LineInfoIsAdded) {
  const Cubin plain = compile(tiny(1), some_arch());
  const Cubin lines = compile(tiny(1), some_arch(), {.line_info = true});
  EXPECT_GT(lines.bytes.size(), plain.bytes.size());
}

TEST(CompileToPtx, IsTextForTheArch) {
  const std::string ptx = compile_to_ptx(tiny(2), arch_named("90a"));
  EXPECT_THAT(ptx, AllOf(HasSubstr(".target sm_90a"), HasSubstr(".entry tiny(")));
  EXPECT_THROW(compile_to_ptx(source_of("broken", "oops"), some_arch()), Error);
  EXPECT_THAT(ptx, Not(HasSubstr(".loc\t")));
  EXPECT_THAT(compile_to_ptx(tiny(2), arch_named("90a"), {.line_info = true}), HasSubstr(".loc\t"));
}

TEST(Compile, UnknownArchNamesTheKnownOnes) {
  Arch unknown = some_arch();
  unknown.sm = 71;
  unknown.name = "71";
  EXPECT_THAT(error_of(tiny(1), unknown, ErrorCode::kNoDriver),
              AllOf(HasSubstr("does not know sm_71"), HasSubstr("80, 86")));
  Arch nameless;  // as device_facts() gives for a GPU that attnforge has no kernels for
  nameless.sm = 71;
  EXPECT_THAT(error_of(tiny(1), nameless, ErrorCode::kNoDriver), HasSubstr("sm_71"));
}

}  // namespace
}  // namespace attnforge
