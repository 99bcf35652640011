#include "attnforge/device_memory.h"

#include <algorithm>
#include <span>

#include "attnforge/error.h"
#include "generator/tensors/operands.h"
#include "plan/context_scope.h"
#include "plan/device_state.h"
#include "reference/sequences.h"
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
  const std::vector<Operand> list = operands(problem);
  check_sizes(problem, list, host);
  check_tables(problem, host);
  DeviceTensors to;
  std::vector<void*> addresses;
  for (const Operand& operand : list) {
    const std::span<const std::byte> from = operand.content(host);
    DeviceBuffer& buffer = to.buffers.emplace_back(device, from.size());
    // All bits set is a NaN in each dtype: what no kernel writes shows.
    if (operand.role == Operand::Role::kOutput && !operand.added_to)
      buffer.fill(0xff);
    else
      buffer.upload(from.data(), from.size());
    addresses.push_back(buffer.data());
  }
  to.workspace = DeviceBuffer(device, plan.workspace_bytes());
  to.tensors = bound_tensors(problem, list, addresses, host, to.code_words);
  return to;
}

void download_outputs(const DeviceTensors& from, const Problem& problem, HostTensors& to) {
  const std::vector<Operand> list = operands(problem);
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].role != Operand::Role::kOutput) continue;
    list[i].resize(to, list[i].bytes());
    from.buffers[i].download(list[i].in_host(to).data(), list[i].bytes());
  }
}

}  // namespace attnforge
