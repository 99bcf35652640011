// weights_test.cpp - the kernels of attention weights on the host, beside the fp64 reference, of
// which V of unit rows makes the weights of a row its output.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attnforge/error.h"
#include "attnforge/problem.h"
#include "reference/attention.h"
#include "reference/half.h"
#include "tests/support/host_parts.h"
#include "tests/support/host_problem.h"

// clang-format off
#include "tests/kernels/machine.h"
#include "base.cuh"
#include "tests/kernels/index_of.h"
#include "parts/block_mask/params.h"
#include "parts/lengths/params.h"
#include "parts/pages/params.h"
#include "parts/lengths/used_lengths.cuh"
#include "pieces/fixed_lengths.cuh"
#include "ops/weights/kernel.cuh"
// clang-format on

namespace attnforge {
namespace {

using test::index_of;

using Own = WithBlockMask<WithPages<WithLengths<WeightsParams>>>;

template <WeightsConfig C>
struct Pieces {
  using Lengths = std::conditional_t<C.lengths == kUsedLengths, UsedLengths, FixedLengths>;
};

/// A problem, and the words of it that kernels are compiled for.
struct Case {
  const char* words;
  int dtype, head_dim, alignment = 16;
  int softcap = 0, lengths = kFixedLengths, page_size = 0, blocks = 0;
};

template <const Case& kCase>
constexpr WeightsConfig config_of(int sums) {
  WeightsConfig c{};
  c.dtype = c.dtype_k = c.dtype_v = c.dtype_o = kCase.dtype;
  c.head_dim = c.head_dim_v = kCase.head_dim;
  c.right_bound = c.left_bound = c.lse = 1;
  c.alignment = kCase.alignment;
  c.softcap = kCase.softcap, c.lengths = kCase.lengths, c.page_size = kCase.page_size;
  c.mask_block_q = c.mask_block_kv = kCase.blocks;
  c.sums = sums;
  return c;
}

constexpr int kMostKeys = 256;  // columns of V

/// Weights as [batch, heads, queries, keys], from the reference; lse of the run becomes its own.
std::vector<double> expected_weights(test::HostProblem& host) {
  const Problem& p = host.problem;
  const test::HostShape shape = shape_of_v(host);
  std::byte* const v = host.storages[test::kStorageV].data() + host.v.offset_bytes;
  for_each_element(shape, host.v.strides, [&](std::int64_t at, std::int64_t row, int column) {
    store_element(shape.dtype, v, at, row == column ? 1.0f : 0.0f);
  });
  const Tensors tensors = host.tensors();
  const Reference reference = reference_attention(p, tensors, 1);
  std::vector<double> weights(index_of(p.batch * p.num_heads_q * p.seqlen_q * p.seqlen_kv));
  for (std::size_t i = 0; i < reference.rows.size(); ++i) {
    const QueryRow& row = reference.rows[i];
    tensors.lse.data[row.batch * tensors.lse.stride_batch + row.head * tensors.lse.stride_head +
                     row.query] = static_cast<float>(reference.lse[i]);
    const std::int64_t at = ((row.batch * p.num_heads_q + row.head) * p.seqlen_q + row.query) *
                            p.seqlen_kv;
    for (std::int64_t key = 0; key < p.seqlen_kv; ++key)
      weights[index_of(at + key)] = reference.o[i * kMostKeys + index_of(key)];
  }
  return weights;
}

TensorRef ref_of(const Tensor& tensor) {
  return {tensor.data, tensor.stride_batch, tensor.stride_row, tensor.stride_head};
}

Own params_of(const Problem& p, const Tensors& tensors) {
  const auto bound = [](std::int64_t window) {
    return window < 0 ? kOpenWindow : static_cast<int>(window);
  };
  Own params{};
  FwdParams& fwd = params.fwd;
  fwd.batch = static_cast<int>(p.batch);
  fwd.num_heads_q = static_cast<int>(p.num_heads_q);
  fwd.num_heads_kv = static_cast<int>(p.num_heads_kv);
  fwd.seqlen_q = static_cast<int>(p.seqlen_q), fwd.seqlen_kv = static_cast<int>(p.seqlen_kv);
  fwd.window_left = bound(p.window_left);
  fwd.window_right = p.causal ? 0 : bound(p.window_right);
  fwd.softmax_scale = effective_softmax_scale(p);
  if (p.softcap != 0.0f) fwd.softcap_to_x = fwd.softmax_scale / p.softcap;
  fwd.q = ref_of(tensors.q), fwd.k = ref_of(tensors.k);
  fwd.lse = tensors.lse.data;
  fwd.lse_stride_batch = tensors.lse.stride_batch;
  fwd.lse_stride_head = tensors.lse.stride_head;
  params.lengths.q = tensors.lengths.q, params.lengths.kv = tensors.lengths.kv;
  params.pages.table = tensors.pages.table;
  params.pages.stride_batch = tensors.pages.stride_batch;
  params.pages.num_pages = static_cast<int>(tensors.pages.num_pages);
  params.mask.row_begin = tensors.block_mask.row_begin;
  params.mask.columns = tensors.block_mask.columns;
  params.mask.mask_heads = static_cast<int>(p.mask_heads);
  params.mask.mask_batch = static_cast<int>(p.mask_batch);
  params.mask.q_blocks = static_cast<int>(mask_blocks(p).q);
  return params;
}

/// What the kernel writes, with `gap` elements after each row of its output, which stay as they
/// are. `failure` is what went wrong.
template <WeightsConfig C>
std::vector<float> written(Own params, std::int64_t rows, int gap, std::string& failure) {
  const FwdParams& p = params.fwd;
  const std::int64_t pitch = p.seqlen_kv + gap, heads = std::int64_t{p.batch} * p.num_heads_q;
  std::vector<float> to(index_of(heads * rows * pitch), std::numeric_limits<float>::quiet_NaN());
  params.to = to.data();
  params.stride_row = pitch, params.stride_head = rows * pitch;
  params.stride_batch = params.stride_head * p.num_heads_q;
  const std::int64_t tiles = ceil_div(p.seqlen_kv, C.kKeys) *
                             (C.sums ? 1 : ceil_div(static_cast<int>(rows), C.kRows));
  test::Machine machine{.late = false, .slow_warp = 1};
  failure = test::run_together(machine, static_cast<unsigned>(heads * tiles), C.kThreads,
                               static_cast<std::size_t>(C.smem_bytes()),
                               [&] { Weights<C, Pieces<C>, Own>::run(params); });
  std::vector<float> result;
  for (std::size_t i = 0; i < to.size(); ++i) {
    const bool is_gap = static_cast<std::int64_t>(i) % pitch >= p.seqlen_kv;
    EXPECT_EQ(std::isnan(to[i]), is_gap) << "element " << i;
    if (!is_gap) result.push_back(to[i]);
  }
  return result;
}

template <const Case& kCase>
void expect_weights() {
#ifdef ATTNFORGE_THREADS_OF_SYSTEM
  GTEST_SKIP() << "warps that wait for one another want threads that take turns";
#endif
  const Problem p = parse_problem(std::string("fwd lse head_dim=") +
                                  std::to_string(kCase.head_dim) + ":" + std::to_string(kMostKeys) +
                                  " alignment=" + std::to_string(kCase.alignment) + " " +
                                  kCase.words);
  SCOPED_TRACE(to_string(p));
  test::HostProblem host = test::make_host_problem(p, 5, test::Inputs::kNormal,
                                                   {.row = 1, .head = 1, .rows_after = 2});
  const std::vector<double> expected = expected_weights(host);
  const Tensors tensors = host.tensors();
  Own params = params_of(p, tensors);
  const std::int64_t heads = p.batch * p.num_heads_q, keys = p.seqlen_kv;
  std::string failure;
  const auto weight_of = [&](std::int64_t head, std::int64_t query, std::int64_t key) {
    return expected[index_of((head * p.seqlen_q + query) * keys + key)];
  };

  // ---- 1. All rows, and some of them ----
  params.num_rows = static_cast<int>(p.seqlen_q);
  const std::vector<float> all = written<config_of<kCase>(0)>(params, p.seqlen_q, 3, failure);
  ASSERT_EQ(failure, "");
  ASSERT_EQ(all.size(), expected.size());
  for (std::size_t i = 0; i < all.size(); ++i)
    ASSERT_NEAR(all[i], expected[i], 2e-5) << "element " << i;
  const std::vector<int> listed = {-1, 0, 2, 2, 1 << 20, -(1 << 20)};
  params.rows = listed.data(), params.num_rows = static_cast<int>(listed.size());
  const auto some = written<config_of<kCase>(0)>(params, std::ssize(listed), 0, failure);
  ASSERT_EQ(failure, "");
  for (std::int64_t head = 0; head < heads; ++head) {
    const std::int64_t queries = tensors.lengths.q == nullptr
                                     ? p.seqlen_q
                                     : tensors.lengths.q[head / p.num_heads_q];
    for (std::int64_t row = 0; row < std::ssize(listed); ++row) {
      const std::int64_t at = listed[index_of(row)], query = at < 0 ? at + queries : at;
      const bool is_query = query >= 0 && query < queries;
      for (std::int64_t key = 0; key < keys; ++key)
        ASSERT_NEAR(some[index_of((head * std::ssize(listed) + row) * keys + key)],
                    is_query ? weight_of(head, query, key) : 0.0, 2e-5)
            << "head " << head << ", row " << row << ", key " << key;
    }
  }

  // ---- 2. Sums over queries ----
  const std::vector<float> mass = written<config_of<kCase>(1)>(params, 1, 0, failure);
  ASSERT_EQ(failure, "");
  for (std::int64_t head = 0; head < heads; ++head)
    for (std::int64_t key = 0; key < keys; ++key) {
      double sum = 0;
      for (std::int64_t query = 0; query < p.seqlen_q; ++query) sum += weight_of(head, query, key);
      ASSERT_NEAR(mass[index_of(head * keys + key)], sum, 2e-5 * (1 + sum))
          << "head " << head << ", key " << key;
    }
}

constexpr Case kDense{"bf16 batch=2 num_heads=2:1 seqlen=70:130", kBf16, 72};
constexpr Case kCausal{"fp16 num_heads=2 seqlen=130:100 causal", kFp16, 128, 4};
constexpr Case kWindow{"fp32 num_heads=2:1 seqlen=90 window_left=20 window_right=7", kFp32, 40, 8};
constexpr Case kOddRows{"bf16 num_heads=2 seqlen=5:70", kBf16, 64, 2};
constexpr Case kCapped{"fp16 num_heads=3 seqlen=10:65 softcap=2 sinks causal", kFp16, 200, 16, 1};
constexpr Case kUsed{
    "bf16 batch=4 num_heads=2 seqlen=70:80 lengths=used causal", kBf16, 64, 16, 0, kUsedLengths};
constexpr Case kPaged{"fp16 batch=4 num_heads=4:2 seqlen=3:100 lengths=used page_size=16 causal",
                      kFp16,
                      64,
                      16,
                      0,
                      kUsedLengths,
                      16};
constexpr Case kBlocks{"bf16 num_heads=2 seqlen=100 blocks=32 mask_heads=2 density=0.4 causal",
                       kBf16,
                       64,
                       16,
                       0,
                       kFixedLengths,
                       0,
                       32};

TEST(WeightsOnTheHost, AreThoseOfTheReference) {
  expect_weights<kDense>();
  expect_weights<kCausal>();
  expect_weights<kWindow>();
  expect_weights<kOddRows>();
}
TEST(WeightsOnTheHost, CountSoftcapAndSinks) { expect_weights<kCapped>(); }
TEST(WeightsOnTheHost, AreZeroWhereASequenceHasNoRow) {
  expect_weights<kUsed>();
  expect_weights<kPaged>();
}
TEST(WeightsOnTheHost, AreZeroInBlocksThatAreNotPresent) { expect_weights<kBlocks>(); }

}  // namespace
}  // namespace attnforge
