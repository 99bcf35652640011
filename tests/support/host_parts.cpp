// host_parts.cpp - shapes of a problem's tensors in host memory, and poison.
#include "tests/support/host_parts.h"

#include <algorithm>
#include <limits>

#include "reference/half.h"

namespace attnforge::test {
namespace {

HostShape shape_of(const Problem& p, bool queries, std::int64_t heads, int columns, DType dtype,
                   const std::vector<SequenceRows>& sequences, std::int64_t num_pages = 0) {
  if (num_pages > 0) return {num_pages, heads, p.page_size, columns, dtype, sequences};
  const bool packed = p.lengths == Lengths::kPacked;
  const Tokens tokens = total_tokens(p);
  const std::int64_t rows = packed ? (queries ? tokens.q : tokens.kv)
                                   : (queries ? p.seqlen_q : p.seqlen_kv);
  return {packed ? std::min<std::int64_t>(1, p.batch) : p.batch,
          heads,
          rows,
          columns,
          dtype,
          sequences};
}

}  // namespace

HostShape shape_of_q(const HostProblem& host) {
  const Problem& p = host.problem;
  return shape_of(p, true, p.num_heads_q, p.head_dim, p.dtype_q, host.rows_q);
}
HostShape shape_of_k(const HostProblem& host) {
  const Problem& p = host.problem;
  return shape_of(p, false, p.num_heads_kv, p.head_dim, p.dtype_k, host.rows_kv, host.num_pages);
}
HostShape shape_of_v(const HostProblem& host) {
  const Problem& p = host.problem;
  return shape_of(p, false, p.num_heads_kv, p.head_dim_v, p.dtype_v, host.rows_kv, host.num_pages);
}
HostShape shape_of_o(const HostProblem& host) {
  const Problem& p = host.problem;
  return shape_of(p, true, p.num_heads_q, p.head_dim_v, p.dtype_o, host.rows_q);
}

HostShape shape_of_rows(const HostProblem& host) {
  const Problem& p = host.problem;
  return shape_of(p, true, p.num_heads_q, 1, DType::kFp32, host.rows_q);
}

bool has_scales(const Problem& p, DType dtype) {
  return is_low_bit(dtype) && p.kv_scale != KvScale::kNone;
}

HostShape shape_of_scales(const HostProblem& host, HostShape shape, KvScale shared) {
  const Problem& p = host.problem;
  shape.columns = scales_of_row(p, shape.columns);
  shape.dtype = DType::kFp32;
  if (shared >= KvScale::kToken) return shape;
  shape.batch = p.batch;
  shape.heads = p.num_heads_kv;
  shape.rows = 1;
  shape.sequences.clear();
  for (std::int64_t i = 0; i < p.batch; ++i) shape.sequences.push_back({i, 0, 1, i, 0});
  return shape;
}

HostShape shape_of_gradient(HostShape shape, const Problem& p) {
  shape.dtype = gradient_dtype(p, shape.dtype);
  return shape;
}

HostShape shape_of_sinks(const Problem& p) {
  HostShape shape{1, 1, 1, static_cast<int>(p.num_heads_q), DType::kFp32, {}};
  if (p.sinks) shape.sequences.push_back({0, 0, 1, 0, 0});
  return shape;
}

void poison(std::vector<std::byte>& bytes, DType dtype, bool with_infinities) {
  constexpr float kBad[] = {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()};
  const std::int64_t count = elements_in(dtype, bytes.size());
  if (!format_of(dtype).floating) {  // of integers the largest, and of pairs of them others
    std::ranges::fill(bytes, std::byte{0x7f});
    return;
  }
  for (std::int64_t i = 0; i < count; ++i)
    store_element(dtype, bytes.data(), i, kBad[with_infinities ? i % 3 : 0]);
}

}  // namespace attnforge::test
