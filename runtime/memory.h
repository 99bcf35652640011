// memory.h - owners of device memory, streams and events. Each is made in the
// context that is current then and freed in it, whatever is current later; destructors never throw.
// All constructors throw Error(kCuda).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "runtime/release.h"

namespace attnforge {

/// A handle that the driver's kFree gives back, and the context that it belongs to. Move-only base
/// of the owners below.
template <class Handle, auto kFree>
class Owned {
 public:
  Owned() = default;
  ~Owned() {
    if (handle_ == Handle{}) return;
    release([&](const Driver& cuda) {
      if (cuda.cuCtxPushCurrent(context_) != CUDA_SUCCESS) return;
      (cuda.*kFree)(handle_);
      CUcontext popped = nullptr;
      cuda.cuCtxPopCurrent(&popped);
    });
  }
  Owned(Owned&& other) noexcept
      : handle_(std::exchange(other.handle_, Handle{})),
        context_(std::exchange(other.context_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(context_, other.context_);
    return *this;
  }

 protected:
  Handle handle_{};
  CUcontext context_ = nullptr;
};

/// Device memory, aligned to at least 256 bytes. 0 bytes are allowed and allocate nothing.
class Buffer : public Owned<CUdeviceptr, &Driver::cuMemFree> {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t bytes);
  Buffer(Buffer&& other) noexcept
      : Owned(std::move(other)), bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    Owned::operator=(std::move(other));
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  /// A buffer with a copy of `values`.
  template <class T>
  static Buffer of(std::span<const T> values) {
    Buffer buffer(values.size_bytes());
    buffer.copy_from_host(values.data(), values.size_bytes());
    return buffer;
  }
  /// The whole buffer as values of T; bytes past the last whole value are left out.
  template <class T>
  std::vector<T> to_host() const {
    std::vector<T> values(bytes_ / sizeof(T));
    copy_to_host(values.data(), values.size() * sizeof(T));
    return values;
  }

  void* data() const { return reinterpret_cast<void*>(handle_); }
  CUdeviceptr address() const { return handle_; }
  std::size_t size_bytes() const { return bytes_; }

  /// Synchronous with the host and the default stream; a non-blocking stream must be synchronised
  /// first. Throw Error(kInternal) when the range does not lie in the buffer.
  void copy_from_host(const void* from, std::size_t bytes, std::size_t offset = 0);
  void copy_to_host(void* to, std::size_t bytes, std::size_t offset = 0) const;

  /// Enqueued on `stream`. fill32 needs a multiple of 4 bytes.
  void fill8(std::uint8_t value, CUstream stream = nullptr);
  void fill32(std::uint32_t value, CUstream stream = nullptr);

 private:
  std::size_t bytes_ = 0;
};

/// Host memory that the GPU sees, and copies to without the host's help (pinned). Not initialised.
class HostBuffer : public Owned<void*, &Driver::cuMemFreeHost> {
 public:
  HostBuffer() = default;
  explicit HostBuffer(std::size_t bytes);

  void* data() const { return handle_; }
};

/// A stream that does not wait for the default stream.
class Stream : public Owned<CUstream, &Driver::cuStreamDestroy> {
 public:
  Stream();

  CUstream get() const { return handle_; }
  void synchronize() const;
};

/// A point in a stream, with a time stamp.
class Event : public Owned<CUevent, &Driver::cuEventDestroy> {
 public:
  Event();

  CUevent get() const { return handle_; }
  void record(CUstream stream);
  void synchronize() const;
  /// Whether the GPU has passed it. Throws Error(kCuda) when work before it failed.
  bool done() const;

 private:
  friend double elapsed_us(const Event& start, const Event& stop);
};
/// Time between two events that have both passed; resolution about 0.5 us.
double elapsed_us(const Event& start, const Event& stop);

/// Whether what is enqueued on a stream goes into a graph. Throws Error(kCuda).
bool is_captured(CUstream stream);

}  // namespace attnforge
