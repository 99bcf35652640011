#include "runtime/bind_arguments.h"

#include <cstring>
#include <type_traits>
#include <variant>

#include "attnforge/error.h"
#include "generator/tensors/stored_rows.h"
#include "runtime/tensor_map.h"
#include "templates/base_params.h"

namespace attnforge {
namespace {

TensorRef tensor_ref(const Tensor& tensor) {
  return {tensor.data, tensor.stride_batch, tensor.stride_row, tensor.stride_head};
}
/// Kernels take blocks for rows of bytes.
TensorRef keys_ref(const Tensor& tensor, DType dtype) {
  if (!is_blocks(dtype)) return tensor_ref(tensor);
  return {tensor.data, bytes_of(dtype, tensor.stride_batch), bytes_of(dtype, tensor.stride_row),
          bytes_of(dtype, tensor.stride_head)};
}

/// Writes each kind of field at `offset` of `params`. A new kind of ArgumentField is an overload
/// here; a field of a problem brings a function of its own.
struct Binder {
  const Tensors& tensors;
  const RunMemory& memory;
  std::span<std::byte> params;
  std::size_t offset;

  void operator()(const FwdArgument& of) const {
    FwdParams fwd = get<FwdParams>();  // sizes are there already
    fwd.q = tensor_ref(tensors.q);
    fwd.k = keys_ref(tensors.k, of.k);
    fwd.v = keys_ref(tensors.v, of.v);
    fwd.o = tensor_ref(tensors.o);
    fwd.lse = tensors.lse.data;
    fwd.lse_stride_batch = tensors.lse.stride_batch;
    fwd.lse_stride_head = tensors.lse.stride_head;
    put(fwd);
  }

  void operator()(const OwnArgument& own) const {
    own.bind({at(own.bytes), own.bytes}, tensors, memory);
  }

  void operator()(const AddressArgument& address) const { put(tensors.*address.tensor); }

  void operator()(const TensorMapSpec& map) const {
    const TensorMapSizes sizes = sizes_of_run(map, get<TensorMapSizes>(), tensors);
    encode_tensor_map(map, sizes, tensors, at(kTensorMapBytes));
  }

  void operator()(const ScratchArgument&) const {
    put(static_cast<std::byte*>(memory.workspace) + get<std::size_t>());
  }

  void operator()(const CountersArgument&) const {
    ATTNFORGE_ASSERT(memory.counters != nullptr, "a step that asks for counters is given a set");
    put(memory.counters);
  }

 private:
  std::byte* at(std::size_t size) const {
    ATTNFORGE_ASSERT(offset <= params.size() && size <= params.size() - offset,
                     "a field lies in the kernel's argument");
    return params.data() + offset;
  }
  template <class Part>
  Part get() const {
    Part field;
    std::memcpy(&field, at(sizeof(field)), sizeof(field));
    return field;
  }
  template <class Part>
  void put(const Part& field) const {
    static_assert(std::is_trivially_copyable_v<Part>);
    std::memcpy(at(sizeof(field)), &field, sizeof(field));
  }
};

void bind_fields(std::span<const ArgumentField> args, const Tensors& tensors,
                 const RunMemory& memory, std::span<std::byte> params) {
  for (const ArgumentField& field : args)
    std::visit(Binder{tensors, memory, params, field.offset}, field.value);
}

}  // namespace

void bind_arguments(std::span<const ArgumentField> args,
                    std::span<const ScratchTensor> from_workspace, const Tensors& tensors,
                    const RunMemory& memory, std::span<std::byte> params) {
  if (from_workspace.empty()) return bind_fields(args, tensors, memory, params);
  Tensors seen = tensors;
  for (const ScratchTensor& tensor : from_workspace) {
    tensor.operand.in(seen) = {static_cast<std::byte*>(memory.workspace) + tensor.begin,
                               tensor.stride_batch, tensor.stride_row, tensor.stride_head};
  }
  bind_fields(args, seen, memory, params);
}

}  // namespace attnforge
