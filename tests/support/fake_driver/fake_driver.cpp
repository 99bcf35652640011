// fake_driver.cpp - a libcuda.so.1 without a GPU: contexts, loads, launches and tensor maps are
// counted and nothing is computed. Streams have ids and may be captured; a graph is the number of
// its launches. A launch with more shared memory than its kernel was given is refused. Device
// memory is the host's, up to kLargestBlock at a time unless fake_gpu.h is asked for more. Whatever
// else is asked for answers CUDA_ERROR_NOT_SUPPORTED, larger memory included. At the end of a
// process with $FAKE_DRIVER_REPORT set, that file gets the counts.
#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/fake_cuda.h"
#include "tests/support/fake_driver/fake_gpu.h"

namespace {

using attnforge::test::fake_entry;
using attnforge::test::FakeEncode;
using attnforge::test::FakeEntry;

struct Context {
  CUdevice device;
};
Context primary[2] = {{0}, {1}};
Context other = {0};
thread_local std::vector<Context*> stack;

struct Gpu {
  const char* name;
  int num_sms;
  int memory_clock_khz;
};
constexpr Gpu kGpus[2] = {{"NVIDIA H200", 132, 3201000}, {"NVIDIA H100 PCIe", 114, 1593000}};

constexpr int kMostSmemBytes = 227 << 10, kUsualSmemBytes = 48 << 10;  // of a block
constexpr int kAnyAttribute = 64;                                      // of a kernel

std::atomic<int> loads, unloads, launches, loads_to_fail;
std::atomic<int> captured_launches, graph_launches;  // launches into graphs, and by their replays
std::mutex last_mutex;
std::size_t libraries;  // so many there have been: no reset() makes a handle another's
struct Loaded {
  double duration_us = 0;
  std::string fault;
};
std::vector<Loaded> loaded;             // of the code of each load; guarded by last_mutex
std::map<CUfunction, int> smem_limits;  // that were set; guarded by last_mutex
std::size_t watched_offset;
void* last_argument;
CUcontext last_context;
CUstream last_stream;
unsigned last_grid_x;
int overlapping_launches;
int encodes;
FakeEncode first_encodes[8];

std::mutex stream_mutex;
std::map<std::uintptr_t, unsigned long long> stream_ids;  // of those that live
std::set<std::uintptr_t> free_streams;
std::map<CUstream, std::size_t> captured_streams;  // and how many launches each has captured
unsigned long long last_stream_id = 1000;

CUcontext handle(Context* context) { return reinterpret_cast<CUcontext>(context); }
Context* current() { return stack.empty() ? nullptr : stack.back(); }

std::atomic<int> inits;
CUresult init(unsigned) {
  ++inits;
  return CUDA_SUCCESS;
}
CUresult driver_version(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}
CUresult error_text(CUresult, const char** text) {
  *text = "fake";
  return CUDA_SUCCESS;
}
CUresult device_get(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult device_count(int* count) {
  *count = 2;
  return CUDA_SUCCESS;
}
CUresult device_name(char* name, int length, CUdevice device) {
  std::strncpy(name, kGpus[device].name, static_cast<std::size_t>(length) - 1);
  return CUDA_SUCCESS;
}
CUresult device_uuid(CUuuid* uuid, CUdevice device) {
  std::memset(uuid, device + 1, sizeof(*uuid));
  return CUDA_SUCCESS;
}
CUresult device_memory(std::size_t* bytes, CUdevice) {
  *bytes = std::size_t{141} << 30;
  return CUDA_SUCCESS;
}
CUresult device_attribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  switch (int{attribute}) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = 9;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = 0;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = kGpus[device].num_sms;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = kMostSmemBytes;
      break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      *value = 50 << 20;
      break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      *value = 1980000;
      break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      *value = kGpus[device].memory_clock_khz;
      break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      *value = 5120;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE: {
      const char* const mode = std::getenv("FAKE_COMPUTE_MODE");
      *value = mode == nullptr ? 0 : std::atoi(mode);
      break;
    }
    default:
      *value = 0;
  }
  return CUDA_SUCCESS;
}
CUresult primary_retain(CUcontext* context, CUdevice device) {
  *context = handle(&primary[device]);
  return CUDA_SUCCESS;
}
CUresult primary_release(CUdevice) {
  attnforge::test::fake_gpu_wait();
  return CUDA_SUCCESS;
}
CUresult context_current(CUcontext* context) {
  *context = handle(current());
  return CUDA_SUCCESS;
}
CUresult context_device(CUdevice* device) {
  if (current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = current()->device;
  return CUDA_SUCCESS;
}
CUresult context_set(CUcontext context) {
  if (!stack.empty()) stack.pop_back();
  if (context != nullptr) stack.push_back(reinterpret_cast<Context*>(context));
  return CUDA_SUCCESS;
}
CUresult context_push(CUcontext context) {
  stack.push_back(reinterpret_cast<Context*>(context));
  return CUDA_SUCCESS;
}
CUresult context_pop(CUcontext* context) {
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = handle(stack.back());
  stack.pop_back();
  return CUDA_SUCCESS;
}
CUresult library_load(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned,
                      CUlibraryOption*, void**, unsigned) {
  if (current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  attnforge::test::fake_gpu_wait();
  if (loads_to_fail.load() > 0) {
    --loads_to_fail;
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  if (std::memcmp(code, "\177ELF", 4) != 0) return CUDA_ERROR_INVALID_IMAGE;
  const std::lock_guard lock(last_mutex);
  ++loads;
  const std::size_t number = ++libraries;
  if (loaded.size() <= number) loaded.resize(number + 1);
  const std::string_view text = static_cast<const char*>(code);
  loaded[number] = {attnforge::test::fake_gpu_duration_us(text),
                    std::string(attnforge::test::fake_gpu_fault(text))};
  if (loaded[number].fault == "load_crash") std::abort();
  *library = reinterpret_cast<CUlibrary>(number);
  return CUDA_SUCCESS;
}
CUresult library_unload(CUlibrary) {
  attnforge::test::fake_gpu_wait();
  ++unloads;
  return CUDA_SUCCESS;
}
CUresult library_kernel(CUkernel* kernel, CUlibrary library, const char*) {
  *kernel = reinterpret_cast<CUkernel>(library);
  return CUDA_SUCCESS;
}
CUresult kernel_function(CUfunction* function, CUkernel kernel) {
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}
CUresult function_get(int* value, CUfunction_attribute, CUfunction) {
  *value = kAnyAttribute;
  return CUDA_SUCCESS;
}
CUresult function_set(CUfunction function, CUfunction_attribute attribute, int value) {
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_SUCCESS;
  if (value < 0 || value > kMostSmemBytes - kAnyAttribute) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(last_mutex);
  smem_limits[function] = value;
  return CUDA_SUCCESS;
}
/// What the real one refuses of sizes.
bool launchable(const CUlaunchConfig& config, CUfunction function) {
  const auto limit = smem_limits.find(function);
  const int most = limit == smem_limits.end() ? kUsualSmemBytes : limit->second;
  return config.gridDimX > 0 && config.gridDimY > 0 && config.gridDimZ > 0 &&
         config.gridDimY <= 65535 && config.gridDimZ <= 65535 &&
         static_cast<int>(config.sharedMemBytes) <= most;
}
CUresult launch(const CUlaunchConfig* config, CUfunction function, void** arguments, void**) {
  if (function == nullptr || current() == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::unique_lock lock(last_mutex);
  if (!launchable(*config, function)) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(&last_argument, static_cast<const std::byte*>(arguments[0]) + watched_offset,
              sizeof(last_argument));
  last_context = handle(current());
  last_stream = config->hStream;
  last_grid_x = config->gridDimX;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
      overlapping_launches += attribute.value.programmaticStreamSerializationAllowed;
  }
  ++launches;
  {
    const std::lock_guard streams(stream_mutex);
    const auto captured = captured_streams.find(config->hStream);
    if (captured != captured_streams.end()) {
      ++captured->second;
      ++captured_launches;
    }
  }
  const Loaded code = loaded[reinterpret_cast<std::size_t>(function)];
  lock.unlock();
  return attnforge::test::fake_gpu_launch(code.duration_us, code.fault);
}
/// What the real one refuses (CUDA Driver API, "cuTensorMapEncodeTiled"), null pointers as before
/// 12.6.
bool encodable(const FakeEncode& e, cuuint64_t element_bytes, cuuint64_t most_row_bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(e.address);
  if (address == 0 || address % 16 != 0 || e.rank < 3 || e.rank > 5) return false;
  for (cuuint32_t i = 0; i < e.rank; ++i) {
    if (e.extents[i] == 0 || e.extents[i] > cuuint64_t{1} << 32) return false;
    if (e.box[i] == 0 || e.box[i] > 256 || e.steps[i] != 1) return false;
    if (i == 0) continue;
    const cuuint64_t stride = e.strides_bytes[i - 1];
    if (stride % 16 != 0 || stride >= cuuint64_t{1} << 40) return false;
  }
  const cuuint64_t row_bytes = e.box[0] * element_bytes;
  return row_bytes % 16 == 0 && row_bytes <= most_row_bytes;
}
CUresult encode_tiled(CUtensorMap* map, CUtensorMapDataType dtype, cuuint32_t rank, void* address,
                      const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
                      const cuuint32_t* steps, CUtensorMapInterleave interleave,
                      CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                      CUtensorMapFloatOOBfill fill) {
  if (rank < 1 || rank > 5) return CUDA_ERROR_INVALID_VALUE;
  FakeEncode e{};
  e.dtype = dtype;
  e.rank = rank;
  e.address = address;
  std::copy_n(extents, rank, e.extents);
  std::copy_n(strides, rank - 1, e.strides_bytes);
  std::copy_n(box, rank, e.box);
  std::copy_n(steps, rank, e.steps);
  e.interleave = interleave;
  e.swizzle = swizzle;
  e.fill = fill;
  const cuuint64_t most_row_bytes = swizzle == CU_TENSOR_MAP_SWIZZLE_128B  ? 128
                                    : swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? 64
                                    : swizzle == CU_TENSOR_MAP_SWIZZLE_32B ? 32
                                                                           : 256 * 4;
  const cuuint64_t element_bytes = dtype == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ? 4
                                   : dtype == CU_TENSOR_MAP_DATA_TYPE_UINT8 ? 1
                                                                            : 2;
  if (!encodable(e, element_bytes, most_row_bytes)) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(last_mutex);
  if (encodes < 8) first_encodes[encodes] = e;
  std::memset(map, ++encodes, sizeof(*map));
  return CUDA_SUCCESS;
}

// ---- Streams: numbers from 0x1000 on, the lowest free one first ----

std::atomic<bool> copies_take_long;
thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

CUresult stream_create(CUstream* stream, unsigned) {
  const std::lock_guard lock(stream_mutex);
  std::uintptr_t number = 0x1000 + 0x10 * stream_ids.size();
  if (!free_streams.empty()) number = free_streams.extract(free_streams.begin()).value();
  stream_ids[number] = ++last_stream_id;
  *stream = reinterpret_cast<CUstream>(number);
  return CUDA_SUCCESS;
}
CUresult stream_destroy(CUstream stream) {
  const std::lock_guard lock(stream_mutex);
  const auto number = reinterpret_cast<std::uintptr_t>(stream);
  if (stream_ids.erase(number) == 0) return CUDA_ERROR_INVALID_HANDLE;
  free_streams.insert(number);
  return CUDA_SUCCESS;
}
/// Handle 2 is a stream of each thread; handles that no one created have ids too.
CUresult stream_id(CUstream stream, unsigned long long* id) {
  static std::atomic<unsigned long long> last_of_threads = 1ull << 32;
  thread_local const unsigned long long of_this_thread = ++last_of_threads;
  const auto number = reinterpret_cast<std::uintptr_t>(stream);
  const std::lock_guard lock(stream_mutex);
  const auto found = stream_ids.find(number);
  *id = found != stream_ids.end()                   ? found->second
        : stream == CU_STREAM_PER_THREAD            ? of_this_thread
        : number == 0 || stream == CU_STREAM_LEGACY ? 1
                                                    : (1ull << 40) + number;
  return CUDA_SUCCESS;
}
CUresult stream_synchronize(CUstream) { return CUDA_SUCCESS; }
CUresult stream_query(CUstream) { return copies_take_long ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS; }
CUresult capture_begin(CUstream stream, CUstreamCaptureMode) {
  const std::lock_guard lock(stream_mutex);
  captured_streams[stream] = 0;
  return CUDA_SUCCESS;
}
CUresult capture_end(CUstream stream, CUgraph* graph) {
  const std::lock_guard lock(stream_mutex);
  const auto captured = captured_streams.find(stream);
  if (captured == captured_streams.end()) return CUDA_ERROR_INVALID_VALUE;
  *graph = reinterpret_cast<CUgraph>(captured->second);
  captured_streams.erase(captured);
  return CUDA_SUCCESS;
}
CUresult graph_instantiate(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  *executable = reinterpret_cast<CUgraphExec>(graph);
  return CUDA_SUCCESS;
}
CUresult graph_launch(CUgraphExec executable, CUstream) {
  graph_launches += static_cast<int>(reinterpret_cast<std::size_t>(executable));
  return CUDA_SUCCESS;
}
CUresult graph_executable_destroy(CUgraphExec) { return CUDA_SUCCESS; }
CUresult graph_destroy(CUgraph) { return CUDA_SUCCESS; }
CUresult is_capturing(CUstream stream, CUstreamCaptureStatus* status) {
  const std::lock_guard lock(stream_mutex);
  *status = captured_streams.count(stream) != 0 ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
CUresult exchange_capture_mode(CUstreamCaptureMode* mode) {
  std::swap(*mode, capture_mode);
  return CUDA_SUCCESS;
}
/// While any stream is captured, only threads in relaxed mode may allocate.
bool forbidden_by_a_capture() {
  const std::lock_guard lock(stream_mutex);
  return !captured_streams.empty() && capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED;
}

// ---- Memory ----

constexpr std::size_t kLargestBlock = 1 << 20;

std::mutex memory_mutex;
std::map<CUdeviceptr, std::size_t> blocks;  // of device memory

CUresult memory_alloc(CUdeviceptr* address, std::size_t bytes) {
  if (current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (forbidden_by_a_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (bytes == 0 || bytes > kLargestBlock) return CUDA_ERROR_NOT_SUPPORTED;
  void* block = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  std::memset(block, 0x5a, bytes);
  *address = reinterpret_cast<CUdeviceptr>(block);
  const std::lock_guard lock(memory_mutex);
  blocks[*address] = bytes;
  return CUDA_SUCCESS;
}
CUresult memory_free(CUdeviceptr address) {
  const std::lock_guard lock(memory_mutex);
  if (blocks.erase(address) == 0) return CUDA_ERROR_INVALID_VALUE;
  std::free(reinterpret_cast<void*>(address));
  return CUDA_SUCCESS;
}
CUresult host_alloc(void** memory, std::size_t bytes, unsigned) {
  if (forbidden_by_a_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  *memory = std::malloc(bytes);
  return CUDA_SUCCESS;
}
CUresult host_free(void* memory) {
  std::free(memory);
  return CUDA_SUCCESS;
}
CUresult memory_set(CUdeviceptr address, unsigned char value, std::size_t bytes, CUstream) {
  std::memset(reinterpret_cast<void*>(address), value, bytes);
  return CUDA_SUCCESS;
}
CUresult copy_to_host(void* to, CUdeviceptr from, std::size_t bytes, CUstream) {
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return CUDA_SUCCESS;
}

CUresult not_supported() { return CUDA_ERROR_NOT_SUPPORTED; }

/// Written when the process ends.
struct Report {
  ~Report() {
    const char* const path = std::getenv("FAKE_DRIVER_REPORT");
    std::FILE* const file = path == nullptr ? nullptr : std::fopen(path, "w");
    if (file == nullptr) return;
    std::fprintf(file, "loads=%d launches=%d captured=%d replayed=%d\n", loads.load(),
                 launches.load() - captured_launches.load(), captured_launches.load(),
                 graph_launches.load());
    std::fclose(file);
  }
} report;

}  // namespace

extern "C" {

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int, cuuint64_t,
                             CUdriverProcAddressQueryResult* status) {
  static const FakeEntry kEntries[] = {
      fake_entry("cuInit", init),
      fake_entry("cuDriverGetVersion", driver_version),
      fake_entry("cuGetErrorName", error_text),
      fake_entry("cuGetErrorString", error_text),
      fake_entry("cuDeviceGet", device_get),
      fake_entry("cuDeviceGetCount", device_count),
      fake_entry("cuDeviceGetName", device_name),
      fake_entry("cuDeviceGetUuid", device_uuid),
      fake_entry("cuDeviceTotalMem", device_memory),
      fake_entry("cuDeviceGetAttribute", device_attribute),
      fake_entry("cuDevicePrimaryCtxRetain", primary_retain),
      fake_entry("cuDevicePrimaryCtxRelease", primary_release),
      fake_entry("cuCtxGetCurrent", context_current),
      fake_entry("cuCtxGetDevice", context_device),
      fake_entry("cuCtxSetCurrent", context_set),
      fake_entry("cuCtxPushCurrent", context_push),
      fake_entry("cuCtxPopCurrent", context_pop),
      fake_entry("cuLibraryLoadData", library_load),
      fake_entry("cuLibraryUnload", library_unload),
      fake_entry("cuLibraryGetKernel", library_kernel),
      fake_entry("cuKernelGetFunction", kernel_function),
      fake_entry("cuFuncGetAttribute", function_get),
      fake_entry("cuFuncSetAttribute", function_set),
      fake_entry("cuLaunchKernelEx", launch),
      fake_entry("cuTensorMapEncodeTiled", encode_tiled),
      fake_entry("cuStreamCreate", stream_create),
      fake_entry("cuStreamDestroy", stream_destroy),
      fake_entry("cuStreamGetId", stream_id),
      fake_entry("cuStreamSynchronize", stream_synchronize),
      fake_entry("cuStreamQuery", stream_query),
      fake_entry("cuStreamBeginCapture", capture_begin),
      fake_entry("cuStreamEndCapture", capture_end),
      fake_entry("cuStreamIsCapturing", is_capturing),
      fake_entry("cuGraphInstantiateWithFlags", graph_instantiate),
      fake_entry("cuGraphLaunch", graph_launch),
      fake_entry("cuGraphExecDestroy", graph_executable_destroy),
      fake_entry("cuGraphDestroy", graph_destroy),
      fake_entry("cuThreadExchangeStreamCaptureMode", exchange_capture_mode),
      fake_entry("cuMemAlloc", memory_alloc),
      fake_entry("cuMemFree", memory_free),
      fake_entry("cuMemHostAlloc", host_alloc),
      fake_entry("cuMemFreeHost", host_free),
      fake_entry("cuMemsetD8Async", memory_set),
      fake_entry("cuMemcpyDtoHAsync", copy_to_host),
  };
  constexpr std::string_view kAbsent[] = {"cuFuncLoad",
                                          "cuFuncGetParamInfo"};  // optional ones of newer drivers
  CUdriverProcAddressQueryResult unwanted;
  if (status == nullptr) status = &unwanted;
  *status = CU_GET_PROC_ADDRESS_SUCCESS;
  for (const std::string_view name : kAbsent) {
    if (name != symbol) continue;
    *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_ERROR_NOT_FOUND;
  }
  *function = attnforge::test::fake_gpu_function(symbol);
  if (*function != nullptr) return CUDA_SUCCESS;
  *function = reinterpret_cast<void*>(not_supported);
  for (const FakeEntry& each : kEntries) {
    if (each.name == symbol) *function = each.function;
  }
  return CUDA_SUCCESS;
}

void fake_reset() {
  loads = unloads = launches = loads_to_fail = 0;
  const std::lock_guard lock(last_mutex);
  last_argument = nullptr;
  last_context = nullptr;
  last_stream = nullptr;
  last_grid_x = 0;
  overlapping_launches = 0;
  watched_offset = 0;
  encodes = 0;
  copies_take_long = false;
}
int fake_inits() { return inits; }
int fake_loads() { return loads; }
int fake_unloads() { return unloads; }
int fake_launches() { return launches; }
void fake_watch(std::size_t offset) { watched_offset = offset; }
void* fake_last_argument() { return last_argument; }
void fake_slow_copies(bool slow) { copies_take_long = slow; }
std::size_t fake_device_bytes() {
  const std::lock_guard lock(memory_mutex);
  std::size_t bytes = 0;
  for (const auto& [address, size] : blocks) bytes += size;
  return bytes;
}
CUcontext fake_last_context() { return last_context; }
CUstream fake_last_stream() { return last_stream; }
unsigned fake_last_grid_x() { return last_grid_x; }
int fake_overlapping_launches() { return overlapping_launches; }
void fake_fail_loads(int count) { loads_to_fail = count; }
CUcontext fake_other_context() { return handle(&other); }
int fake_encodes() {
  const std::lock_guard lock(last_mutex);
  return encodes;
}
FakeEncode fake_encode(int index) {
  const std::lock_guard lock(last_mutex);
  return first_encodes[index];
}

}  // extern "C"
