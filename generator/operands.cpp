#include "generator/operands.h"

#include <fmt/format.h>

#include "attnforge/error.h"

namespace attnforge {
namespace {

using Role = Operand::Role;

template <auto kMember>
std::span<std::byte> in_host(HostTensors& host) {
  return std::as_writable_bytes(std::span(host.*kMember));
}

template <auto kMember>
void resize(HostTensors& host, std::size_t bytes) {
  auto& vector = host.*kMember;
  vector.resize(bytes / sizeof(vector[0]));
}

/// An operand with the host's vector kMember; the caller adds the sizes.
template <auto kMember>
Operand operand(std::string_view name, Role role, void (*bind)(const Problem&, void*, Tensors&)) {
  return {.name = name,
          .role = role,
          .bind = bind,
          .in_host = &in_host<kMember>,
          .resize = &resize<kMember>};
}

template <Tensor Tensors::*kTensor>
void bind_tensor(const Problem&, void* data, Tensors& tensors) {
  (tensors.*kTensor).data = data;
}

void bind_packed_qkv(const Problem& p, void* data, Tensors& tensors) {
  const std::int64_t head_bytes = std::int64_t{p.head_dim} * size_bytes(p.dtype_q);
  auto* const at = static_cast<std::byte*>(data);
  tensors.q.data = at;
  tensors.k.data = at + p.num_heads_q * head_bytes;
  tensors.v.data = at + (p.num_heads_q + p.num_heads_kv) * head_bytes;
}

class Table {
 public:
  explicit Table(const Problem& problem) : p_(problem), tokens_(total_tokens(problem)) {}

  std::vector<Operand> take() {
    add_inputs();
    if (p_.rope != Rope::kNone) add_rope();
    if (p_.lengths != Lengths::kFixed) add_lengths();
    if (has_block_mask(p_)) add_block_mask();
    add_outputs();
    return std::move(list_);
  }

 private:
  void add(Operand operand, DType dtype, std::int64_t rows, std::int64_t row_elements) {
    operand.dtype = dtype;
    operand.element_bytes = size_bytes(dtype);
    operand.elements = rows * row_elements;
    operand.row_elements = row_elements;
    list_.push_back(operand);
  }

  void add_inputs() {
    if (p_.layout == Layout::kPackedQkv) {
      add(operand<&HostTensors::q>("q", Role::kInput, bind_packed_qkv), p_.dtype_q, tokens_.q,
          (p_.num_heads_q + 2 * p_.num_heads_kv) * p_.head_dim);
      return;
    }
    add(operand<&HostTensors::q>("q", Role::kInput, bind_tensor<&Tensors::q>), p_.dtype_q,
        tokens_.q, p_.num_heads_q * p_.head_dim);
    add(operand<&HostTensors::k>("k", Role::kInput, bind_tensor<&Tensors::k>), p_.dtype_k,
        tokens_.kv, p_.num_heads_kv * p_.head_dim);
    add(operand<&HostTensors::v>("v", Role::kInput, bind_tensor<&Tensors::v>), p_.dtype_v,
        tokens_.kv, p_.num_heads_kv * p_.head_dim_v);
  }

  void add_rope() {
    const std::int64_t pairs = effective_rope_dim(p_) / 2,
                       rows = least_rope_offset(p_) + p_.seqlen_kv;
    add(operand<&HostTensors::rope_cos>("rope_cos", Role::kTable,
                                        [](const Problem&, void* data, Tensors& t) {
                                          t.rope.cos = static_cast<const float*>(data);
                                        }),
        DType::kFp32, rows, pairs);
    add(operand<&HostTensors::rope_sin>("rope_sin", Role::kTable,
                                        [](const Problem&, void* data, Tensors& t) {
                                          t.rope.sin = static_cast<const float*>(data);
                                        }),
        DType::kFp32, rows, pairs);
    list_[list_.size() - 2].may_be_longer = list_.back().may_be_longer = true;
  }

  /// Integers: the dtype is only right about their size.
  void add_lengths() {
    const std::int64_t count = p_.batch + (p_.lengths == Lengths::kPacked ? 1 : 0);
    add(operand<&HostTensors::lengths_q>("lengths_q", Role::kTable,
                                         [](const Problem&, void* data, Tensors& t) {
                                           t.lengths.q = static_cast<const int*>(data);
                                         }),
        DType::kFp32, count, 1);
    add(operand<&HostTensors::lengths_kv>("lengths_kv", Role::kTable,
                                          [](const Problem&, void* data, Tensors& t) {
                                            t.lengths.kv = static_cast<const int*>(data);
                                          }),
        DType::kFp32, count, 1);
  }

  /// Integers too. How many blocks are present is the run's, so the lists have no size but a least.
  void add_block_mask() {
    const std::int64_t rows = mask_blocks(p_).q * p_.mask_heads * p_.mask_batch;
    add(operand<&HostTensors::mask_row_begin>("mask_row_begin", Role::kTable,
                                              [](const Problem&, void* data, Tensors& t) {
                                                t.block_mask.row_begin = static_cast<int*>(data);
                                              }),
        DType::kFp32, rows + 1, 1);
    add_longer(operand<&HostTensors::mask_columns>("mask_columns", Role::kTable,
                                                   [](const Problem&, void* data, Tensors& t) {
                                                     t.block_mask.columns = static_cast<int*>(data);
                                                   }),
               1);
    if (!p_.mask_bits) return;
    add_longer(
        operand<&HostTensors::mask_bits>("mask_bits", Role::kTable,
                                         [](const Problem&, void* data, Tensors& t) {
                                           t.block_mask.bits = static_cast<std::uint32_t*>(data);
                                         }),
        p_.mask_block_q * ((p_.mask_block_kv + 31) / 32));
    add_longer(
        operand<&HostTensors::mask_bit_blocks>("mask_bit_blocks", Role::kTable,
                                               [](const Problem&, void* data, Tensors& t) {
                                                 t.block_mask.bit_blocks = static_cast<int*>(data);
                                               }),
        1);
  }

  /// Rows of so many 32-bit words: one or more.
  void add_longer(const Operand& operand, std::int64_t row_elements) {
    add(operand, DType::kFp32, 1, row_elements);
    list_.back().may_be_longer = true;
  }

  void add_outputs() {
    add(operand<&HostTensors::o>("o", Role::kOutput, bind_tensor<&Tensors::o>), p_.dtype_o,
        tokens_.q, p_.num_heads_q * p_.head_dim_v);
    if (!p_.lse) return;
    add(operand<&HostTensors::lse>(
            "lse", Role::kOutput,
            [](const Problem&, void* data, Tensors& t) { t.lse.data = static_cast<float*>(data); }),
        DType::kFp32, p_.num_heads_q * tokens_.q, 1);
  }

  const Problem& p_;
  const Tokens tokens_;
  std::vector<Operand> list_;
};

}  // namespace

std::vector<Operand> operands(const Problem& problem) { return Table(problem).take(); }

Tensors bound_tensors(const Problem& problem, std::span<const Operand> list,
                      std::span<void* const> addresses, const HostTensors& host) {
  ATTNFORGE_ASSERT(list.size() == addresses.size(), "an address for each operand");
  Tensors tensors = contiguous_tensors(problem);
  for (std::size_t i = 0; i < list.size(); ++i) list[i].bind(problem, addresses[i], tensors);
  if (problem.rope != Rope::kNone) {
    const auto pairs = static_cast<std::size_t>(effective_rope_dim(problem) / 2);
    tensors.rope.rows = static_cast<std::int64_t>(host.rope_cos.size() / pairs);
    tensors.rope.offset = host.rope_offset;
  }
  return tensors;
}

void check_sizes(const Problem& problem, std::span<const Operand> list, const HostTensors& host) {
  for (const Operand& operand : list) {
    const std::size_t bytes = operand.content(host).size();
    const auto row_bytes = static_cast<std::size_t>(operand.row_elements) * operand.element_bytes;
    const bool longer = operand.may_be_longer && bytes > operand.bytes() && bytes % row_bytes == 0;
    if (bytes == operand.bytes() || longer) continue;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("host tensor {} has {} bytes, but \"{}\" needs {}{}", operand.name,
                            bytes, to_string(problem), operand.bytes(),
                            operand.may_be_longer ? " or more, in whole rows" : ""));
  }
  if (host.rope_cos.size() != host.rope_sin.size() && problem.rope != Rope::kNone) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("host tensors rope_cos and rope_sin have {} and {} elements; they must "
                            "be of one size",
                            host.rope_cos.size(), host.rope_sin.size()));
  }
}

}  // namespace attnforge
