#include "generator/tensors/operands.h"

#include <algorithm>

#include "generator/parts/part.h"
#include "generator/tensors/operand_list.h"
#include "generator/tensors/stored_rows.h"
#include "generator/text/throw_error.h"

namespace attnforge {
namespace {

using Role = Operand::Role;

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
  list.add(operand<&HostTensors::q, &Tensors::q, &Tensor::data>("q", Role::kInput), p.dtype_q,
           list.tokens.q, p.num_heads_q * p.head_dim);
  // A row of a pool is a page.
  const StoredRows stored = stored_rows(p);
  const std::int64_t rows = stored.pool ? stored.kv_batch : list.tokens.kv;
  const std::int64_t keys = stored.pool ? stored.kv : 1;
  list.add(operand<&HostTensors::k, &Tensors::k, &Tensor::data>("k", Role::kInput), p.dtype_k, rows,
           keys * p.num_heads_kv * p.head_dim)
      .any_rows = stored.pool;
  list.add(operand<&HostTensors::v, &Tensors::v, &Tensor::data>("v", Role::kInput), p.dtype_v, rows,
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
  return operand<&HostTensors::o, &Tensors::o, &Tensor::data>("o", role);
}

Operand operand_of_lse(Role role) {
  return operand<&HostTensors::lse, &Tensors::lse, &Rows::data>("lse", role);
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
  for_each_part<&ProblemPart::add_inputs>(problem, list);
  if (!is_backward(problem) && problem.op != Op::kAppend) add_outputs(list);
  for_each_part<&ProblemPart::add_outputs>(problem, list);
  return list.take();
}

RandomRange random_range(const Problem& problem, const Operand& input) {
  constexpr float kLargestNormal = 5.9f;
  const auto deviation = [&](DType dtype) {
    const ElementFormat& format = format_of(dtype);
    return format.floating || problem.kv_scale == KvScale::kNone
               ? 1.0f
               : static_cast<float>(format.largest) / kLargestNormal;
  };
  if (!is_low_bit(input.scales)) return {0, deviation(input.dtype)};
  const float unit = 1.0f / deviation(input.scales);  // never more than this
  if (problem.kv_zero) return {0, 0.7f * unit};       // zero points too
  return {0.7f * unit, 0.05f * unit};
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
  for_each_part<&ProblemPart::complete>(problem, problem,
                                        BoundOperands{list, addresses, host, words}, tensors);
  return tensors;
}

std::vector<HeadNumbers> head_numbers() {
  std::vector<HeadNumbers> all;
  for (const ProblemPart* part : problem_parts())
    if (part->of_heads != nullptr) all.push_back(*part->of_heads);
  return all;
}

void check_sizes(const Problem& problem, std::span<const Operand> list, const HostTensors& host) {
  for (const Operand& operand : list) {
    const std::size_t bytes = operand.content(host).size();
    const std::size_t row_bytes = operand.row_bytes();
    const bool longer = operand.may_be_longer && bytes > operand.bytes() && bytes % row_bytes == 0;
    if (bytes == operand.bytes() || longer) continue;
    if (operand.any_rows) {
      if (bytes > 0 && bytes % row_bytes == 0) continue;
      throw_error(ErrorCode::kInvalidArgument,
                  "host tensor {} has {} bytes, but \"{}\" needs a multiple of {}: whole pages, "
                  "one at least",
                  operand.name, bytes, to_string(problem), row_bytes);
    }
    throw_error(ErrorCode::kInvalidArgument, "host tensor {} has {} bytes, but \"{}\" needs {}{}",
                operand.name, bytes, to_string(problem), operand.bytes(),
                operand.may_be_longer ? " or more, in whole rows" : "");
  }
  for_each_part<&ProblemPart::check_host>(problem, problem, list, host);
}

}  // namespace attnforge
