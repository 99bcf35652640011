// products.cuh - the two products of attention and nothing else, on operands that stay in shared
// memory and registers: below the joules of these no kernel can come. bench/power.py compiles it
// after the source of a kernel of fwd_wgmma_sm90a, which has all that it names.
#pragma once

namespace attnforge {

/// The tiles of shared memory and the shapes of the products are those of config C.
template <FwdWgmmaSm90aConfig C>
struct Products {
  using Scores = Wgmma<C.dtype, C.block_n>;
  using Outputs = Wgmma<C.dtype, C.head_dim_v>;
  static constexpr int kThreads = 128 * C.warpgroups;
  static constexpr int kKeySteps = C.block_n / 16;

  /// numbers: C.smem_bytes() of random 16-bit numbers for Q, K and V. probabilities: as many words
  /// as a thread has, for each thread of a block. Every warpgroup multiplies `tiles` key tiles.
  ATTNFORGE_DEVICE static void run(const u32* numbers, const u32* probabilities, float* out,
                                   int tiles) {
    extern __shared__ __align__(1024) u32 memory[];
    const int thread = int(threadIdx.x);
    for (int i = thread; i < C.smem_bytes() / 4; i += kThreads) memory[i] = numbers[i];
    u32 probs[kKeySteps][4];
    for (int i = 0; i < kKeySteps * 4; ++i)
      probs[i / 4][i % 4] = probabilities[i * kThreads + thread];
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();

    const FwdWgmmaSm90aShared<C> smem{u32(__cvta_generic_to_shared(memory))};
    const u64 q = smem_descriptor<C.swizzle, 16, 8 * C.swizzle>(smem.q(0, thread / 128));
    float s[C.block_n / 8][4] = {}, o[C.head_dim_v / 8][4] = {};
    for (int tile = 0; tile < tiles; ++tile) {
      const u64 k = smem_descriptor<C.swizzle, 16, 8 * C.swizzle>(smem.k(tile % C.k_stages));
      const u64 v = smem_descriptor<C.swizzle, C.kv_chunk_bytes(), 8 * C.swizzle>(
          smem.v(tile % C.v_stages));
      pin(s);
      pin(o);
      wgmma_fence();
#pragma unroll
      for (int d = 0; d < C.head_dim; d += 16) {
        const int chunk = d / C.chunk_columns(), inside = d % C.chunk_columns() * 2;
        Scores::smem_smem(s, q + (chunk * C.q_chunk_bytes() + inside) / 16,
                          k + (chunk * C.kv_chunk_bytes() + inside) / 16, d > 0);
      }
#pragma unroll
      for (int j = 0; j < kKeySteps; ++j)
        Outputs::regs_smem_mn(o, probs[j][0], probs[j][1], probs[j][2], probs[j][3],
                              v + j * C.swizzle);
      wgmma_commit();
      wgmma_wait<1>();
    }
    wgmma_wait<0>();
    pin(s);
    pin(o);
    float sum = 0;
    for (const auto& fragment : s) sum += fragment[0];
    for (const auto& fragment : o) sum += fragment[0];
    out[blockIdx.x * kThreads + thread] = sum;
  }
};

}  // namespace attnforge
