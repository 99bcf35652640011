// bulk.cuh - templates/ptx/bulk.cuh on the host.
#pragma once

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
inline void bulk_from_smem(std::function<void()> copy) {
  if (test::machine->late)
    test::machine->stores[test::own_number()].push_back(std::move(copy));
  else
    copy();
}
inline void bulk_store(void* to, u32 smem_from, int bytes) {
  bulk_from_smem([=, &sm = test::own_sm()] {
    std::memcpy(to, sm.memory.data() + smem_from, static_cast<std::size_t>(bytes));
  });
}
inline void bulk_add(float* to, u32 smem_from, int bytes) {
  bulk_from_smem([=, &sm = test::own_sm()] {
    for (int i = 0; i < bytes / 4; ++i)
      to[i] += sm.load<float>(smem_from + static_cast<u32>(i) * 4);
  });
}
inline void bulk_commit() {}
template <int kPending>
void bulk_wait_read() {
  static_assert(kPending == 0);
  auto& own = test::machine->stores[test::own_number()];
  for (const auto& copy : own) copy();
  own.clear();
}
template <int kPending>
void bulk_wait() {
  bulk_wait_read<kPending>();
}

}  // namespace attnforge
