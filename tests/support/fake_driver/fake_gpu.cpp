// fake_gpu.cpp - memory is the host's and stays zero, since no kernel computes: oracle and
// candidates agree on nothing but zeros.
#include "tests/support/fake_driver/fake_gpu.h"

#include <cuda.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace attnforge::test {
namespace {

int launch_us() {
  static const char* const text = std::getenv("FAKE_GPU_LAUNCH_US");
  return text == nullptr ? -1 : std::atoi(text);
}

std::mutex clock_mutex;
double now_us;
int launches;
bool hangs, broken;  // a kernel has no end; one has broken the context

CUresult wait_for_all() {
  fake_gpu_wait();
  return broken ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}
CUresult event_query(CUevent event) {
  const std::lock_guard lock(clock_mutex);
  if (broken) return CUDA_ERROR_ILLEGAL_ADDRESS;
  const bool before = *reinterpret_cast<double*>(event) < now_us;
  return hangs && !before ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

constexpr std::size_t kAlignment = 512;
std::mutex memory_mutex;
std::map<CUdeviceptr, void*> blocks;  // and where calloc() put each, whose zeros cost nothing

CUresult allocate(CUdeviceptr* pointer, std::size_t bytes) {
  void* const block = std::calloc(bytes + kAlignment, 1);
  if (block == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = (reinterpret_cast<CUdeviceptr>(block) + kAlignment - 1) / kAlignment * kAlignment;
  const std::lock_guard lock(memory_mutex);
  blocks[*pointer] = block;
  return CUDA_SUCCESS;
}
CUresult release(CUdeviceptr pointer) {
  fake_gpu_wait();
  const std::lock_guard lock(memory_mutex);
  const auto found = blocks.find(pointer);
  if (found == blocks.end()) return CUDA_ERROR_INVALID_VALUE;
  std::free(found->second);
  blocks.erase(found);
  return CUDA_SUCCESS;
}
CUresult memory_info(std::size_t* free, std::size_t* total) {
  const char* const free_mb = std::getenv("FAKE_GPU_FREE_MB");
  *total = std::size_t{64} << 30;
  *free = free_mb == nullptr ? *total : static_cast<std::size_t>(std::atoi(free_mb)) << 20;
  return CUDA_SUCCESS;
}
CUresult allocate_host(void** pointer, std::size_t bytes, unsigned) {
  *pointer = std::calloc(bytes, 1);
  return *pointer == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
CUresult release_host(void* pointer) {
  fake_gpu_wait();
  std::free(pointer);
  return CUDA_SUCCESS;
}
CUresult to_device(CUdeviceptr to, const void* from, std::size_t bytes) {
  fake_gpu_wait();
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return CUDA_SUCCESS;
}
CUresult to_host(void* to, CUdeviceptr from, std::size_t bytes) {
  fake_gpu_wait();
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return CUDA_SUCCESS;
}
CUresult nothing() { return CUDA_SUCCESS; }  // fills: whatever its arguments are
CUresult stream_create(CUstream* stream, unsigned) {
  *stream = reinterpret_cast<CUstream>(new char);
  return CUDA_SUCCESS;
}
CUresult stream_destroy(CUstream stream) {
  delete reinterpret_cast<char*>(stream);
  return CUDA_SUCCESS;
}
CUresult event_create(CUevent* event, unsigned) {
  *event = reinterpret_cast<CUevent>(new double(0));
  return CUDA_SUCCESS;
}
CUresult event_destroy(CUevent event) {
  delete reinterpret_cast<double*>(event);
  return CUDA_SUCCESS;
}
CUresult event_record(CUevent event, CUstream) {
  const std::lock_guard lock(clock_mutex);
  *reinterpret_cast<double*>(event) = now_us;
  return CUDA_SUCCESS;
}
CUresult event_elapsed(float* milliseconds, CUevent start, CUevent stop) {
  *milliseconds = static_cast<float>(
      1e-3 * (*reinterpret_cast<double*>(stop) - *reinterpret_cast<double*>(start)));
  return CUDA_SUCCESS;
}

}  // namespace

void* fake_gpu_function(std::string_view name) {
  if (launch_us() < 0) return nullptr;
  static const FakeEntry kEntries[] = {
      fake_entry("cuMemAlloc", allocate),
      fake_entry("cuMemFree", release),
      fake_entry("cuMemHostAlloc", allocate_host),
      fake_entry("cuMemFreeHost", release_host),
      fake_entry("cuMemGetInfo", memory_info),
      fake_entry("cuMemcpyHtoD", to_device),
      fake_entry("cuMemcpyDtoH", to_host),
      fake_entry("cuMemsetD8Async", nothing),
      fake_entry("cuMemsetD32Async", nothing),
      fake_entry("cuCtxSynchronize", wait_for_all),
      fake_entry("cuStreamSynchronize", wait_for_all),
      fake_entry("cuStreamCreate", stream_create),
      fake_entry("cuStreamDestroy", stream_destroy),
      fake_entry("cuEventCreate", event_create),
      fake_entry("cuEventDestroy", event_destroy),
      fake_entry("cuEventRecord", event_record),
      fake_entry("cuEventQuery", event_query),
      fake_entry("cuEventSynchronize", wait_for_all),
      fake_entry("cuEventElapsedTime", event_elapsed),
  };
  for (const FakeEntry& each : kEntries) {
    if (each.name == name) return each.function;
  }
  return nullptr;
}

double fake_gpu_duration_us(std::string_view code) {
  const std::size_t hash = std::hash<std::string_view>{}(code);
  return 50 + 50.0 * static_cast<double>(hash % 1000) / 1000;
}

std::string_view fake_gpu_fault(std::string_view code) {
  constexpr std::string_view kMark = "fault=";
  const std::size_t at = code.find(kMark);
  if (at == std::string_view::npos) return "";
  const std::string_view rest = code.substr(at + kMark.size());
  return rest.substr(0, rest.find(' '));
}

CUresult fake_gpu_launch(double duration_us, std::string_view fault) {
  if (launch_us() < 0) return CUDA_SUCCESS;
  if (fault == "memory") return CUDA_ERROR_OUT_OF_MEMORY;
  if (fault == "crash") std::abort();
  while (fault == "stuck") std::this_thread::sleep_for(std::chrono::seconds(1));
  std::this_thread::sleep_for(std::chrono::microseconds(launch_us()));
  static const char* const hangs_at = std::getenv("FAKE_GPU_HANGS_AT");
  const std::lock_guard lock(clock_mutex);
  broken = broken || fault == "illegal";
  hangs = hangs || fault == "hang" || (hangs_at != nullptr && ++launches == std::atoi(hangs_at));
  if (!hangs) now_us += duration_us;
  return broken ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

void fake_gpu_wait() {
  const std::lock_guard lock(clock_mutex);
  if (!hangs) return;
  std::fputs("the fake driver would wait for ever\n", stderr);
  std::_Exit(kFakeGpuWaits);
}

}  // namespace attnforge::test
