// cluster.cuh - blocks that run together and write to one another's shared memory (PTX ISA,
// "barrier.cluster", "mapa"; "Special registers"). From sm_90 on; elsewhere nothing calls these.
#pragma once

#include "base.cuh"

namespace attnforge {

/// Which of the cluster's blocks this is, and how many there are.
ATTNFORGE_DEVICE int cluster_rank() {
  int x = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(x));
#endif
  return x;
}
ATTNFORGE_DEVICE int cluster_blocks() {
  int x = 1;
#if __CUDA_ARCH__ >= 900
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(x));
#endif
  return x;
}
/// Of the clusters along the grid's second dimension.
ATTNFORGE_DEVICE int cluster_index_y() {
  int x = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile("mov.u32 %0, %%clusterid.y;" : "=r"(x));
#endif
  return x;
}
/// Blocks along the grid's second dimension.
ATTNFORGE_DEVICE int grid_blocks_y() {
  int x;
  asm volatile("mov.u32 %0, %%nctaid.y;" : "=r"(x));
  return x;
}

/// All threads of all blocks: arrive, and later wait until all have. Says nothing of memory.
ATTNFORGE_DEVICE void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
ATTNFORGE_DEVICE void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}
/// Both; what the others wrote before is seen after.
ATTNFORGE_DEVICE void cluster_sync() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

/// What is at `address` of this block's shared memory in block `rank`.
ATTNFORGE_DEVICE u32 in_block(u32 address, int rank) {
  u32 there = address;
#if __CUDA_ARCH__ >= 900
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
#endif
  return there;
}
ATTNFORGE_DEVICE void store_in_cluster(u32 address, float x) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(x) : "memory");
#endif
}
/// To an address aligned to 8 bytes.
ATTNFORGE_DEVICE void store_in_cluster(u32 address, float x, float y) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y)
               : "memory");
#endif
}

}  // namespace attnforge
