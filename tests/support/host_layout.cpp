// host_layout.cpp - where the tensors of a host problem lie: strides with gaps, in storages that
// begin and end with what belongs to no tensor.
#include <algorithm>
#include <cstdint>
#include <numeric>

#include "tests/support/host_parts.h"

namespace attnforge::test {
namespace {

/// Strides of `shape` in a row that has room for `row_heads` heads, and the elements that all of it
/// takes.
std::int64_t set_strides(const HostShape& shape, Layout layout, std::int64_t row_heads,
                         const Gaps& gaps, int alignment, Tensor& to) {
  // Strides between single things are not checked by anybody, but must be aligned like all others.
  const int unit = is_blocks(shape.dtype)
                       ? kBlockElements
                       : std::max(8 * alignment / format_of(shape.dtype).bits, 1);
  const auto aligned = [unit](std::int64_t stride) { return (stride + unit - 1) / unit * unit; };
  if (layout == Layout::kBhsd) {
    to.stride_row = aligned(shape.columns + gaps.row * unit);
    to.stride_head = (shape.rows + gaps.rows_after) * to.stride_row;
    to.stride_batch = row_heads * to.stride_head;
  } else {
    to.stride_head = aligned(shape.columns + gaps.head * unit);
    to.stride_row = row_heads * to.stride_head + gaps.row * unit;
    to.stride_batch = (shape.rows + gaps.rows_after) * to.stride_row;
  }
  return shape.batch * to.stride_batch;
}

/// A storage of `elements` of one tensor, poisoned.
void add_storage(HostProblem& host, Storage storage, std::int64_t elements, DType dtype,
                 PlacedTensor& placed) {
  placed.storage = storage;
  placed.offset_bytes = kGuardBytes + host.problem.alignment_bytes;
  auto& bytes = host.storages[storage];
  const std::int64_t size = placed.offset_bytes + bytes_of(dtype, elements) + kGuardBytes;
  bytes.resize(static_cast<std::size_t>((size + 15) / 16 * 16));
  poison(bytes, dtype,
         storage <= kStorageV || storage == kStorageDout || storage >= kStorageKScale);
}

/// Rows of one float each; a gap follows each head's.
void place_rows(HostProblem& host, Storage storage, int rows_after, PlacedTensor& placed) {
  const HostShape o = shape_of_o(host);
  const std::int64_t rows = o.rows + rows_after;
  placed.strides = {nullptr, host.problem.num_heads_q * rows, 1, rows};
  placed.storage = storage;
  placed.offset_bytes = kGuardBytes;
  const std::int64_t bytes = 2 * kGuardBytes + o.batch * placed.strides.stride_batch * 4;
  host.storages[storage].resize(static_cast<std::size_t>(bytes));
  poison(host.storages[storage], DType::kFp32, storage == kStorageDlse);
}

/// Wider where there are gaps.
Gaps with_more(Gaps gaps, int more) {
  for (int* gap : {&gaps.row, &gaps.rows_after})
    if (*gap != 0) *gap += more;
  return gaps;
}

}  // namespace

void place_tensors(HostProblem& host, const Gaps& gaps) {
  const Problem& p = host.problem;
  const int alignment = p.alignment_bytes;
  const HostShape q = shape_of_q(host), k = shape_of_k(host), v = shape_of_v(host),
                  o = shape_of_o(host);
  if (p.layout == Layout::kPackedQkv) {
    const std::int64_t row_heads = p.num_heads_q + 2 * p.num_heads_kv;
    const std::int64_t elements = set_strides(q, p.layout, row_heads, gaps, alignment,
                                              host.q.strides);
    add_storage(host, kStorageQ, elements, p.dtype_q, host.q);
    host.k = host.v = host.q;
    const std::int64_t head_bytes = host.q.strides.stride_head * bytes_of(p.dtype_q, 1);
    host.k.offset_bytes += p.num_heads_q * head_bytes;
    host.v.offset_bytes += (p.num_heads_q + p.num_heads_kv) * head_bytes;
  } else {
    const auto place = [&](Storage storage, const HostShape& shape, PlacedTensor& placed) {
      const std::int64_t elements = set_strides(shape, p.layout, shape.heads, gaps, alignment,
                                                placed.strides);
      add_storage(host, storage, elements, shape.dtype, placed);
    };
    place(kStorageQ, q, host.q), place(kStorageK, k, host.k), place(kStorageV, v, host.v);
  }
  // Scales lie as k and v do, with gaps of their own, and no better aligned than they must be.
  const auto place_scales = [&](Storage storage, const HostShape& shape, PlacedTensor& placed) {
    const int aligned = 4 * std::gcd(shape.columns, 4);
    const std::int64_t elements = set_strides(shape, p.layout, shape.heads, with_more(gaps, 1),
                                              aligned, placed.strides);
    add_storage(host, storage, elements, shape.dtype, placed);
    placed.offset_bytes = kGuardBytes + aligned;
  };
  if (has_scales(p, p.dtype_k))
    place_scales(kStorageKScale, shape_of_scales(host, k, p.kv_scale), host.k_scale);
  if (has_scales(p, p.dtype_v))
    place_scales(kStorageVScale, shape_of_scales(host, v, scale_of_v(p)), host.v_scale);
  if (has_scales(p, p.dtype_q))
    place_scales(kStorageQScale, shape_of_scales(host, q, p.kv_scale), host.q_scale);
  const std::int64_t o_elements = set_strides(o, p.layout, o.heads, gaps, alignment,
                                              host.o.strides);
  add_storage(host, kStorageO, o_elements, p.dtype_o, host.o);
  if (is_backward(p)) poison(host.storages[kStorageO], p.dtype_o, true);
  place_rows(host, kStorageLse, gaps.rows_after, host.lse);
}

void place_gradients(HostProblem& host, const Gaps& gaps) {
  const Problem& p = host.problem;
  if (!is_backward(p)) return;
  const auto place = [&](Storage storage, const HostShape& shape, std::int64_t row_heads, int more,
                         PlacedTensor& placed) {
    const std::int64_t elements = set_strides(shape, p.layout, row_heads, with_more(gaps, more),
                                              p.alignment_bytes, placed.strides);
    add_storage(host, storage, elements, shape.dtype, placed);
  };
  place(kStorageDout, shape_of_o(host), p.num_heads_q, 1, host.dout);
  place_rows(host, kStorageDlse, with_more(gaps, 1).rows_after, host.dlse);
  const HostShape q = shape_of_gradient(shape_of_q(host), p),
                  k = shape_of_gradient(shape_of_k(host), p),
                  v = shape_of_gradient(shape_of_v(host), p);
  const bool packed = p.layout == Layout::kPackedQkv;
  const std::int64_t row_heads = p.num_heads_q + 2 * p.num_heads_kv;
  place(kStorageDq, q, packed ? row_heads : q.heads, 2, host.dq);
  place(kStorageDk, k, packed ? row_heads : k.heads, 3, host.dk);
  place(kStorageDv, v, packed ? row_heads : v.heads, 4, host.dv);
  if (p.sinks) {
    host.dsinks.storage = kStorageDsinks;
    host.dsinks.offset_bytes = kGuardBytes + 4;
    host.storages[kStorageDsinks].resize(
        static_cast<std::size_t>(2 * kGuardBytes + p.num_heads_q * 4));
    poison(host.storages[kStorageDsinks], DType::kFp32, true);
  }
  if (!packed) return;
  // As if they were one tensor; what would be the others is poison.
  const auto skip_heads = [&](PlacedTensor& placed, std::int64_t heads, DType dtype) {
    placed.offset_bytes += heads * placed.strides.stride_head * bytes_of(dtype, 1);
  };
  skip_heads(host.dk, p.num_heads_q, k.dtype);
  skip_heads(host.dv, p.num_heads_q + p.num_heads_kv, v.dtype);
}

}  // namespace attnforge::test
