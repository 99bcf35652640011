#include "runtime/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>

#include "generator/text/throw_error.h"

namespace attnforge {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";
constexpr const char* kTooOld =
    "attnforge needs the driver of CUDA 12.4 or later (550.54 or newer): update the NVIDIA driver";

/// Resolves one function at the ABI of `version`. False if the driver does not have it.
template <class Function>
bool resolve(PFN_cuGetProcAddress_v12000 get_address, const char* name, int version,
             Function& function) {
  void* address = nullptr;
  CUdriverProcAddressQueryResult status{};
  const CUresult result = get_address(name, &address, version, CU_GET_PROC_ADDRESS_DEFAULT,
                                      &status);
  if (result != CUDA_SUCCESS || status != CU_GET_PROC_ADDRESS_SUCCESS) return false;
  function = reinterpret_cast<Function>(address);
  return function != nullptr;
}

// A switch over the driver's errors, which it adds to, has not all of them: it is over a number.

/// What to do about an error of the driver; "" where its own text says it.
std::string_view advice(CUresult result) {
  switch (int{result}) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return "; free device memory or use a smaller problem";
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
      return "; the code was compiled for another GPU or by a newer NVRTC than the driver knows: "
             "update the driver or point "
             "ATTNFORGE_NVRTC at an older NVRTC";
    case CUDA_ERROR_INVALID_CONTEXT:
      return "; no CUDA context of this GPU is current on the calling thread";
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
      return "; the call is not allowed while a stream is being captured: make plans and allocate "
             "before the capture";
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
      return "; the default stream waits for a stream that is being captured: run on another one "
             "meanwhile";
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
      return "; an earlier kernel faulted and the CUDA context is lost: the process must be "
             "restarted (compute-sanitizer "
             "names the kernel and the line)";
    default:
      return "";
  }
}

/// Why cuInit failed and what to do.
std::string initialisation_problem(const Driver& driver, CUresult result) {
  switch (int{result}) {
    case CUDA_ERROR_NO_DEVICE:
      return "the NVIDIA driver is installed but sees no GPU (CUDA_ERROR_NO_DEVICE): check "
             "nvidia-smi, CUDA_VISIBLE_DEVICES "
             "and, in a container, that GPUs are passed in";
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
      return "libcuda.so.1 and the kernel module are of different versions "
             "(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH): reboot, or "
             "reinstall the NVIDIA driver";
    case CUDA_ERROR_STUB_LIBRARY:
      return "libcuda.so.1 is the toolkit's stub (CUDA_ERROR_STUB_LIBRARY): take its folder off "
             "LD_LIBRARY_PATH and install "
             "the NVIDIA driver";
    default: {
      const char* name = nullptr;
      const char* text = nullptr;
      driver.cuGetErrorName(result, &name);
      driver.cuGetErrorString(result, &text);
      return fmt::format(
          "the NVIDIA driver could not be initialised: cuInit answered {} ({}): {}; check "
          "nvidia-smi",
          name ? name : "an unknown error", static_cast<int>(result), text ? text : "no text");
    }
  }
}

std::atomic<bool> forked_since_opened = false;

struct LoadedDriver {
  Driver driver;
  std::string problem;
  int version = 0;
  std::string of_a_parent;  // what to say in processes that are forked from this one

  LoadedDriver()
      : of_a_parent(fmt::format(
            "this process was forked from process {}, which had opened the GPU: CUDA does not "
            "survive a fork. Fork before the first use of a GPU, or start a new process instead "
            "(in "
            "Python: multiprocessing with \"spawn\" or \"forkserver\")",
            getpid())) {
    pthread_atfork(nullptr, nullptr, [] { forked_since_opened = true; });
    problem = open_driver(kLibrary, driver);
    if (!problem.empty()) return;
    if (const CUresult result = driver.cuInit(0); result != CUDA_SUCCESS) {
      problem = initialisation_problem(driver, result);
      return;
    }
    driver.cuDriverGetVersion(&version);
  }
};

const LoadedDriver& loaded_driver() {
  static const LoadedDriver loaded;
  return loaded;
}

}  // namespace

std::string open_driver(const char* library, Driver& driver) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    return fmt::format(
        "no NVIDIA driver: {} could not be opened: {}; install the NVIDIA driver, or in a "
        "container pass the host's in "
        "(docker: --gpus all)",
        library, reason ? reason : "unknown reason");
  }
  // The symbol that takes five arguments: cuGetProcAddress itself has four before CUDA 12.
  const auto get_address = reinterpret_cast<PFN_cuGetProcAddress_v12000>(
      dlsym(handle, "cuGetProcAddress_v2"));
  if (get_address == nullptr)
    return fmt::format("{} is not a CUDA 12 driver: it has no cuGetProcAddress_v2; {}", library,
                       kTooOld);

  std::string missing;
#define ATTNFORGE_RESOLVE(name, version)                  \
  if (!resolve(get_address, #name, version, driver.name)) \
    missing += missing.empty() ? #name : ", " #name;
  ATTNFORGE_DRIVER_FUNCTIONS(ATTNFORGE_RESOLVE)
#undef ATTNFORGE_RESOLVE
  if (!missing.empty()) return fmt::format("{} lacks {}; {}", library, missing, kTooOld);

#define ATTNFORGE_RESOLVE(name, version) resolve(get_address, #name, version, driver.name);
  ATTNFORGE_OPTIONAL_DRIVER_FUNCTIONS(ATTNFORGE_RESOLVE)
#undef ATTNFORGE_RESOLVE
  return "";
}

const Driver& driver() {
  const LoadedDriver& loaded = loaded_driver();
  if (!loaded.problem.empty()) [[unlikely]]
    throw Error(ErrorCode::kNoDriver, loaded.problem);
  if (driver_of_a_parent()) [[unlikely]]
    throw Error(ErrorCode::kCuda, loaded.of_a_parent);
  return loaded.driver;
}

bool driver_of_a_parent() { return forked_since_opened.load(std::memory_order_relaxed); }

const std::string& driver_problem() {
  const LoadedDriver& loaded = loaded_driver();
  return loaded.problem.empty() && driver_of_a_parent() ? loaded.of_a_parent : loaded.problem;
}

int driver_version() { return loaded_driver().version; }

void throw_cuda_error(CUresult result, const std::string& what) {
  const char* name = nullptr;
  const char* text = nullptr;
  const Driver& functions = loaded_driver().driver;
  if (functions.cuGetErrorName != nullptr) functions.cuGetErrorName(result, &name);
  if (functions.cuGetErrorString != nullptr) functions.cuGetErrorString(result, &text);
  throw_error(ErrorCode::kCuda, "{}: {} ({}): {}{}", what, name ? name : "unknown CUDA error",
              static_cast<int>(result), text ? text : "no text", advice(result));
}

}  // namespace attnforge
