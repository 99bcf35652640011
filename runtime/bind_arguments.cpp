#include "runtime/bind_arguments.h"

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <variant>

#include "attnforge/error.h"
#include "runtime/tensor_map.h"
#include "templates/params_block_mask.h"
#include "templates/params_bwd.h"
#include "templates/params_fwd.h"
#include "templates/params_lengths.h"
#include "templates/params_pages.h"
#include "templates/params_rope.h"
#include "templates/params_tile_lists.h"

namespace attnforge {
namespace {

TensorRef tensor_ref(const Tensor& tensor) {
  return {tensor.data, tensor.stride_batch, tensor.stride_row, tensor.stride_head};
}

/// Writes each kind of part at `offset` of `params`. A new kind of ArgumentPart is an overload
/// here.
struct Binder {
  const Tensors& tensors;
  const RunMemory& memory;
  std::span<std::byte> params;
  std::size_t offset;

  void operator()(const FwdArgument&) const {
    FwdParams fwd = get<FwdParams>();  // sizes are there already
    fwd.q = tensor_ref(tensors.q);
    fwd.k = tensor_ref(tensors.k);
    fwd.v = tensor_ref(tensors.v);
    fwd.o = tensor_ref(tensors.o);
    fwd.lse = tensors.lse.data;
    fwd.lse_stride_batch = tensors.lse.stride_batch;
    fwd.lse_stride_head = tensors.lse.stride_head;
    put(fwd);
  }

  void operator()(const GradientsArgument& gradients) const {
    const Gradients& given = tensors.gradients;
    put(GradientsParams{.dout = tensor_ref(given.dout),
                        .dq = tensor_ref(given.dq),
                        .dk = tensor_ref(given.dk),
                        .dv = tensor_ref(given.dv),
                        .dlse = gradients.dlse ? given.dlse.data : nullptr,
                        .dlse_stride_batch = given.dlse.stride_batch,
                        .dlse_stride_head = given.dlse.stride_head,
                        .dsinks = given.dsinks});
  }

  void operator()(const RopeArgument&) const {
    RopeParams rope = get<RopeParams>();  // the first query's position is there already
    rope.cos = tensors.rope.cos;
    rope.sin = tensors.rope.sin;
    rope.q_offset = static_cast<int>(tensors.rope.offset + rope.q_offset);
    rope.k_offset = static_cast<int>(tensors.rope.offset);
    put(rope);
  }

  void operator()(const LengthsArgument&) const {
    LengthsParams params = get<LengthsParams>();  // how sequences are grouped is there already
    params.q = tensors.lengths.q;
    params.kv = tensors.lengths.kv;
    params.work = static_cast<WorkList*>(memory.workspace);
    put(params);
  }

  void operator()(const PagesArgument&) const {
    put(PagesParams{.table = tensors.pages.table,
                    .stride_batch = tensors.pages.stride_batch,
                    .num_pages = static_cast<int>(tensors.pages.num_pages),
                    .unused = {}});
  }

  void operator()(const BlockMaskArgument&) const {
    BlockMaskParams params = get<BlockMaskParams>();  // how many rows there are is there already
    params.row_begin = tensors.block_mask.row_begin;
    params.columns = tensors.block_mask.columns;
    params.bits = tensors.block_mask.bits;
    params.bit_blocks = tensors.block_mask.bit_blocks;
    put(params);
  }

  void operator()(const CodeArguments& code) const {
    const std::size_t bytes = code.count * sizeof(std::uint64_t);
    if (bytes != 0) std::memcpy(at(bytes), tensors.code_arguments, bytes);
  }

  void operator()(const AddressArgument& address) const { put(tensors.*address.tensor); }

  void operator()(const TensorMapSpec& map) const {
    TensorMapSizes sizes = get<TensorMapSizes>();
    const std::int64_t rows = is_of_keys(map.operand) ? tensors.lengths.tokens_kv
                                                      : tensors.lengths.tokens_q;
    if (map.rows_of_run && rows > 0) sizes.rows = rows;
    if (map.of_pages) sizes.batch = tensors.pages.num_pages;
    encode_tensor_map(map, sizes, tensors, at(kTensorMapBytes));
  }

  void operator()(const ScratchArgument&) const {
    put(static_cast<std::byte*>(memory.workspace) + get<std::size_t>());
  }

  void operator()(const TileListsArgument&) const {
    TileListParams lists = get<TileListParams>();
    const auto place = [&](auto*& pointer) {
      pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(
          static_cast<std::byte*>(memory.workspace) + reinterpret_cast<std::uintptr_t>(pointer));
    };
    place(lists.groups);
    place(lists.counts);
    place(lists.states);
    place(lists.bits);
    put(lists);
  }

  void operator()(const CountersArgument&) const {
    ATTNFORGE_ASSERT(memory.counters != nullptr, "a step that asks for counters is given a set");
    put(memory.counters);
  }

 private:
  std::byte* at(std::size_t size) const {
    ATTNFORGE_ASSERT(offset <= params.size() && size <= params.size() - offset,
                     "a part lies in the kernel's argument");
    return params.data() + offset;
  }
  template <class Part>
  Part get() const {
    Part part;
    std::memcpy(&part, at(sizeof(part)), sizeof(part));
    return part;
  }
  template <class Part>
  void put(const Part& part) const {
    static_assert(std::is_trivially_copyable_v<Part>);
    std::memcpy(at(sizeof(part)), &part, sizeof(part));
  }
};

void bind_parts(std::span<const ArgumentPart> args, const Tensors& tensors, const RunMemory& memory,
                std::span<std::byte> params) {
  for (const ArgumentPart& part : args)
    std::visit(Binder{tensors, memory, params, part.offset}, part.value);
}

}  // namespace

void bind_arguments(std::span<const ArgumentPart> args,
                    std::span<const ScratchTensor> from_workspace, const Tensors& tensors,
                    const RunMemory& memory, std::span<std::byte> params) {
  if (from_workspace.empty()) return bind_parts(args, tensors, memory, params);
  Tensors seen = tensors;
  for (const ScratchTensor& tensor : from_workspace) {
    const_cast<Tensor&>(tensor_of(seen, tensor.operand)) = {
        static_cast<std::byte*>(memory.workspace) + tensor.begin, tensor.stride_batch,
        tensor.stride_row, tensor.stride_head};
  }
  bind_parts(args, seen, memory, params);
}

}  // namespace attnforge
