// kernel_gpu_test.cpp - load and launch on a GPU: attributes, shared memory, clusters, captures,
// errors.
#include "runtime/kernel.h"

#include <gmock/gmock.h>

#include <thread>

#include "attnforge/error.h"
#include "gpu_fixture.h"
#include "runtime/compile/compiler.h"
#include "runtime/memory.h"
#include "tests/support/captured_graph.h"

namespace attnforge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kThreads = 128;

/// The kernel's one argument.
struct Params {
  float* out;
  float add;
  int n;
};

/// out[i] = i + add, by way of the last `threads` floats of dynamic shared memory.
Source fill_source() {
  const std::string text = R"(
struct Params { float* out; float add; int n; };
extern "C" __global__ void __launch_bounds__(128) fill(const __grid_constant__ Params p) {
  extern __shared__ float dynamic[];
  unsigned smem_bytes;
  asm volatile("mov.u32 %0, %%dynamic_smem_size;" : "=r"(smem_bytes));
  float* slots = dynamic + (smem_bytes / 4 - blockDim.x);
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  slots[threadIdx.x ^ 1] = float(i ^ 1);
  __syncthreads();
  if (i < p.n) p.out[i] = slots[threadIdx.x] + p.add;
}
)";
  return {.name = "fill", .entry = text, .text = text, .options = {}};
}

Source one_liner(const std::string& name, const std::string& text) {
  return {.name = name, .entry = text, .text = text, .options = {}};
}

LaunchStep fill_step(int n, int smem_bytes) {
  LaunchStep step;
  step.kernel = "fill";
  step.grid.x = static_cast<unsigned>((n + kThreads - 1) / kThreads);
  step.block.x = kThreads;
  step.smem_bytes = smem_bytes;
  return step;
}

std::span<const std::byte> bytes_of(const Params& params) {
  return std::as_bytes(std::span(&params, 1));
}

class KernelGpu : public GpuTest {
 protected:
  Kernel load_fill(int smem_bytes) {
    return Kernel::load(compile(fill_source(), facts_.arch).bytes, "fill", smem_bytes);
  }

  void expect_filled(const Buffer& out, int n, float add) {
    const std::vector<float> values = out.to_host<float>();
    ASSERT_GE(values.size(), static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) ASSERT_EQ(values[i], i + add) << "element " << i;
  }
};

TEST_F(KernelGpu, FillsWithLittleAndWithAllSharedMemory) {
  constexpr int kN = 1000;
  for (int smem_bytes : {kThreads * 4, facts_.arch.smem_per_block_bytes}) {
    const Kernel kernel = load_fill(smem_bytes);
    Buffer out(kN * sizeof(float));
    out.fill8(0xff);
    const Stream stream;
    check(driver().cuCtxSynchronize(), "wait for the fill");
    const Params params{static_cast<float*>(out.data()), 0.25f, kN};
    kernel.launch(fill_step(kN, smem_bytes), bytes_of(params), stream.get());
    stream.synchronize();
    expect_filled(out, kN, 0.25f);
  }
}

TEST_F(KernelGpu, AttributesAgreeWithTheCompiler) {
  const Cubin cubin = compile(fill_source(), facts_.arch);
  const Kernel kernel = Kernel::load(cubin.bytes, "fill", 1024);
  const Kernel::Attributes attributes = kernel.attributes();
  EXPECT_EQ(attributes.registers, cubin.registers);
  EXPECT_EQ(attributes.local_bytes, cubin.stack_bytes);
  EXPECT_GE(attributes.max_threads, kThreads);
}

TEST_F(KernelGpu, PtxIsLoadedIfTheDriverIsNewEnough) {
  const std::string ptx = compile_to_ptx(fill_source(), facts_.arch);
  const auto image = std::as_bytes(std::span(ptx.c_str(), ptx.size() + 1));
  if (driver_version() < 1000 * nvrtc_facts().major + 10 * nvrtc_facts().minor) {
    EXPECT_THROW(Kernel::load(image, "fill", kThreads * 4), Error);
    return;
  }
  const Kernel kernel = Kernel::load(image, "fill", kThreads * 4);
  Buffer out(kThreads * sizeof(float));
  const Params params{static_cast<float*>(out.data()), 1.0f, kThreads};
  kernel.launch(fill_step(kThreads, kThreads * 4), bytes_of(params), nullptr);
  expect_filled(out, kThreads, 1.0f);
}

TEST_F(KernelGpu, MovedKernelStillRuns) {
  Kernel first = load_fill(kThreads * 4);
  Kernel second = std::move(first);
  Kernel third = load_fill(kThreads * 4);
  third = std::move(second);
  Buffer out(kThreads * sizeof(float));
  const Params params{static_cast<float*>(out.data()), 2.0f, kThreads};
  third.launch(fill_step(kThreads, kThreads * 4), bytes_of(params), nullptr);
  expect_filled(out, kThreads, 2.0f);
}

TEST_F(KernelGpu, LaunchIsCapturedAndReplayed) {
  constexpr int kN = 512;
  const Kernel kernel = load_fill(kThreads * 4);
  Buffer out(kN * sizeof(float));
  const Stream stream;
  Params params{static_cast<float*>(out.data()), 3.0f, kN};
  const Graph graph(stream, [&](CUstream on) {
    kernel.launch(fill_step(kN, kThreads * 4), bytes_of(params), on);
  });
  params.add = -1.0f;  // the arguments were copied at capture
  for (int run = 0; run < 2; ++run) {
    out.fill8(0xff);
    check(driver().cuCtxSynchronize(), "wait for the fill");
    graph.launch(stream.get());
    stream.synchronize();
    expect_filled(out, kN, 3.0f);
  }
}

TEST_F(KernelGpu, ThreadsLaunchOneKernelOnTheirStreams) {
  constexpr int kN = 4096, kWorkers = 4;
  const Kernel kernel = load_fill(kThreads * 4);
  std::vector<Buffer> outs;
  for (int i = 0; i < kWorkers; ++i) outs.emplace_back(kN * sizeof(float));
  std::vector<std::thread> workers;
  for (int i = 0; i < kWorkers; ++i)
    workers.emplace_back([&, i] {
      const ScopedContext context(*primary_);
      const Stream stream;
      const Params params{static_cast<float*>(outs[i].data()), float(i), kN};
      for (int run = 0; run < 50; ++run)
        kernel.launch(fill_step(kN, kThreads * 4), bytes_of(params), stream.get());
      stream.synchronize();
    });
  for (std::thread& worker : workers) worker.join();
  for (int i = 0; i < kWorkers; ++i) expect_filled(outs[i], kN, float(i));
}

TEST_F(KernelGpu, BadLoadsSayWhatAndWhy) {
  const auto message = [](auto&& action) -> std::string {
    try {
      action();
    } catch (const Error& error) {
      return std::string(to_string(error.code())) + ": " + error.what();
    }
    return "no error";
  };
  const std::vector<std::byte> cubin = compile(fill_source(), facts_.arch).bytes;
  EXPECT_THAT(message([&] { Kernel::load(cubin, "fil", 0); }),
              AllOf(HasSubstr("cuda: "), HasSubstr("find kernel fil ")));
  EXPECT_THAT(message([&] { Kernel::load(cubin, "fill", 1 << 20); }),
              HasSubstr("give kernel fill 1048576 bytes"));
  const std::vector<std::byte> garbage(1000, std::byte{1});
  EXPECT_THAT(message([&] { Kernel::load(garbage, "fill", 0); }),
              AllOf(HasSubstr("kernel fill"), HasSubstr("CUDA_ERROR_INVALID_IMAGE")));
  if (driver().cuFuncGetParamInfo != nullptr) {
    const Source none = one_liner("none", "extern \"C\" __global__ void none() {}\n");
    EXPECT_THAT(message([&] { Kernel::load(compile(none, facts_.arch).bytes, "none", 0); }),
                HasSubstr("takes no argument"));
  }
}

TEST_F(KernelGpu, BadLaunchNamesTheGeometryAndTheContextSurvives) {
  const Kernel kernel = load_fill(kThreads * 4);
  Buffer out(kThreads * sizeof(float));
  const Params params{static_cast<float*>(out.data()), 0.0f, kThreads};
  LaunchStep step = fill_step(kThreads, kThreads * 4);
  step.block.x = 2048;
  try {
    kernel.launch(step, bytes_of(params), nullptr);
    FAIL() << "no exception";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCuda);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("launch fill"), HasSubstr("block 2048x1x1"),
                                    HasSubstr("512 bytes")));
  }
  if (driver().cuFuncGetParamInfo != nullptr) {
    EXPECT_THROW(
        kernel.launch(fill_step(kThreads, kThreads * 4), bytes_of(params).first(8), nullptr),
        Error);
  }
  kernel.launch(fill_step(kThreads, kThreads * 4), bytes_of(params), nullptr);
  expect_filled(out, kThreads, 0.0f);
}

}  // namespace
}  // namespace attnforge
