#include "reference/parts/append.h"

#include <algorithm>
#include <vector>

#include "reference/half.h"
#include "reference/parts/rope.h"
#include "reference/parts/scales.h"

namespace attnforge {
namespace {

/// A row among those of all heads of a tensor.
struct RowPlace {
  const Tensor& tensor;
  std::int64_t batch, row;

  std::int64_t of(std::int64_t head) const {
    return batch * tensor.stride_batch + row * tensor.stride_row + head * tensor.stride_head;
  }
};

/// Where the scales of a cache's row of head 0 are.
float* scales_of(const Problem& p, const ScaleTensor& scales, std::int64_t sequence,
                 const RowPlace& row) {
  if (scales.data == nullptr) return nullptr;
  return p.kv_scale >= KvScale::kToken
             ? scales.data + row.batch * scales.stride_batch + row.row * scales.stride_row
             : scales.data + sequence * scales.stride_batch;
}

struct RowsToMove {
  std::int64_t heads;
  int head_dim;
  std::int64_t position;  // whose angles they are rotated by; negative: they are not
  DType to = {};          // of 8 or 4 bits: they are quantised
  float* scales = nullptr;
  std::int64_t scale_stride = 0;  // between heads
};

void move_rows(const Problem& p, const Tensors& t, const RowPlace& to, const RowPlace& from,
               const RowsToMove& rows) {
  std::vector<double> row(static_cast<std::size_t>(rows.head_dim));
  std::vector<float> rounded(row.size());
  for (std::int64_t head = 0; head < rows.heads; ++head) {
    load_elements(p.dtype_q, from.tensor.data, from.of(head), rows.head_dim, row.data());
    if (rows.position >= 0) rotate(p, t, t.rope.offset + rows.position, row.data());
    std::ranges::transform(row, rounded.begin(),
                           [&](double x) { return round_to(p.dtype_q, static_cast<float>(x)); });
    if (is_low_bit(rows.to)) {
      quantise_row(p, rows.to, rounded, to.tensor.data, to.of(head),
                   rows.scales == nullptr ? nullptr : rows.scales + head * rows.scale_stride);
      continue;
    }
    for (int i = 0; i < rows.head_dim; ++i)
      store_element(p.dtype_q, to.tensor.data, to.of(head) + i,
                    rounded[static_cast<std::size_t>(i)]);
  }
}

}  // namespace

void reference_append(const Problem& p, const Tensors& t) {
  const bool packed = p.lengths == Lengths::kPacked, rotates = p.rope != Rope::kNone;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const std::int64_t used = t.lengths.kv == nullptr ? 0 : t.lengths.kv[b];
    const std::int64_t first = packed ? t.lengths.q[b] : 0;
    const std::int64_t added = packed ? t.lengths.q[b + 1] - first : p.seqlen_q;
    const std::int64_t batch = packed ? 0 : b;
    for (std::int64_t i = 0; used >= 0 && i < added && used + i < p.seqlen_kv; ++i) {
      const std::int64_t position = used + i, angles = rotates ? position : -1, row = first + i;
      if (p.queries)
        move_rows(p, t, {t.o, batch, row}, {t.q, batch, row}, {p.num_heads_q, p.head_dim, angles});
      std::int64_t page = b, place = position;
      if (has_pages(p)) {
        page = t.pages.table[b * t.pages.stride_batch + position / p.page_size];
        place = position % p.page_size;
        if (page < 0 || page >= t.pages.num_pages) continue;
      }
      const RowPlace k{t.cache.k, page, place}, v{t.cache.v, page, place};
      move_rows(p, t, k, {t.k, batch, row},
                {p.num_heads_kv, p.head_dim, angles, p.dtype_k, scales_of(p, t.k_scale, b, k),
                 t.k_scale.stride_head});
      move_rows(p, t, v, {t.v, batch, row},
                {p.num_heads_kv, p.head_dim_v, -1, p.dtype_v, scales_of(p, t.v_scale, b, v),
                 t.v_scale.stride_head});
    }
    if (p.lengths_after)
      t.cache.lengths_after[b] = static_cast<int>(std::min(p.seqlen_kv, used + added));
  }
}

}  // namespace attnforge
