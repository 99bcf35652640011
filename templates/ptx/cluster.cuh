// cluster.cuh - blocks that run at the same time on neighbouring SMs and reach each other's shared
// memory (PTX ISA, "barrier.cluster", "mapa").
#pragma once

#include "base.cuh"

namespace attnforge {

ATTNFORGE_DEVICE int cluster_rank() {
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// All threads of all blocks of the cluster; what they wrote before is visible after.
ATTNFORGE_DEVICE void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}

/// Arrives at the barrier that block `rank` has where this one has `barrier`.
ATTNFORGE_DEVICE void mbarrier_arrive_at(u32 barrier, int rank) {
  asm volatile(
      "{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1; "
      "mbarrier.arrive.shared::cluster.b64 _, [remote]; }" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

}  // namespace attnforge
