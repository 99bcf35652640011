// scales.cpp - k and v of 8 or 4 bits: what goes with them, and their scales in a run.
#include <fmt/format.h>

#include <numeric>
#include <tuple>

#include "generator/parts/part.h"
#include "generator/problem/fields.h"
#include "generator/tensors/operand_list.h"
#include "generator/tensors/stored_rows.h"
#include "generator/tensors/tensor_check.h"

namespace attnforge {
namespace {

bool has_scales(const Problem& p) { return p.kv_scale != KvScale::kNone; }
bool of_rows(const Problem& p) { return p.kv_scale >= KvScale::kToken; }
/// Else they are read.
bool writes_scales(const Problem& p) { return p.op == Op::kAppend && of_rows(p); }

/// q of 8 bits.
void validate_fp8(const Problem& p) {
  const DType wrong = p.dtype_q != DType::kE4m3   ? p.dtype_q
                      : p.dtype_k != DType::kE4m3 ? p.dtype_k
                                                  : p.dtype_v;
  if (p.op != Op::kForward)
    reject_problem("q={} goes with fwd alone, not {}", to_string(p.dtype_q), to_string(p.op));
  if (p.dtype_q != DType::kE4m3)
    reject_problem("q={} must be fp32, fp16, bf16 or e4m3", to_string(p.dtype_q));
  if (wrong != DType::kE4m3)
    reject_problem("q=e4m3 goes with k=e4m3 v=e4m3, not {}", to_string(wrong));
  if (of_rows(p))
    reject_problem("q=e4m3 takes kv_scale=none, tensor or head, not {}", to_string(p.kv_scale));
}

/// k and v in blocks.
void validate_blocks(const Problem& p, const std::string& kv) {
  if (p.op != Op::kForward) reject_problem("{} goes with fwd alone, not {}", kv, to_string(p.op));
  if (has_scales(p))
    reject_problem("{} has its scales inside; leave kv_scale={} out", kv, to_string(p.kv_scale));
  for (const auto& [name, dtype, dim] :
       {std::tuple("head_dim", p.dtype_k, p.head_dim), {"head_dim_v", p.dtype_v, p.head_dim_v}}) {
    if (is_low_bit(dtype) && !is_blocks(dtype))
      reject_problem("{} does not go together: beside blocks there are blocks, fp16 or bf16", kv);
    if (is_blocks(dtype) && dim % kBlockElements != 0)
      reject_problem("{}={} must be a multiple of {} with {}: a row is of whole blocks", name, dim,
                     kBlockElements, kv);
  }
  if (p.alignment_bytes < 4)
    reject_problem("{} needs alignment={} to be 4 or more", kv, p.alignment_bytes);
}

/// Numbers of 8 bits are fine enough for a range around 0.
void validate_zeros(const Problem& p) {
  for (const auto& [name, dtype] : {std::pair("k", p.dtype_k), {"v", p.dtype_v}}) {
    if (is_low_bit(dtype) && dtype != DType::kInt4)
      reject_problem(
          "kv_zero is of int4, not {}={}: {}; leave it out, or give {} int4 or q's dtype", name,
          to_string(dtype),
          is_blocks(dtype) ? "blocks have scales alone inside"
                           : "of 8 bits a scale alone loses little",
          name);
  }
  if (has_low_bit_kv(p) && !of_rows(p))
    reject_problem(
        "kv_zero needs kv_scale=token or groups, not {}: zero points are of rows, as their ranges",
        to_string(p.kv_scale));
}

void validate_low_bits(const Problem& p) {
  if (is_low_bit(p.dtype_q)) validate_fp8(p);
  if (p.kv_zero) validate_zeros(p);
  if (p.fast_sums && !is_low_bit(p.dtype_q))
    reject_problem("fast_sums is of q=e4m3, not q={}; leave it out", to_string(p.dtype_q));
  if (!has_low_bit_kv(p)) {
    if (p.kv_zero) reject_problem("kv_zero needs k or v of int4; leave it out");
    if (!has_scales(p)) return;
    reject_problem("kv_scale={} needs k or v of 8 or 4 bits, as in k=int8 v=int8; leave it out",
                   to_string(p.kv_scale));
  }
  const std::string kv = fmt::format("k={} v={}", to_string(p.dtype_k), to_string(p.dtype_v));
  if (is_backward(p))
    reject_problem("{} does not go with bwd; gradients are of k and v in 16 bits or more", kv);
  if (p.dtype_q == DType::kFp32)
    reject_problem("{} needs q in fp16 or bf16, not q={}", kv, to_string(p.dtype_q));
  if (is_blocks(p.dtype_k) || is_blocks(p.dtype_v)) validate_blocks(p, kv);
  if (p.rope != Rope::kNone && p.op != Op::kAppend)
    reject_problem("{} does not go with rope={}; rotate q, and k before it is quantised", kv,
                   to_string(p.rope));
}

/// Scales of k or v together: as operands have them.
struct ScaleSize {
  std::int64_t rows, of_row;
};
ScaleSize size_of_scales(const Problem& p, int columns) {
  if (p.kv_scale == KvScale::kTensor) return {1, 1};
  if (p.kv_scale == KvScale::kHead) return {1, p.num_heads_kv};
  const StoredRows stored = stored_rows(p);
  const std::int64_t of_key = p.num_heads_kv * scales_of_row(p, columns);
  return stored.pool ? ScaleSize{stored.kv_batch, stored.kv * of_key}
                     : ScaleSize{stored.kv_batch * stored.kv, of_key};
}

template <auto kHost, ScaleTensor Tensors::*kTensor>
void add_of(OperandList& list, std::string_view name, DType dtype, int columns) {
  if (!is_low_bit(dtype)) return;
  const ScaleSize size = size_of_scales(list.problem, columns);
  const bool written = writes_scales(list.problem);
  Operand& scales = list.add_words(
      operand<kHost, kTensor, &ScaleTensor::data>(
          name, written ? Operand::Role::kOutput : Operand::Role::kInput),
      size.rows, size.of_row);
  scales.scales = dtype;
  scales.added_to = written;  // those of other rows stay
  scales.any_rows = has_pages(list.problem) && of_rows(list.problem);
}

template <bool kWritten>
void add_scales(OperandList& list) {
  const Problem& p = list.problem;
  if (writes_scales(p) != kWritten) return;
  add_of<&HostTensors::q_scale, &Tensors::q_scale>(list, "q_scale", p.dtype_q, p.head_dim);
  add_of<&HostTensors::k_scale, &Tensors::k_scale>(list, "k_scale", p.dtype_k, p.head_dim);
  add_of<&HostTensors::v_scale, &Tensors::v_scale>(list, "v_scale", p.dtype_v, p.head_dim_v);
}

void lay_out_scales(const Problem& p, Tensors& tensors) {
  const std::int64_t rows = stored_rows(p).kv;
  const auto lay_out = [&](ScaleTensor& scales, int columns) {
    if (p.kv_scale == KvScale::kHead) scales.stride_head = 1;
    if (!of_rows(p)) return;
    const std::int64_t each = scales_of_row(p, columns);
    const bool by_heads = p.layout == Layout::kBhsd;
    scales.stride_batch = rows * p.num_heads_kv * each;
    scales.stride_row = by_heads ? each : p.num_heads_kv * each;
    scales.stride_head = by_heads ? rows * each : each;
  };
  if (is_low_bit(p.dtype_q)) lay_out(tensors.q_scale, p.head_dim);
  if (is_low_bit(p.dtype_k)) lay_out(tensors.k_scale, p.head_dim);
  if (is_low_bit(p.dtype_v)) lay_out(tensors.v_scale, p.head_dim_v);
}

/// Scales of a row that a copy takes: addresses and strides are multiples of as many.
int copied_scales(const Problem& p, int columns) {
  return of_rows(p) && is_attention(p) ? std::gcd(scales_of_row(p, columns), 4) : 1;
}
bool strides_good(const ScaleTensor& t, int copied) {
  return (t.stride_batch | t.stride_row | t.stride_head) % copied == 0;
}

bool scales_good(const Problem& p, std::uint64_t, const Tensors& t) {
  const auto good = [&](const ScaleTensor& scales, DType dtype, int columns) {
    if (!is_low_bit(dtype)) return true;
    const int copied = copied_scales(p, columns);
    return words_good(scales.data) &&
           address_bits(scales.data) % (sizeof(float) * static_cast<unsigned>(copied)) == 0 &&
           strides_good(scales, copied);
  };
  return good(t.k_scale, p.dtype_k, p.head_dim) && good(t.v_scale, p.dtype_v, p.head_dim_v) &&
         good(t.q_scale, p.dtype_q, p.head_dim);
}

void explain_scales(const Problem& p, const Tensors& t) {
  // Nothing of them is read.
  if (p.batch == 0 || p.seqlen_kv == 0 || (p.op == Op::kAppend && total_tokens(p).q == 0)) return;
  const auto check = [&](std::string_view name, DType dtype, int columns,
                         const ScaleTensor& scales) {
    if (!is_low_bit(dtype)) return;
    const int copied = copied_scales(p, columns);
    check_address(name, scales.data, sizeof(float) * static_cast<unsigned>(copied),
                  fmt::format("but the problem says kv_scale={}; give it fp32 scales in device "
                              "memory",
                              to_string(p.kv_scale)));
    if (!strides_good(scales, copied))
      refuse_tensors(
          "{} has strides {}, {} and {} of batch, row and head; kv_scale={} needs multiples of {}: "
          "copy it",
          name, scales.stride_batch, scales.stride_row, scales.stride_head, to_string(p.kv_scale),
          copied);
  };
  check("q_scale", p.dtype_q, p.head_dim, t.q_scale);
  check("k_scale", p.dtype_k, p.head_dim, t.k_scale);
  check("v_scale", p.dtype_v, p.head_dim_v, t.v_scale);
}

double bytes_of_scales(const Problem& p) {
  const Tokens tokens = total_tokens(p);
  const auto rows = static_cast<double>(p.op == Op::kAppend ? tokens.q : tokens.kv);
  double numbers = 0;
  for (const auto& [dtype, columns] :
       {std::pair(p.dtype_k, p.head_dim), {p.dtype_v, p.head_dim_v}}) {
    if (is_low_bit(dtype) && of_rows(p))
      numbers += rows * static_cast<double>(p.num_heads_kv * scales_of_row(p, columns));
  }
  return 4 * numbers;
}

}  // namespace

extern const ProblemPart scales_of_problem;
constinit const ProblemPart scales_of_problem{.in = has_scales,
                                              .validate = validate_low_bits,
                                              .bytes = bytes_of_scales,
                                              .add_inputs = add_scales<false>,
                                              .add_outputs = add_scales<true>,
                                              .lay_out = lay_out_scales,
                                              .good = scales_good,
                                              .explain = explain_scales};

}  // namespace attnforge
