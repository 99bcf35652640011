// tma.cuh - templates/ptx/tma.cuh on the host: of maps whose words are a HostMap, with boxes 128
// bytes wide and a swizzle of as many.
#pragma once

#include <cstddef>
#include <cstring>

#include "base.cuh"
#include "base_params.h"
#include "ptx/mbarrier.cuh"

namespace attnforge {

inline constexpr u64 kEvictFirst = 0, kEvictLast = 1;

inline void tma_load_5d(u32 smem_dst, const TensorMap& map, u32 barrier, u64, int column, int first,
                        int row, int head, int batch) {
  test::HostMap from;
  std::memcpy(static_cast<void*>(&from), &map, sizeof(from));
  test::copy_to_smem([=, &sm = test::own_sm()] {
    const i64 of_head = max(batch, 0) * from.stride_batch +
                        (i64{head} * from.packed_heads + first) * from.stride_head;
    for (int r = 0; r < from.box_rows * from.box_heads; ++r)
      for (int i = 0; i < 128; ++i) {  // a byte
        const int c = column + i / from.element_bytes;
        const int of_box = r % from.box_heads, at_row = row + r / from.box_heads;
        const bool inside = batch >= 0 && at_row >= 0 && at_row < from.rows && c < from.columns &&
                            head * from.packed_heads + first + of_box < from.heads;
        const i64 at = (of_head + of_box * from.stride_head + at_row * from.stride_row + c) *
                           from.element_bytes +
                       i % from.element_bytes;
        const u8 x = inside ? static_cast<const u8*>(from.data)[at] : u8{0};
        sm.store(test::swizzled(smem_dst + static_cast<u32>(r * 128 + i)), x);
      }
    sm.mbarriers[barrier].bytes -= from.box_rows * from.box_heads * 128;
    sm.mbarriers[barrier].end_if_complete();
  });
}
inline void tma_load_4d(u32 smem_dst, const TensorMap& map, u32 barrier, u64 policy, int column,
                        int row, int head, int batch) {
  tma_load_5d(smem_dst, map, barrier, policy, column, 0, row, head, batch);
}

inline void fence_proxy_async() {}

}  // namespace attnforge
