#include "runtime/memory.h"

#include <fmt/format.h>

#include "attnforge/error.h"

namespace attnforge {
namespace {

CUcontext current_context() {
  CUcontext context = nullptr;
  check(driver().cuCtxGetCurrent(&context), "ask for the current CUDA context");
  ATTNFORGE_ASSERT(context != nullptr, "no CUDA context is current: hold a ScopedContext");
  return context;
}

/// " (1024 of 81559 MiB are free)", or "" if the driver does not say.
std::string how_much_is_free() {
  std::size_t free = 0, total = 0;
  if (driver().cuMemGetInfo(&free, &total) != CUDA_SUCCESS) return "";
  return fmt::format(" ({} of {} MiB are free)", free >> 20, total >> 20);
}

}  // namespace

Buffer::Buffer(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  require_kernels_to_end();
  context_ = current_context();
  if (const CUresult result = driver().cuMemAlloc(&handle_, bytes); result != CUDA_SUCCESS)
    check(result, "allocate {} bytes of device memory{}", bytes, how_much_is_free());
}

void Buffer::copy_from_host(const void* from, std::size_t bytes, std::size_t offset) {
  ATTNFORGE_ASSERT(offset <= bytes_ && bytes <= bytes_ - offset, "the copy must lie in the buffer");
  if (bytes != 0)
    check(driver().cuMemcpyHtoD(handle_ + offset, from, bytes), "copy {} bytes to the GPU", bytes);
}

void Buffer::copy_to_host(void* to, std::size_t bytes, std::size_t offset) const {
  ATTNFORGE_ASSERT(offset <= bytes_ && bytes <= bytes_ - offset, "the copy must lie in the buffer");
  if (bytes != 0)
    check(driver().cuMemcpyDtoH(to, handle_ + offset, bytes), "copy {} bytes from the GPU", bytes);
}

void Buffer::fill8(std::uint8_t value, CUstream stream) {
  if (bytes_ != 0)
    check(driver().cuMemsetD8Async(handle_, value, bytes_, stream), "fill {} bytes", bytes_);
}

void Buffer::fill32(std::uint32_t value, CUstream stream) {
  ATTNFORGE_ASSERT(bytes_ % 4 == 0, "fill32 needs a multiple of 4 bytes");
  if (bytes_ != 0)
    check(driver().cuMemsetD32Async(handle_, value, bytes_ / 4, stream), "fill {} bytes", bytes_);
}

HostBuffer::HostBuffer(std::size_t bytes) {
  context_ = current_context();
  check(driver().cuMemHostAlloc(&handle_, bytes, 0), "allocate {} bytes of pinned host memory",
        bytes);
}

Stream::Stream() {
  context_ = current_context();
  check(driver().cuStreamCreate(&handle_, CU_STREAM_NON_BLOCKING), "create a stream");
}

void Stream::synchronize() const {
  check(driver().cuStreamSynchronize(handle_), "wait for a stream");
}

Event::Event() {
  context_ = current_context();
  check(driver().cuEventCreate(&handle_, CU_EVENT_DEFAULT), "create an event");
}

void Event::record(CUstream stream) {
  check(driver().cuEventRecord(handle_, stream), "record an event");
}

void Event::synchronize() const {
  check(driver().cuEventSynchronize(handle_), "wait for an event");
}

bool Event::done() const {
  const CUresult result = driver().cuEventQuery(handle_);
  if (result == CUDA_ERROR_NOT_READY) return false;
  check(result, "ask whether an event has passed");
  return true;
}

double elapsed_us(const Event& start, const Event& stop) {
  float milliseconds = 0;
  check(driver().cuEventElapsedTime(&milliseconds, start.handle_, stop.handle_),
        "read the time between two events");
  return 1000.0 * milliseconds;
}

bool is_captured(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  check(driver().cuStreamIsCapturing(stream, &status), "ask whether a stream is being captured");
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace attnforge
