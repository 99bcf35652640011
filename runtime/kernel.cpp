// kernel.cpp - library loading without a context of its own, and launches with attributes on the
// stack.
#include "runtime/kernel.h"

#include <fmt/format.h>

#include <algorithm>

#include "generator/text/throw_error.h"

namespace attnforge {
namespace {

int attribute(CUfunction function, CUfunction_attribute which) {
  int value = 0;
  check(driver().cuFuncGetAttribute(&value, which, function), "read an attribute of a kernel");
  return value;
}

/// Size of the first argument of `function`; 0 if the driver cannot tell. That there is no second
/// one is not asked: the answer would be an error of the driver's, which tools report as a mistake.
std::size_t argument_bytes(CUfunction function, const std::string& symbol) {
  const auto param_info = driver().cuFuncGetParamInfo;
  if (param_info == nullptr) return 0;
  std::size_t offset = 0, size = 0;
  if (param_info(function, 0, &offset, &size) != CUDA_SUCCESS) {
    throw_error(ErrorCode::kInternal,
                "kernel {} takes no argument; kernels of attnforge take exactly one, a struct",
                symbol);
  }
  return size;
}

/// All the dynamic shared memory that the GPU has for a block of `function`.
int most_smem_bytes(CUfunction function) {
  CUdevice device = 0;
  check(driver().cuCtxGetDevice(&device), "ask for the current context's GPU");
  int block_bytes = 0;
  check(driver().cuDeviceGetAttribute(
            &block_bytes, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device),
        "read the largest shared memory of a block");
  return block_bytes - attribute(function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
}

/// The limit is the GPU's, not that of the launch at hand: other problems share the kernel, and
/// their launches may need more. It costs nothing: what a launch requests decides how many
/// blocks fit.
void allow_smem(CUfunction function, const std::string& symbol, int smem_bytes) {
  check(driver().cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                    std::max(most_smem_bytes(function), smem_bytes)),
        "give kernel {} {} bytes of dynamic shared memory", symbol, smem_bytes);
  if (smem_bytes <= 0) return;
  // The driver's own guess may be too little shared memory for the blocks that fit an SM.
  check(driver().cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                                    CU_SHAREDMEM_CARVEOUT_MAX_SHARED),
        "prefer shared memory over L1 for kernel {}", symbol);
}

[[noreturn]] void throw_launch_error(CUresult result, const LaunchStep& step, const Dim3& grid,
                                     std::size_t params_bytes) {
  throw_cuda_error(result,
                   fmt::format("launch {} with grid {}x{}x{}, block {}x{}x{}, {} bytes of dynamic "
                               "shared memory, {} bytes of arguments",
                               step.kernel, grid.x, grid.y, grid.z, step.block.x, step.block.y,
                               step.block.z, step.smem_bytes, params_bytes));
}

}  // namespace

Kernel Kernel::load(std::span<const std::byte> image, const std::string& symbol, int smem_bytes) {
  ATTNFORGE_ASSERT(!image.empty(), "there is no code to load");
  require_kernels_to_end();
  const Driver& cuda = driver();
  Kernel kernel;
  CUlibrary library = nullptr;
  check(cuda.cuLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
        "load the {} bytes of code of kernel {}", image.size(), symbol);
  kernel.library_.reset(library);
  CUkernel entry = nullptr;
  check(cuda.cuLibraryGetKernel(&entry, library, symbol.c_str()), "find kernel {} in its code",
        symbol);
  check(cuda.cuKernelGetFunction(&kernel.function_, entry), "load kernel {} in the current context",
        symbol);
  // With lazy loading the code would be copied to the GPU at the first launch, which may be inside
  // a capture. Older drivers load at the first look at an attribute.
  if (cuda.cuFuncLoad != nullptr)
    check(cuda.cuFuncLoad(kernel.function_), "load the code of kernel {} on the GPU", symbol);
  attribute(kernel.function_, CU_FUNC_ATTRIBUTE_NUM_REGS);
  kernel.params_bytes_ = argument_bytes(kernel.function_, symbol);
  allow_smem(kernel.function_, symbol, smem_bytes);
  return kernel;
}

Kernel::Attributes Kernel::attributes() const {
  return {.registers = attribute(function_, CU_FUNC_ATTRIBUTE_NUM_REGS),
          .local_bytes = attribute(function_, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES),
          .smem_static_bytes = attribute(function_, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES),
          .max_threads = attribute(function_, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)};
}

void Kernel::launch(const LaunchStep& step, const Dim3& grid, std::span<const std::byte> params,
                    CUstream stream) const {
  ATTNFORGE_ASSERT(params_bytes_ == 0 || params.size() == params_bytes_,
                   "params must be of the size of the kernel's argument");
  CUlaunchAttribute overlap;
  overlap.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  overlap.value.programmaticStreamSerializationAllowed = 1;
  const CUlaunchConfig config{.gridDimX = grid.x,
                              .gridDimY = grid.y,
                              .gridDimZ = grid.z,
                              .blockDimX = step.block.x,
                              .blockDimY = step.block.y,
                              .blockDimZ = step.block.z,
                              .sharedMemBytes = static_cast<unsigned>(step.smem_bytes),
                              .hStream = stream,
                              .attrs = &overlap,
                              .numAttrs = step.overlaps_previous ? 1u : 0u};
  void* arguments[] = {const_cast<std::byte*>(params.data())};
  const CUresult result = driver().cuLaunchKernelEx(&config, function_, arguments, nullptr);
  if (result != CUDA_SUCCESS) [[unlikely]]
    throw_launch_error(result, step, grid, params.size());
}

}  // namespace attnforge
