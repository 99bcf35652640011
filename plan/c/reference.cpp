// reference.cpp - the CPU reference by the C API: tensors in host memory by their names.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>

#include "attnforge/c.h"
#include "attnforge/check.h"
#include "attnforge/host_tensors.h"
#include "generator/tensors/operands.h"
#include "plan/c/error.h"
#include "plan/c/handle.h"

using namespace attnforge;

namespace {

using Given = std::span<const attnforge_host_tensor>;

/// nullptr where there is none of that name.
const attnforge_host_tensor* find(Given given, std::string_view name) {
  const auto found = std::ranges::find_if(given, [&](const attnforge_host_tensor& tensor) {
    return tensor.name != nullptr && tensor.name == name;
  });
  if (found == given.end()) return nullptr;
  if (found->data != nullptr || found->bytes == 0) return &*found;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("host tensor {} is NULL, of {} bytes", name, found->bytes));
}

void copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

/// Of outputs only those that a run adds to; the others stay NaN, of the size that the caller has.
void read(Given given, std::span<const Operand> list, HostTensors& host) {
  for (const Operand& operand : list) {
    const attnforge_host_tensor* const tensor = find(given, operand.name);
    if (tensor == nullptr)
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("tensors have no \"{}\", which the problem needs", operand.name));
    const bool output = operand.role == Operand::Role::kOutput;
    if (output && tensor->bytes != operand.bytes())
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("host tensor {} has {} bytes; it must have {}", operand.name,
                              tensor->bytes, operand.bytes()));
    if (output && !operand.added_to) continue;
    operand.resize(host, tensor->bytes);
    copy(operand.in_host(host).data(), tensor->data, tensor->bytes);
  }
  if (const auto* const words = find(given, "code_words"); words != nullptr) {
    host.code_words.resize(words->bytes / sizeof(std::uint64_t));
    copy(host.code_words.data(), words->data, host.code_words.size() * sizeof(std::uint64_t));
  }
  if (const auto* const offset = find(given, "rope_offset"); offset != nullptr)
    copy(&host.rope_offset, offset->data, std::min(offset->bytes, sizeof(host.rope_offset)));
}

}  // namespace

attnforge_status attnforge_solve_on_cpu(const attnforge_problem* problem,
                                        const attnforge_host_tensor* tensors, size_t count) {
  return guarded([&] {
    const Problem& p = checked_handle(problem, "problem").problem;
    if (tensors == nullptr && count > 0)
      throw Error(ErrorCode::kInvalidArgument, "tensors is NULL");
    const Given given(tensors, count);
    const std::vector<Operand> list = operands(p);
    HostTensors host = allocate_host_tensors(p);
    read(given, list, host);
    solve_on_cpu(p, host);
    for (const Operand& operand : list) {
      if (operand.role != Operand::Role::kOutput) continue;
      const std::span<const std::byte> made = operand.content(host);
      copy(find(given, operand.name)->data, made.data(), made.size());
    }
  });
}
