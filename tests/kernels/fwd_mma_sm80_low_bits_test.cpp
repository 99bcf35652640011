// fwd_mma_sm80_low_bits_test.cpp - fwd_mma_sm80 on the host, of K and V of 8 and 4 bits, beside the
// oracle: each format with each kind of scale, in one piece and in pages.
#include <gtest/gtest.h>

#include <algorithm>
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
#include "fwd_mma_sm80/kernel.cuh"
#include "fwd_mma_sm80/low_bits.cuh"
#include "parts/lengths/used_lengths.cuh"
#include "parts/pages/keys.cuh"
#include "pieces/dense.cuh"
// clang-format on

namespace attnforge {
namespace {

struct Formats {
  int q, k, v, scale, head_dim, head_dim_v, zero = 0;
};
struct Tiles {
  int block_m, num_warps, block_n, step_n, stages, q_in_regs, pack_gqa;
};

constexpr FwdMmaSm80Config config_of(const Formats& f, const Tiles& t, int page_size) {
  FwdMmaSm80Config c{};
  c.dtype = c.dtype_o = f.q;
  c.dtype_k = f.k, c.dtype_v = f.v;
  c.kv_scale = f.scale, c.kv_zero = f.zero;
  c.head_dim = f.head_dim, c.head_dim_v = f.head_dim_v;
  c.right_bound = 1;
  c.lse = 1;
  c.alignment = 4;
  c.lengths = page_size == 0 ? kFixedLengths : kUsedLengths;
  c.page_size = page_size;
  c.block_m = t.block_m, c.num_warps = t.num_warps;
  c.block_n = t.block_n, c.step_n = t.step_n, c.stages = t.stages;
  c.q_in_regs = t.q_in_regs;
  c.blocks_per_sm = 1;
  c.pack_gqa = t.pack_gqa;
  c.head_dim_warps = 1;
  return c;
}

template <FwdMmaSm80Config C>
struct PagedPieces : DensePieces<C> {
  struct Order : DensePieces<C>::Order {
    static constexpr bool kMayBeEmpty = true;
  };
  using Lengths = UsedLengths;
  template <int kDtype>
  using Keys = PagedKeys<kDtype, C.page_size>;
};

std::string name_of(int dtype) { return std::string(to_string(static_cast<DType>(dtype))); }

template <FwdMmaSm80Config C>
Problem problem_of(int queries, int keys) {
  std::string words = "fwd q=" + name_of(C.dtype) + " o=" + name_of(C.dtype) +
                      " k=" + name_of(C.dtype_k) + " v=" + name_of(C.dtype_v) +
                      " kv_scale=" + std::string(to_string(static_cast<KvScale>(C.kv_scale))) +
                      (C.kv_zero ? " kv_zero" : "") +
                      " num_heads=4:2 causal lse alignment=4 seqlen=" + std::to_string(queries) +
                      ":" + std::to_string(keys) + " head_dim=" + std::to_string(C.head_dim) + ":" +
                      std::to_string(C.head_dim_v);
  words += C.page_size == 0 ? " batch=2"
                            : " batch=4 lengths=used page_size=" + std::to_string(C.page_size);
  return parse_problem(words);
}

TensorRef ref_of(const Tensor& tensor) {
  return {tensor.data, tensor.stride_batch, tensor.stride_row, tensor.stride_head};
}
/// Of blocks strides in bytes.
TensorRef ref_of_keys(const Tensor& tensor, DType dtype) {
  const auto stride = [dtype](std::int64_t elements) {
    return is_blocks(dtype) ? bytes_of(dtype, elements) : elements;
  };
  return {tensor.data, stride(tensor.stride_batch), stride(tensor.stride_row),
          stride(tensor.stride_head)};
}
TensorRef ref_of(const ScaleTensor& of) {
  return {const_cast<float*>(of.data), of.stride_batch, of.stride_row, of.stride_head};
}

using Own = WithScales<WithPages<WithLengths<FwdMmaSm80Params>>>;

template <FwdMmaSm80Config C>
Own params_of(const Problem& problem, const Tensors& tensors) {
  Own params{};
  params.fwd.batch = static_cast<int>(problem.batch);
  params.fwd.num_heads_q = static_cast<int>(problem.num_heads_q);
  params.fwd.num_heads_kv = static_cast<int>(problem.num_heads_kv);
  params.fwd.seqlen_q = static_cast<int>(problem.seqlen_q);
  params.fwd.seqlen_kv = static_cast<int>(problem.seqlen_kv);
  params.fwd.window_left = kOpenWindow;
  params.fwd.softmax_scale = effective_softmax_scale(problem);
  params.fwd.q = ref_of(tensors.q), params.fwd.k = ref_of_keys(tensors.k, problem.dtype_k);
  params.fwd.v = ref_of_keys(tensors.v, problem.dtype_v), params.fwd.o = ref_of(tensors.o);
  params.fwd.lse = tensors.lse.data;
  params.fwd.lse_stride_batch = tensors.lse.stride_batch;
  params.fwd.lse_stride_head = tensors.lse.stride_head;
  params.scales = {ref_of(tensors.k_scale), ref_of(tensors.v_scale)};
  params.lengths.q = tensors.lengths.q, params.lengths.kv = tensors.lengths.kv;
  params.pages.table = tensors.pages.table;
  params.pages.stride_batch = tensors.pages.stride_batch;
  params.pages.num_pages = static_cast<int>(tensors.pages.num_pages);
  const int heads = static_cast<int>(C.pack_gqa > 1 ? problem.num_heads_kv : problem.num_heads_q);
  params.order = {.m_blocks = ceil_div(static_cast<int>(problem.seqlen_q) * C.pack_gqa, C.block_m),
                  .heads = heads * static_cast<int>(problem.batch),
                  .heads_per_group = heads * static_cast<int>(problem.batch),
                  .heavy_last = 0};
  return params;
}

/// first_is_nan: so is the first row of q.
template <FwdMmaSm80Config C>
void expect_outputs(int queries, int keys, bool first_is_nan = false) {
#ifdef ATTNFORGE_THREADS_OF_SYSTEM
  GTEST_SKIP() << "warps that wait for one another want threads that take turns";
#endif
  static_assert(C.valid());
  using Pieces = std::conditional_t<C.page_size == 0, DensePieces<C>, PagedPieces<C>>;
  const Problem problem = problem_of<C>(queries, keys);
  test::HostProblem host = test::make_host_problem(problem, 5, test::Inputs::kNormal,
                                                   {.row = 1, .head = 1, .rows_after = 2});
  const Tensors tensors = host.tensors();
  if (first_is_nan) std::fill_n(static_cast<u16*>(tensors.q.data), C.head_dim, u16{0x7fff});
  const Reference expected = reference_attention(problem, tensors, 1);
  const Own params = params_of<C>(problem, tensors);
  for (const test::Pace& pace : test::kPaces) {
    SCOPED_TRACE(to_string(problem) + ", " + pace.name);
    host.poison_outputs();
    test::Machine machine{.late = pace.late, .slow_warp = pace.slow_warp};
    const auto blocks = static_cast<unsigned>(params.order.m_blocks * params.order.heads);
    const std::string failure = test::run_together(
        machine, blocks, static_cast<unsigned>(C.num_threads()),
        static_cast<std::size_t>(C.smem_bytes()), [&] { FwdMmaSm80<C, Pieces, Own>::run(params); });
    ASSERT_EQ(failure, "");
    const Verdict verdict = compare(problem, tensors, expected);
    EXPECT_TRUE(verdict.passed()) << to_string(verdict);
    EXPECT_EQ(host.trespass(), "");
  }
}

constexpr Tiles kOneWarpAHead = {32, 2, 32, 32, 2, 1, 2}, kTwoWarpsARow = {16, 2, 32, 16, 2, 0, 2},
                kHalfARow = {8, 2, 64, 32, 2, 1, 2}, kFourWarpsHalfARow = {8, 4, 64, 16, 3, 0, 2},
                kPairsOfWarps = {32, 4, 64, 32, 2, 2, 2}, kSteps = {64, 2, 64, 32, 3, 2, 1},
                kOneStage = {32, 2, 48, 48, 1, 0, 1};

template <int kK, int kV, int kScale, Tiles kTiles, int kPage = 16, int kQ = kBf16, int kDim = 64,
          int kDimV = kDim, int kZero = 0>
void expect_low_bits(int queries = 5, int keys = 90) {
  expect_outputs<config_of({kQ, kK, kV, kScale, kDim, kDimV, kZero}, kTiles, kPage)>(queries, keys);
}
/// Of int4 with zero points.
template <int kScale, Tiles kTiles, int kPage = 16, int kQ = kBf16, int kDim = 64, int kDimV = kDim,
          int kK = kInt4, int kV = kInt4>
void expect_zeros(int queries = 5, int keys = 90) {
  expect_low_bits<kK, kV, kScale, kTiles, kPage, kQ, kDim, kDimV, 1>(queries, keys);
}

TEST(FwdMmaOfLowBits, FormatsOfScalesOfRows) {
  expect_low_bits<kInt8, kInt8, kScaleToken, kOneWarpAHead>();
  expect_low_bits<kInt4, kInt4, kScaleToken, kOneWarpAHead>();
  expect_low_bits<kE4m3, kE4m3, kScaleToken, kOneWarpAHead>();
  expect_low_bits<kE5m2, kE5m2, kScaleToken, kOneWarpAHead, 16, kFp16>();
}
TEST(FwdMmaOfLowBits, FormatsOfOneScale) {
  expect_low_bits<kInt8, kInt8, kScaleHead, kTwoWarpsARow, 0>();
  expect_low_bits<kInt4, kInt4, kScaleTensor, kTwoWarpsARow, 0, kFp16>();
  expect_low_bits<kE4m3, kE5m2, kNoScale, kTwoWarpsARow, 16, kFp16>();
  expect_low_bits<kE5m2, kInt8, kScaleHead, kTwoWarpsARow, 16>();
}
TEST(FwdMmaOfLowBits, Groups) {
  expect_low_bits<kInt8, kInt8, kScaleGroup32, kOneWarpAHead>();
  expect_low_bits<kInt4, kInt4, kScaleGroup32, kTwoWarpsARow, 24>();
  expect_low_bits<kInt4, kInt4, kScaleGroup32 + 1, kOneWarpAHead, 8, kFp16, 128>();
  expect_low_bits<kInt4, kE4m3, kScaleGroup32, kSteps, 0, kBf16, 96, 40>(70, 100);
  expect_low_bits<kInt8, kInt4, kScaleGroup32 + 1, kTwoWarpsARow, 16, kBf16, 128>();
  expect_low_bits<kE5m2, kInt8, kScaleGroup32, kSteps, 0, kBf16, 64, 160>(70, 100);
  expect_low_bits<kInt8, kInt4, kScaleGroup32, kHalfARow, 16, kBf16, 64, 288>();
}
TEST(FwdMmaOfLowBits, EightRows) {
  expect_low_bits<kInt8, kInt8, kScaleToken, kHalfARow>();
  expect_low_bits<kInt4, kInt4, kScaleGroup32, kHalfARow, 24, kFp16, 128>(3);
  expect_low_bits<kE4m3, kInt8, kScaleHead, kHalfARow, 0, kBf16, 72>(9);
  expect_low_bits<kInt8, kE5m2, kScaleToken, kFourWarpsHalfARow>(4, 200);
  expect_low_bits<kInt4, kInt4, kScaleToken, kFourWarpsHalfARow, 16, kFp16, 104, 72>(2, 10);
}
TEST(FwdMmaOfLowBits, ARowThatSeesNoKeyGivesZerosEvenOfNan) {
  expect_outputs<config_of({kBf16, kInt8, kInt8, kScaleToken, 64, 64}, kHalfARow, 0)>(2, 1, true);
  expect_outputs<config_of({kFp16, kInt4, kE4m3, kScaleToken, 64, 64}, kTwoWarpsARow, 0)>(3, 2,
                                                                                          true);
}
TEST(FwdMmaOfLowBits, PairsOfWarps) {
  expect_low_bits<kInt8, kInt4, kScaleGroup32, kPairsOfWarps>(20, 150);
  expect_low_bits<kE4m3, kInt8, kScaleTensor, kPairsOfWarps, 0>(20, 150);
}
TEST(FwdMmaOfLowBits, Blocks) {
  expect_low_bits<kQ8_0, kQ8_0, kNoScale, kOneWarpAHead>();
  expect_low_bits<kQ4_0, kQ4_0, kNoScale, kTwoWarpsARow, 24, kFp16>();
  expect_low_bits<kQ8_0, kQ4_0, kNoScale, kHalfARow, 16, kBf16, 128>(3, 200);
  expect_low_bits<kQ4_0, kQ8_0, kNoScale, kSteps, 0, kBf16, 96, 64>(70, 150);
  expect_low_bits<kQ8_0, kQ8_0, kNoScale, kFourWarpsHalfARow, 8, kFp16, 32, 96>(4, 200);
  expect_low_bits<kQ4_0, kQ4_0, kNoScale, kOneStage, 16, kBf16, 32>(40, 100);
}
TEST(FwdMmaOfLowBits, BlocksBesideSixteenBits) {
  expect_low_bits<kQ8_0, kBf16, kNoScale, kOneWarpAHead>();
  expect_low_bits<kFp16, kQ4_0, kNoScale, kTwoWarpsARow, 0, kFp16, 64, 160>();
}
TEST(FwdMmaOfLowBits, OneOfThemAlone) {
  expect_low_bits<kInt8, kBf16, kScaleToken, kOneWarpAHead>();
  expect_low_bits<kFp16, kInt4, kScaleGroup32, kTwoWarpsARow, 0, kFp16>();
}
TEST(FwdMmaOfLowBits, PagesOfFewRows) {
  expect_low_bits<kInt8, kBf16, kScaleToken, kOneWarpAHead, 1>();
  expect_low_bits<kInt8, kInt4, kScaleGroup32, kTwoWarpsARow, 1>();
  expect_low_bits<kE4m3, kInt8, kScaleToken, kHalfARow, 2>();
  expect_low_bits<kFp16, kInt4, kScaleToken, kSteps, 4, kFp16>(40, 100);
}
TEST(FwdMmaOfLowBits, TilesAndHeadDims) {
  expect_low_bits<kInt8, kInt8, kScaleToken, kSteps, 0>(100, 150);
  expect_low_bits<kInt4, kInt4, kScaleToken, kOneStage, 16>(40, 100);
  expect_low_bits<kInt8, kInt8, kScaleToken, kOneStage, 16, kBf16, 72>(40, 100);
  expect_low_bits<kInt4, kInt4, kScaleGroup32, kOneWarpAHead, 16, kBf16, 40, 72>();
  expect_low_bits<kE4m3, kInt4, kScaleToken, kOneWarpAHead, 0, kFp16, 8, 24>();
  expect_low_bits<kInt4, kInt8, kScaleToken, kTwoWarpsARow, 16, kBf16, 80, 88>();
}
TEST(FwdMmaOfLowBits, ZeroPointsOfRows) {
  expect_zeros<kScaleToken, kOneWarpAHead>();
  expect_zeros<kScaleToken, kTwoWarpsARow, 0, kFp16, 128>();
  expect_zeros<kScaleToken, kHalfARow, 24>(3, 200);
  expect_zeros<kScaleToken, kSteps, 0, kBf16, 96, 40>(70, 150);
  expect_zeros<kScaleToken, kOneStage, 16, kFp16, 40, 72>(40, 100);
}
TEST(FwdMmaOfLowBits, ZeroPointsOfGroups) {
  expect_zeros<kScaleGroup32, kOneWarpAHead>();
  expect_zeros<kScaleGroup32, kTwoWarpsARow, 24, kFp16, 40, 72>();
  expect_zeros<kScaleGroup32 + 1, kOneWarpAHead, 8, kBf16, 128>();
  expect_zeros<kScaleGroup32, kHalfARow, 16, kBf16, 128, 288>(3, 200);
  expect_zeros<kScaleGroup32 + 2, kSteps, 0, kFp16, 160, 128>(40, 100);
  expect_zeros<kScaleGroup32, kPairsOfWarps>(20, 150);
}
TEST(FwdMmaOfLowBits, ZeroPointsOfOneOfThem) {
  expect_zeros<kScaleToken, kOneWarpAHead, 16, kBf16, 64, 64, kInt4, kBf16>();
  expect_zeros<kScaleGroup32, kTwoWarpsARow, 0, kFp16, 64, 96, kFp16, kInt4>();
}

/// Integers of V are summed with an offset of 128, or 8, and the mean of many keys is near 0.
template <int kV, int kScale>
void expect_bits_left() {
#ifdef ATTNFORGE_THREADS_OF_SYSTEM
  GTEST_SKIP() << "warps that wait for one another want threads that take turns";
#endif
  constexpr FwdMmaSm80Config kConfig = config_of({kFp16, kFp16, kV, kScale, 16, 32}, kTwoWarpsARow,
                                                 0);
  const Problem problem = problem_of<kConfig>(1, 40000);
  test::HostProblem host = test::make_host_problem(problem, 5, test::Inputs::kNormal, {});
  const Tensors tensors = host.tensors();
  const Reference expected = reference_attention(problem, tensors, 1);
  const Own params = params_of<kConfig>(problem, tensors);
  test::Machine machine;
  const std::string failure = test::run_together(
      machine, static_cast<unsigned>(params.order.m_blocks * params.order.heads),
      static_cast<unsigned>(kConfig.num_threads()), static_cast<std::size_t>(kConfig.smem_bytes()),
      [&] { FwdMmaSm80<kConfig, DensePieces<kConfig>, Own>::run(params); });
  ASSERT_EQ(failure, "");
  double wrong = 0, all = 0;
  for (std::size_t i = 0; i < expected.o.size(); ++i) {
    const double got = load_element(DType::kFp16, tensors.o.data, static_cast<std::int64_t>(i));
    wrong += (got - expected.o[i]) * (got - expected.o[i]);
    all += expected.o[i] * expected.o[i];
  }
  EXPECT_LT(std::sqrt(wrong / all), 4e-4) << "o in fp16 itself is off by 2^-12";
}
TEST(FwdMmaOfLowBits, OffsetsOfManyKeysLeaveTheOutputItsBits) {
  expect_bits_left<kInt8, kScaleToken>();
  expect_bits_left<kInt4, kScaleGroup32>();
}

/// All numbers of a format, beside the host's: integers with their offset, times 2^-24, and every
/// other one of 4 bits 16 times larger.
template <int kCode>
void expect_exact() {
  using Widened = Widen<kCode>;
  constexpr DType kFormat = static_cast<DType>(kCode);
  const int per_word = 32 / element_bits(kCode), numbers = 1 << element_bits(kCode);
  for (int first = 0; first < numbers; ++first) {
    u32 word = 0, pairs[Widened::kPairs];
    for (int i = 0; i < per_word; ++i)
      word |= u32((first + 37 * i) % numbers) << (i * element_bits(kCode));
    Widened::run(word, pairs);
    for (int i = 0; i < per_word; ++i) {
      float wanted = load_element(kFormat, &word, i);
      if (is_integer(kCode)) {
        wanted = wanted * 0x1p-24f - of_half<kFp16>(Widened::kMinusOffset & 0xffffu);
        if (kCode == kInt4 && i % 2 == 1) wanted *= 16;
      }
      const u32 pair = pairs[i % (per_word / 2)];
      const float got = of_half<kFp16>(i < per_word / 2 ? pair & 0xffffu : pair >> 16);
      if (std::isnan(wanted))
        EXPECT_TRUE(std::isnan(got)) << std::hex << word << " " << i;
      else
        EXPECT_EQ(got, wanted) << std::hex << word << " " << i;
    }
  }
}
TEST(Widen, IsExact) {
  expect_exact<kInt8>(), expect_exact<kInt4>();
  expect_exact<kE4m3>(), expect_exact<kE5m2>();
}

}  // namespace
}  // namespace attnforge
