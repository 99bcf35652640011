// fwd_wgmma_sm90a_low_bits_test.cpp - fwd_wgmma_sm90a on the host, of K and V of 8 and 4 bits,
// beside the oracle: the job that widens tiles, and scales of each kind that it serves.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "attnforge/error.h"
#include "attnforge/problem.h"
#include "reference/compare/outputs.h"
#include "reference/half.h"
#include "reference/sequences.h"
#include "tests/support/host_problem.h"

// clang-format off
#include "tests/kernels/machine.h"
#include "base.cuh"
#include "parts/low_bits/params.h"
#include "parts/pages/params.h"
#include "parts/lengths/params.h"
#include "fwd_wgmma_sm90a/kernel.cuh"
#include "hopper/dense_pieces.cuh"
#include "hopper/widened_rows.cuh"
#include "parts/lengths/bound_order.cuh"
#include "parts/lengths/used_lengths.cuh"
#include "parts/pages/tma_keys.cuh"
// clang-format on

namespace attnforge {
namespace {

struct Formats {
  int q, k, v, scale, head_dim, page_size, grid;
};

constexpr FwdWgmmaSm90aConfig config_of(const Formats& f) {
  FwdWgmmaSm90aConfig c{};
  c.dtype = c.dtype_o = f.q;
  c.dtype_k = f.k, c.dtype_v = f.v;
  c.kv_scale = f.scale;
  c.head_dim = c.head_dim_v = f.head_dim;
  c.right_bound = 1;
  c.lse = 1;
  c.alignment = 16;
  c.lengths = f.page_size == 0 ? kFixedLengths : kUsedLengths;
  c.page_size = f.page_size;
  c.warpgroups = 1;
  c.block_n = 64;
  c.k_stages = c.v_stages = 2;
  c.q_stages = f.grid == kGridPlain ? 1 : 2;
  c.grid = f.grid;
  c.blocks_per_sm = c.pack_gqa = 1;
  c.swizzle = 128;
  return c;
}

using Params = WithScales<WithPages<WithLengths<FwdWgmmaSm90aParams>>>;

template <FwdWgmmaSm90aConfig C>
struct WithJobs : DenseTmaPieces<C> {
  template <class Tile>
  using KJob = WidenedRows<Tile, C, false>;
  template <class Tile>
  using VJob = WidenedRows<Tile, C, true>;
};
template <FwdWgmmaSm90aConfig C>
struct OfPages : WithJobs<C> {
  using Lengths = UsedLengths;
  using Keys = PagedTmaKeys<C>;
  using Order = BoundOrder;
};

std::string name_of(int dtype) { return std::string(to_string(static_cast<DType>(dtype))); }

template <FwdWgmmaSm90aConfig C>
Problem problem_of(int queries, int keys) {
  std::string words = "fwd q=" + name_of(C.dtype) + " o=" + name_of(C.dtype) +
                      " k=" + name_of(C.dtype_k) + " v=" + name_of(C.dtype_v) +
                      " kv_scale=" + std::string(to_string(static_cast<KvScale>(C.kv_scale))) +
                      " num_heads=4:2 causal lse seqlen=" + std::to_string(queries) + ":" +
                      std::to_string(keys) + " head_dim=" + std::to_string(C.head_dim);
  words += C.page_size == 0 ? " batch=2"
                            : " batch=4 lengths=used page_size=" + std::to_string(C.page_size);
  return parse_problem(words);
}

TensorRef ref_of(const Tensor& tensor) {
  return {tensor.data, tensor.stride_batch, tensor.stride_row, tensor.stride_head};
}
TensorRef ref_of(const ScaleTensor& of) {
  return {const_cast<float*>(of.data), of.stride_batch, of.stride_row, of.stride_head};
}
/// Of numbers of fewer bits rows are bytes.
TensorMap map_of(const Tensor& of, int dtype, int columns, int rows, int heads, int box_rows) {
  const int low = is_low_bit(dtype) ? bytes_of(dtype, columns) : 0;
  const auto stride = [&](std::int64_t x) { return low != 0 ? bytes_of(dtype, x) : x; };
  const test::HostMap host{static_cast<const u16*>(of.data),
                           stride(of.stride_row),
                           stride(of.stride_head),
                           stride(of.stride_batch),
                           low != 0 ? low : columns,
                           rows,
                           heads,
                           box_rows,
                           low};
  TensorMap map{};
  std::memcpy(&map, &host, sizeof(host));
  return map;
}

template <FwdWgmmaSm90aConfig C>
Params params_of(const Problem& p, const Tensors& tensors, TileCounters& counters) {
  Params params{};
  const auto batch = static_cast<int>(p.batch), heads = static_cast<int>(p.num_heads_q),
             kv_heads = static_cast<int>(p.num_heads_kv);
  const auto rows_q = static_cast<int>(p.seqlen_q), rows_kv = static_cast<int>(p.seqlen_kv);
  params.fwd.batch = batch, params.fwd.num_heads_q = heads, params.fwd.num_heads_kv = kv_heads;
  params.fwd.seqlen_q = rows_q, params.fwd.seqlen_kv = rows_kv;
  params.fwd.window_left = kOpenWindow;
  params.fwd.softmax_scale = effective_softmax_scale(p);
  params.fwd.q = ref_of(tensors.q), params.fwd.o = ref_of(tensors.o);
  params.fwd.lse = tensors.lse.data;
  params.fwd.lse_stride_batch = tensors.lse.stride_batch;
  params.fwd.lse_stride_head = tensors.lse.stride_head;
  params.scales = {ref_of(tensors.k_scale), ref_of(tensors.v_scale)};
  params.lengths.q = tensors.lengths.q, params.lengths.kv = tensors.lengths.kv;
  params.pages.table = tensors.pages.table;
  params.pages.stride_batch = tensors.pages.stride_batch;
  params.pages.num_pages = static_cast<int>(tensors.pages.num_pages);
  const int m_blocks = ceil_div(rows_q, C.block_m());
  params.order = {m_blocks, batch * heads, batch * heads, 1};
  params.tiles = m_blocks * params.order.heads;
  params.counters = &counters;
  const int stored = C.page_size != 0 ? C.page_size : rows_kv;
  params.q = map_of(tensors.q, C.dtype, C.head_dim, rows_q, heads, 64);
  params.k = map_of(tensors.k, C.dtype_k, C.head_dim, stored, kv_heads, C.box_keys(C.block_n));
  params.v = map_of(tensors.v, C.dtype_v, C.head_dim, stored, kv_heads, C.box_keys(C.block_n));
  return params;
}

template <int kQ, int kK, int kV, int kScale, int kPage = 0, int kGrid = kGridPlain, int kDim = 64>
void expect_outputs(int queries, int keys) {
#ifdef ATTNFORGE_THREADS_OF_SYSTEM
  GTEST_SKIP() << "warps that wait for one another want threads that take turns";
#endif
  constexpr FwdWgmmaSm90aConfig C = config_of({kQ, kK, kV, kScale, kDim, kPage, kGrid});
  static_assert(C.valid());
  using Pieces = std::conditional_t<kPage == 0, WithJobs<C>, OfPages<C>>;
  const Problem problem = problem_of<C>(queries, keys);
  test::HostProblem host = test::make_host_problem(problem, 5, test::Inputs::kNormal,
                                                   {.row = 16, .head = 32, .rows_after = 2});
  const Tensors tensors = host.tensors();
  const Reference expected = reference_attention(problem, tensors, 1);
  TileCounters counters{};
  const Params params = params_of<C>(problem, tensors, counters);
  constexpr unsigned kFirst = 4 * C.warpgroups;  // warp of those that do not compute
  for (const auto& [late, slow] : {std::pair{false, 1u}, {true, kFirst}, {false, kFirst + 2}}) {
    SCOPED_TRACE(to_string(problem) + (late ? ", late" : "") + ", slow warp " +
                 std::to_string(slow));
    host.poison_outputs();
    test::Machine machine;
    machine.late = late, machine.slow_warp = slow;
    const auto blocks = static_cast<unsigned>(kGrid == kGridPlain ? params.tiles : 2);
    const std::string failure = test::run_together(
        machine, blocks, C.num_threads(), static_cast<std::size_t>(C.smem_bytes()),
        [&] { FwdWgmmaSm90a<C, Pieces, Params>::run(params); });
    ASSERT_EQ(failure, "");
    const Verdict verdict = compare(problem, tensors, expected);
    EXPECT_TRUE(verdict.passed()) << to_string(verdict);
    EXPECT_EQ(host.trespass(), "");
  }
}

TEST(FwdWgmmaOfLowBits, InOnePiece) {
  expect_outputs<kBf16, kInt8, kInt8, kScaleToken>(70, 150);
  expect_outputs<kFp16, kInt4, kInt4, kScaleHead>(70, 150);
  expect_outputs<kFp16, kE5m2, kE4m3, kScaleTensor, 0, kGridStatic>(70, 150);
  expect_outputs<kBf16, kE4m3, kBf16, kScaleToken, 0, kGridDynamic>(130, 200);
  expect_outputs<kBf16, kBf16, kInt4, kScaleToken>(20, 100);
}
TEST(FwdWgmmaOfLowBits, InPages) {
  expect_outputs<kBf16, kInt8, kInt8, kScaleToken, 16>(5, 150);
  expect_outputs<kBf16, kE4m3, kInt4, kScaleToken, 16>(70, 150);
  expect_outputs<kFp16, kInt4, kE5m2, kScaleHead, 32>(5, 90);
}

}  // namespace
}  // namespace attnforge
