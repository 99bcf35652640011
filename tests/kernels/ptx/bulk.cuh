// bulk.cuh - templates/ptx/bulk.cuh on the host.
#pragma once

#include <cstddef>
#include <cstring>

#include "base.cuh"
#include "ptx/mbarrier.cuh"

namespace attnforge {

inline void bulk_load(u32 smem_dst, const void* from, int bytes, u32 barrier) {
  test::copy_to_smem([=, &sm = test::own_sm()] {
    std::memcpy(sm.memory.data() + smem_dst, from, static_cast<std::size_t>(bytes));
    sm.mbarriers[barrier].bytes -= bytes;
    sm.mbarriers[barrier].end_if_complete();
  });
}
// From shared memory. Late ones read it when their thread waits for that, and write when it waits
// for all of it.
template <int kPending>
void bulk_wait_read() {
  static_assert(kPending == 0);
  for (test::BulkStore& store : test::machine->stores[test::own_number()]) {
    if (!store.read.empty()) continue;
    const std::byte* const from = test::own_sm().memory.data() + store.from;
    store.read.assign(from, from + store.bytes);
  }
}
template <int kPending>
void bulk_wait() {
  bulk_wait_read<kPending>();
  auto& own = test::machine->stores[test::own_number()];
  for (const test::BulkStore& store : own) {
    for (std::size_t at = 0; at < store.bytes; at += sizeof(float)) {
      float x, before;
      std::memcpy(&x, &store.read[at], sizeof(x));
      std::memcpy(&before, store.to + at, sizeof(before));
      if (store.adds) x += before;
      std::memcpy(store.to + at, &x, sizeof(x));
    }
  }
  own.clear();
}
inline void bulk_from_smem(void* to, u32 from, int bytes, bool adds) {
  test::machine->stores[test::own_number()].push_back(
      {static_cast<std::byte*>(to), from, static_cast<std::size_t>(bytes), adds});
  if (!test::machine->late) bulk_wait<0>();
}
inline void bulk_store(void* to, u32 smem_from, int bytes) {
  bulk_from_smem(to, smem_from, bytes, false);
}
inline void bulk_add(float* to, u32 smem_from, int bytes) {
  bulk_from_smem(to, smem_from, bytes, true);
}
inline void bulk_commit() {}

inline void fence_proxy_async_global() {}

}  // namespace attnforge
