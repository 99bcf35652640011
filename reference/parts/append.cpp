#include "reference/parts/append.h"

#include <algorithm>
#include <vector>

#include "reference/half.h"
#include "reference/parts/rope.h"

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

/// Rotated by the angles of `position`; negative: as they are.
void move_rows(const Problem& p, const Tensors& t, const RowPlace& to, const RowPlace& from,
               std::int64_t heads, int head_dim, std::int64_t position) {
  std::vector<double> row(static_cast<std::size_t>(head_dim));
  for (std::int64_t head = 0; head < heads; ++head) {
    load_elements(p.dtype_q, from.tensor.data, from.of(head), head_dim, row.data());
    if (position >= 0) rotate(p, t, t.rope.offset + position, row.data());
    for (int i = 0; i < head_dim; ++i)
      store_element(p.dtype_q, to.tensor.data, to.of(head) + i,
                    static_cast<float>(row[static_cast<std::size_t>(i)]));
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
        move_rows(p, t, {t.o, batch, row}, {t.q, batch, row}, p.num_heads_q, p.head_dim, angles);
      std::int64_t page = b, place = position;
      if (has_pages(p)) {
        page = t.pages.table[b * t.pages.stride_batch + position / p.page_size];
        place = position % p.page_size;
        if (page < 0 || page >= t.pages.num_pages) continue;
      }
      move_rows(p, t, {t.cache.k, page, place}, {t.k, batch, row}, p.num_heads_kv, p.head_dim,
                angles);
      move_rows(p, t, {t.cache.v, page, place}, {t.v, batch, row}, p.num_heads_kv, p.head_dim_v,
                -1);
    }
    if (p.lengths_after)
      t.cache.lengths_after[b] = static_cast<int>(std::min(p.seqlen_kv, used + added));
  }
}

}  // namespace attnforge
