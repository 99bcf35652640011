// device_memory.h - GPU memory for programs that have none of their own: the CLI, examples, tests.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "attnforge/device.h"
#include "attnforge/host_tensors.h"
#include "attnforge/plan.h"

namespace attnforge {

/// Owns memory of one GPU, aligned to at least 256 bytes. Move-only; must not outlive its Device.
/// Copies and fills are synchronous.
class ATTNFORGE_API DeviceBuffer {
 public:
  DeviceBuffer();
  /// Not initialised. 0 bytes still give a pointer. Throws Error(kCuda), saying how much was asked
  /// for.
  DeviceBuffer(Device& device, std::size_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&&) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&&) noexcept;

  void* data() const;
  std::size_t size_bytes() const;

  /// Throw Error(kInternal) if `bytes` is more than the buffer holds, Error(kCuda) otherwise.
  /// download() waits for everything that was enqueued on the default stream.
  void upload(const void* from, std::size_t bytes);
  void download(void* to, std::size_t bytes) const;
  void fill(unsigned char byte);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The tensors of a problem and the workspace of its plan in GPU memory.
struct DeviceTensors {
  std::vector<DeviceBuffer> buffers;  // inputs, tables, outputs
  DeviceBuffer workspace;
  std::vector<std::uint64_t> code_words{};  // in host memory: tensors.code_arguments
  Tensors tensors;                          // points into all of them
};

/// Copies q, k, v and tables of `host` to the GPU and fills o and lse with NaN. Sizes are
/// checked: Error(kInvalidArgument).
ATTNFORGE_API DeviceTensors upload_tensors(Device& device, const Plan& plan,
                                           const HostTensors& host);

/// Copies o, and lse if the problem has it, back. Waits for the default stream.
ATTNFORGE_API void download_outputs(const DeviceTensors& from, const Problem& problem,
                                    HostTensors& to);

}  // namespace attnforge
