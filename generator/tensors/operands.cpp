#include "generator/tensors/operands.h"

#include <fmt/format.h>

#include <algorithm>

#include "attnforge/error.h"
#include "generator/parts/part.h"
#include "generator/tensors/operand_list.h"
#include "generator/tensors/stored_rows.h"

namespace attnforge {
namespace {

using Role = Operand::Role;

template <Tensor Tensors::*kTensor>
void bind_tensor(const Problem&, void* data, Tensors& tensors) {
  (tensors.*kTensor).data = data;
}

void bind_packed_qkv(const Problem& p, void* data, Tensors& t) {
  bind_packed(p, p.dtype_q, data, t.q, t.k, t.v);
}

void add_inputs(OperandList& list) {
  const Problem& p = list.problem;
  if (p.layout == Layout::kPackedQkv) {
    list.add(operand<&HostTensors::q>("q", Role::kInput, bind_packed_qkv), p.dtype_q, list.tokens.q,
             (p.num_heads_q + 2 * p.num_heads_kv) * p.head_dim);
    return;
  }
  list.add(operand<&HostTensors::q>("q", Role::kInput, bind_tensor<&Tensors::q>), p.dtype_q,
           list.tokens.q, p.num_heads_q * p.head_dim);
  // A row of a pool is a page.
  const StoredRows stored = stored_rows(p);
  const std::int64_t rows = stored.pool ? stored.kv_batch : list.tokens.kv;
  const std::int64_t keys = stored.pool ? stored.kv : 1;
  list.add(operand<&HostTensors::k>("k", Role::kInput, bind_tensor<&Tensors::k>), p.dtype_k, rows,
           keys * p.num_heads_kv * p.head_dim)
      .any_rows = stored.pool;
  list.add(operand<&HostTensors::v>("v", Role::kInput, bind_tensor<&Tensors::v>), p.dtype_v, rows,
           keys * p.num_heads_kv * p.head_dim_v)
      .any_rows = stored.pool;
}

void add_outputs(OperandList& list) {
  const Problem& p = list.problem;
  list.add(operand_of_o(Role::kOutput), p.dtype_o, list.tokens.q, p.num_heads_q * p.head_dim_v);
  if (p.lse) list.add_words(operand_of_lse(Role::kOutput), p.num_heads_q * list.tokens.q);
}

}  // namespace

Operand operand_of_o(Role role) {
  return operand<&HostTensors::o>("o", role, bind_tensor<&Tensors::o>);
}

Operand operand_of_lse(Role role) {
  return operand<&HostTensors::lse>("lse", role, [](const Problem&, void* data, Tensors& tensors) {
    tensors.lse.data = static_cast<float*>(data);
  });
}

void bind_packed(const Problem& p, DType dtype, void* data, Tensor& q, Tensor& k, Tensor& v) {
  const std::int64_t head_bytes = bytes_of(dtype, p.head_dim);
  auto* const at = static_cast<std::byte*>(data);
  q.data = at;
  k.data = at + p.num_heads_q * head_bytes;
  v.data = at + (p.num_heads_q + p.num_heads_kv) * head_bytes;
}

std::vector<Operand> operands(const Problem& problem) {
  OperandList list(problem);
  if (is_attention(problem)) add_inputs(list);
  for (const ProblemPart* part : problem_parts()) {
    if (part->add_inputs != nullptr && part->in(problem)) part->add_inputs(list);
  }
  if (!is_backward(problem)) add_outputs(list);
  for (const ProblemPart* part : problem_parts()) {
    if (part->add_outputs != nullptr && part->in(problem)) part->add_outputs(list);
  }
  return list.take();
}

bool reads(const Problem& problem, std::string_view name) {
  return std::ranges::any_of(operands(problem), [&](const Operand& operand) {
    return operand.name == name && (operand.role != Role::kOutput || operand.added_to);
  });
}

bool writes(const Problem& problem, std::string_view name) {
  return std::ranges::any_of(operands(problem), [&](const Operand& operand) {
    return operand.name == name && operand.role == Role::kOutput;
  });
}

std::int64_t rows_in(const Operand& operand, const HostTensors& host) {
  const std::size_t bytes = operand.content(host).size();
  return bytes == 0 ? operand.elements / operand.row_elements
                    : static_cast<std::int64_t>(bytes / operand.row_bytes());
}

Tensors bound_tensors(const Problem& problem, std::span<const Operand> list,
                      std::span<void* const> addresses, const HostTensors& host,
                      std::vector<std::uint64_t>& words) {
  ATTNFORGE_ASSERT(list.size() == addresses.size(), "an address for each operand");
  Tensors tensors = contiguous_tensors(problem);
  for (std::size_t i = 0; i < list.size(); ++i) list[i].bind(problem, addresses[i], tensors);
  for (const ProblemPart* part : problem_parts()) {
    if (part->complete != nullptr && part->in(problem))
      part->complete(problem, {list, addresses, host, words}, tensors);
  }
  return tensors;
}

void check_sizes(const Problem& problem, std::span<const Operand> list, const HostTensors& host) {
  for (const Operand& operand : list) {
    const std::size_t bytes = operand.content(host).size();
    const std::size_t row_bytes = operand.row_bytes();
    const bool longer = operand.may_be_longer && bytes > operand.bytes() && bytes % row_bytes == 0;
    if (bytes == operand.bytes() || longer) continue;
    if (operand.any_rows) {
      if (bytes > 0 && bytes % row_bytes == 0) continue;
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("host tensor {} has {} bytes, but \"{}\" needs a multiple of {}: whole "
                      "pages, one at least",
                      operand.name, bytes, to_string(problem), row_bytes));
    }
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("host tensor {} has {} bytes, but \"{}\" needs {}{}", operand.name,
                            bytes, to_string(problem), operand.bytes(),
                            operand.may_be_longer ? " or more, in whole rows" : ""));
  }
  for (const ProblemPart* part : problem_parts()) {
    if (part->check_host != nullptr && part->in(problem)) part->check_host(problem, list, host);
  }
}

}  // namespace attnforge
