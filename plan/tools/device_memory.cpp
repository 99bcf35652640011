#include "attnforge/device_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "attnforge/error.h"
#include "plan/bind_tensors.h"
#include "plan/context_scope.h"
#include "plan/device_state.h"
#include "plan/tools/host_sizes.h"
#include "runtime/memory.h"

namespace attnforge {

struct DeviceBuffer::Impl {
  CUcontext context = nullptr;
  Buffer buffer;
  std::size_t bytes = 0;
};

DeviceBuffer::DeviceBuffer() = default;
DeviceBuffer::~DeviceBuffer() = default;
DeviceBuffer::DeviceBuffer(DeviceBuffer&&) noexcept = default;
DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&&) noexcept = default;

DeviceBuffer::DeviceBuffer(Device& device, std::size_t bytes) : impl_(std::make_unique<Impl>()) {
  impl_->context = state_of(device).context;
  impl_->bytes = bytes;
  const ContextScope scope(impl_->context);
  impl_->buffer = Buffer(std::max<std::size_t>(bytes, 256));
}

void* DeviceBuffer::data() const { return impl_ ? impl_->buffer.data() : nullptr; }
std::size_t DeviceBuffer::size_bytes() const { return impl_ ? impl_->bytes : 0; }

void DeviceBuffer::upload(const void* from, std::size_t bytes) {
  ATTNFORGE_ASSERT(bytes <= size_bytes(), "an upload fits into its buffer");
  if (bytes == 0) return;
  const ContextScope scope(impl_->context);
  impl_->buffer.copy_from_host(from, bytes);
}

void DeviceBuffer::download(void* to, std::size_t bytes) const {
  ATTNFORGE_ASSERT(bytes <= size_bytes(), "a download fits into its buffer");
  if (bytes == 0) return;
  const ContextScope scope(impl_->context);
  impl_->buffer.copy_to_host(to, bytes);
}

void DeviceBuffer::fill(unsigned char byte) {
  if (!impl_) return;
  const ContextScope scope(impl_->context);
  impl_->buffer.fill8(byte);
  Event done;
  done.record(nullptr);
  done.synchronize();
}

DeviceTensors upload_tensors(Device& device, const Plan& plan, const HostTensors& host) {
  const Problem& problem = plan.problem();
  const HostSizes wanted = host_sizes(problem);
  const auto uploaded = [&](const char* name, const std::vector<std::byte>& from,
                            std::size_t bytes) {
    if (from.size() != bytes) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("host tensor {} has {} bytes, but \"{}\" needs {}", name, from.size(),
                              to_string(problem), bytes));
    }
    DeviceBuffer buffer(device, bytes);
    buffer.upload(from.data(), bytes);
    return buffer;
  };
  DeviceTensors to;
  to.q = uploaded("q", host.q, wanted.q);
  to.k = uploaded("k", host.k, wanted.k);
  to.v = uploaded("v", host.v, wanted.v);
  // All bits set is a NaN in each dtype: what no kernel writes shows.
  to.o = DeviceBuffer(device, wanted.o);
  to.o.fill(0xff);
  to.lse = DeviceBuffer(device, wanted.lse_count * sizeof(float));
  to.lse.fill(0xff);
  to.workspace = DeviceBuffer(device, plan.workspace_bytes());
  to.tensors = bind_contiguous(problem, to.q.data(), to.k.data(), to.v.data(), to.o.data(),
                               static_cast<float*>(to.lse.data()));
  if (problem.rope != Rope::kNone) {
    const auto table = [&](const std::vector<float>& from) {
      DeviceBuffer buffer(device, from.size() * sizeof(float));
      buffer.upload(from.data(), from.size() * sizeof(float));
      return buffer;
    };
    to.rope_cos = table(host.rope_cos);
    to.rope_sin = table(host.rope_sin);
    bind_rope_tables(problem, host, to.rope_cos.data(), to.rope_sin.data(), to.tensors);
  }
  return to;
}

void download_outputs(const DeviceTensors& from, const Problem& problem, HostTensors& to) {
  const HostSizes wanted = host_sizes(problem);
  to.o.resize(wanted.o);
  to.lse.resize(wanted.lse_count);
  from.o.download(to.o.data(), to.o.size());
  from.lse.download(to.lse.data(), to.lse.size() * sizeof(float));
}

}  // namespace attnforge
