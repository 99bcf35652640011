// scales.cpp - k and v of 8 or 4 bits: what goes with them, and their scales in a run.
#include <fmt/format.h>

#include <algorithm>
#include <array>
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
  if (p.kv_scale > KvScale::kToken)
    reject_problem("q=e4m3 takes kv_scale=none, tensor, head or token, not {}",
                   to_string(p.kv_scale));
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

/// One of q, k and v, as far as scales of it go.
struct Scaled {
  std::string_view name;
  DType dtype;
  int columns;
  KvScale shared;  // by what, where it has scales
  ScaleTensor Tensors::*tensor;

  bool of_rows() const { return shared >= KvScale::kToken; }
};
std::array<Scaled, 3> all_scaled(const Problem& p) {
  return {Scaled{"q_scale", p.dtype_q, p.head_dim, p.kv_scale, &Tensors::q_scale},
          Scaled{"k_scale", p.dtype_k, p.head_dim, p.kv_scale, &Tensors::k_scale},
          Scaled{"v_scale", p.dtype_v, p.head_dim_v, scale_of_v(p), &Tensors::v_scale}};
}

/// Where its scales lie: those of a head of k are its queries', too.
struct ScaledRows {
  std::int64_t batch, rows, heads;
  bool pool;
};
ScaledRows rows_of(const Problem& p, const Scaled& of) {
  const StoredRows stored = stored_rows(p);
  if (of.tensor == &Tensors::q_scale)
    return {stored.batch, stored.q, of.of_rows() ? p.num_heads_q : p.num_heads_kv, false};
  return {stored.kv_batch, stored.kv, p.num_heads_kv, stored.pool};
}

/// Scales together: as operands have them.
struct ScaleSize {
  std::int64_t rows, of_row;
};
ScaleSize size_of_scales(const Problem& p, const Scaled& of) {
  if (of.shared == KvScale::kTensor) return {1, 1};
  const ScaledRows stored = rows_of(p, of);
  if (of.shared == KvScale::kHead) return {1, stored.heads};
  const std::int64_t of_key = stored.heads * scales_of_row(p, of.columns);
  return stored.pool ? ScaleSize{stored.batch, stored.rows * of_key}
                     : ScaleSize{stored.batch * stored.rows, of_key};
}

template <auto kHost, ScaleTensor Tensors::*kTensor>
void add_of(OperandList& list, const Scaled& of) {
  if (!is_low_bit(of.dtype)) return;
  const ScaleSize size = size_of_scales(list.problem, of);
  const bool written = writes_scales(list.problem);
  Operand& scales = list.add_words(
      operand<kHost, kTensor, &ScaleTensor::data>(
          of.name, written ? Operand::Role::kOutput : Operand::Role::kInput),
      size.rows, size.of_row);
  scales.scales = of.dtype;
  scales.added_to = written;  // those of other rows stay
  scales.any_rows = rows_of(list.problem, of).pool && of.of_rows();
}

template <bool kWritten>
void add_scales(OperandList& list) {
  if (writes_scales(list.problem) != kWritten) return;
  const auto [q, k, v] = all_scaled(list.problem);
  add_of<&HostTensors::q_scale, &Tensors::q_scale>(list, q);
  add_of<&HostTensors::k_scale, &Tensors::k_scale>(list, k);
  add_of<&HostTensors::v_scale, &Tensors::v_scale>(list, v);
}

void lay_out_scales(const Problem& p, Tensors& tensors) {
  const bool by_heads = p.layout == Layout::kBhsd;
  for (const Scaled& of : all_scaled(p)) {
    if (!is_low_bit(of.dtype)) continue;
    ScaleTensor& scales = tensors.*of.tensor;
    if (of.shared == KvScale::kHead) scales.stride_head = 1;
    if (!of.of_rows()) continue;
    const std::int64_t each = scales_of_row(p, of.columns);
    const ScaledRows stored = rows_of(p, of);
    scales.stride_batch = stored.rows * stored.heads * each;
    scales.stride_row = by_heads ? each : stored.heads * each;
    scales.stride_head = by_heads ? stored.rows * each : each;
  }
}

/// Scales of a row that a copy takes: addresses and strides are multiples of as many.
int copied_scales(const Problem& p, const Scaled& of) {
  return of.of_rows() && is_attention(p) ? std::gcd(scales_of_row(p, of.columns), 4) : 1;
}
bool strides_good(const ScaleTensor& t, int copied) {
  return (t.stride_batch | t.stride_row | t.stride_head) % copied == 0;
}

bool scales_good(const Problem& p, std::uint64_t, const Tensors& t) {
  return std::ranges::all_of(all_scaled(p), [&](const Scaled& of) {
    if (!is_low_bit(of.dtype)) return true;
    const ScaleTensor& scales = t.*of.tensor;
    const int copied = copied_scales(p, of);
    return words_good(scales.data) &&
           address_bits(scales.data) % (sizeof(float) * static_cast<unsigned>(copied)) == 0 &&
           strides_good(scales, copied);
  });
}

void explain_scales(const Problem& p, const Tensors& t) {
  // Nothing of them is read.
  if (p.batch == 0 || p.seqlen_kv == 0 || (p.op == Op::kAppend && total_tokens(p).q == 0)) return;
  for (const Scaled& of : all_scaled(p)) {
    if (!is_low_bit(of.dtype)) continue;
    const ScaleTensor& scales = t.*of.tensor;
    const int copied = copied_scales(p, of);
    check_address(of.name, scales.data, sizeof(float) * static_cast<unsigned>(copied),
                  fmt::format("but the problem says kv_scale={}; give it fp32 scales in device "
                              "memory",
                              to_string(p.kv_scale)));
    if (!strides_good(scales, copied))
      refuse_tensors(
          "{} has strides {}, {} and {} of batch, row and head; kv_scale={} needs multiples of {}: "
          "copy it",
          of.name, scales.stride_batch, scales.stride_row, scales.stride_head,
          to_string(p.kv_scale), copied);
  }
}

double bytes_of_scales(const Problem& p) {
  const Tokens tokens = total_tokens(p);
  const auto keys = static_cast<double>(p.op == Op::kAppend ? tokens.q : tokens.kv);
  const auto [q, k, v] = all_scaled(p);
  double numbers = 0;
  for (const auto& [of, rows] : {std::pair(q, static_cast<double>(tokens.q)), {k, keys}, {v, keys}})
    if (is_low_bit(of.dtype) && of.of_rows())
      numbers += rows * static_cast<double>(rows_of(p, of).heads * scales_of_row(p, of.columns));
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
