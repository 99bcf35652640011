// widening_test.cpp - the step that writes k and v of fewer bits in q's dtype, on the host: each
// format with each kind of scale, in one piece, packed and in pages, to the bit; and what attention
// makes of rows that were rounded so, within the tolerance.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <variant>
#include <vector>

#include "attnforge/problem.h"
#include "generator/arch.h"
#include "generator/candidates.h"
#include "reference/compare/outputs.h"
#include "reference/half.h"
#include "reference/parts/scales.h"
#include "reference/sequences.h"
#include "runtime/bind_arguments.h"
#include "templates/parts/widening/host.h"
#include "templates/registry.h"
#include "tests/support/host_problem.h"

// clang-format off
#include "tests/support/host_grid.h"
#include "parts/widening/step_widen.cuh"
#include "generator/shape.h"
#include "tests/support/argument_fields.h"
// clang-format on

namespace attnforge {
namespace {

using test::HostProblem, test::Inputs;
using Operand = TensorMapSpec::Operand;

/// What the step is compiled for, of a problem without masks and the like.
struct Formats {
  int q, k, v, scale, head_dim, head_dim_v, zero = 0;
};
constexpr Shape shape_of_step(const Formats& f, int lengths, int page_size) {
  Shape c{};
  c.dtype = c.dtype_o = f.q;
  c.dtype_k = f.k, c.dtype_v = f.v;
  c.kv_scale = f.scale, c.kv_zero = f.zero;
  c.head_dim = f.head_dim, c.head_dim_v = f.head_dim_v;
  c.alignment = 16;
  c.lengths = lengths;
  c.page_size = page_size;
  return c;
}

std::string words_of(const Shape& c) {
  const auto name = [](int dtype) { return std::string(to_string(static_cast<DType>(dtype))); };
  const char* const lengths[] = {"", " lengths=packed", " lengths=used"};
  return "fwd q=" + name(c.dtype) + " o=" + name(c.dtype) + " k=" + name(c.dtype_k) +
         " v=" + name(c.dtype_v) +
         " kv_scale=" + std::string(to_string(static_cast<KvScale>(c.kv_scale))) +
         (c.kv_zero ? " kv_zero" : "") + " head_dim=" + std::to_string(c.head_dim) + ":" +
         std::to_string(c.head_dim_v) + lengths[c.lengths] +
         (c.page_size == 0 ? "" : " page_size=" + std::to_string(c.page_size));
}

/// The launch of the first config, and the workspace after its first step.
struct Widened {
  Launch launch;
  std::vector<std::byte> workspace;

  const std::byte* at(std::size_t begin) const { return workspace.data() + begin; }
};

template <Shape C>
Widened widened_by_step(const Problem& problem, const Tensors& tensors) {
  constexpr std::byte kUnwritten{0xa5};
  constexpr std::size_t kGuard = 4096;
  const DeviceFacts& device = typical_device("90a");
  const Family& family = *find_family("fwd_wgmma_sm90a");
  const Config config = candidates(family, problem, device).at(0).config;
  Widened result{family.launch(config, problem, device), {}};
  const std::size_t bytes = result.launch.workspace_bytes;
  result.workspace.assign(bytes + kGuard, kUnwritten);
  LaunchStep step = result.launch.steps.at(0);
  EXPECT_EQ(step.kernel, "widen_k_and_v");
  EXPECT_EQ(test::argument_fault(step), "");
  bind_arguments(step.args, step.from_workspace, tensors, {.workspace = result.workspace.data()},
                 step.params);
  WideningParams params{};
  EXPECT_EQ(step.params.size(), sizeof(params));
  std::memcpy(&params, step.params.data(), sizeof(params));
  EXPECT_EQ(step.block.x, unsigned{WidenKeys<C>::kThreads});
  test::run_on_host(step.grid.x, step.block.x, [&] { WidenKeys<C>::run(params); });
  for (std::size_t i = bytes; i < result.workspace.size(); ++i)
    EXPECT_EQ(result.workspace[i], kUnwritten) << "after the workspace's end";
  return result;
}

/// Where the kernel after the step finds the table of a problem whose pages are in the workspace.
const int* own_table(const Widened& widened) {
  for (const auto& [offset, scratch] : test::parts_of<ScratchArgument>(widened.launch.steps[0])) {
    if (offset == offsetof(WideningParams, own_table))
      return reinterpret_cast<const int*>(
          widened.at(test::planned_at<std::size_t>(widened.launch.steps[0], offset)));
  }
  return nullptr;
}

/// A row of k or v in the workspace, as the kernel after the step addresses it.
const std::byte* row_of(const Problem& problem, const Tensors& tensors, const Widened& widened,
                        const ScratchTensor& of, std::int64_t sequence, std::int64_t head,
                        std::int64_t key) {
  std::int64_t batch = sequence, row = key;
  if (has_packed_keys(problem)) batch = 0, row += tensors.lengths.kv[sequence];
  if (const int* const table = own_table(widened)) {
    const std::int64_t page_rows = attnforge::widened(problem).page_size;
    batch = table[sequence * pages_of_sequence(attnforge::widened(problem)) + key / page_rows];
    row = key % page_rows;
  }
  return widened.at(of.begin) +
         2 * (batch * of.stride_batch + row * of.stride_row + head * of.stride_head);
}

void expect_rows(const Problem& problem, const Tensors& tensors, const Widened& widened,
                 const ScratchTensor& of) {
  const bool of_v = of.operand == Operand::kV;
  const DType dtype = of_v ? problem.dtype_v : problem.dtype_k;
  const int columns = of_v ? problem.head_dim_v : problem.head_dim;
  std::vector<double> exact(static_cast<std::size_t>(columns));
  std::int64_t rows = 0, wrong = 0;
  for (std::int64_t i = 0; i < problem.batch; ++i) {
    const Sequence sequence = sequence_of(problem, tensors, i);
    const Tensor& tensor = of_v ? sequence.tensors.v : sequence.tensors.k;
    const ScaleTensor& scales = of_v ? sequence.tensors.v_scale : sequence.tensors.k_scale;
    for (std::int64_t head = 0; head < problem.num_heads_kv; ++head) {
      for (std::int64_t key = 0; key < sequence.problem.seqlen_kv; ++key, ++rows) {
        load_row(sequence.problem, dtype, sequence.problem.kv_scale, tensor.data,
                 offset_of(tensor, {0, head, key}), scales, 0, key, head, columns, exact.data());
        const std::byte* const got = row_of(problem, tensors, widened, of, i, head, key);
        for (int d = 0; d < columns; ++d) {
          const float wanted = round_to(problem.dtype_q, static_cast<float>(exact[size_t(d)]));
          const float is = load_element(problem.dtype_q, got, d);
          if (is == wanted || (std::isnan(is) && std::isnan(wanted))) continue;
          if (wrong++ < 5)
            ADD_FAILURE() << of.operand.name << " sequence " << i << " head " << head << " key "
                          << key << " column " << d << ": " << is << ", not " << wanted;
        }
      }
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(rows, 0);
}

template <Shape C>
void expect_widened(const std::string& sizes = "batch=5 num_heads=6:3 seqlen=40:150",
                    const test::Gaps& gaps = {}) {
#ifdef ATTNFORGE_THREADS_OF_SYSTEM
  GTEST_SKIP() << "thousands of threads";
#endif
  const Problem problem = parse_problem(words_of(C) + " " + sizes);
  SCOPED_TRACE(to_string(problem));
  EXPECT_TRUE(shape_of(problem) == C);
  HostProblem host = test::make_host_problem(problem, 3, Inputs::kNormal, gaps);
  const Tensors tensors = host.tensors();
  const Widened widened = widened_by_step<C>(problem, tensors);
  const LaunchStep& kernel = widened.launch.steps.back();
  std::size_t moved = 0;
  for (const DType dtype : {problem.dtype_k, problem.dtype_v})
    moved += is_low_bit(dtype) || has_pages(problem);
  ASSERT_EQ(kernel.from_workspace.size(), moved);
  for (const ScratchTensor& of : kernel.from_workspace) expect_rows(problem, tensors, widened, of);
}

constexpr int kPacked = kPackedLengths, kUsed = kUsedLengths, kFixed = kFixedLengths;

TEST(WidenedKeys, OfEachFormatWithEachScale) {
  expect_widened<shape_of_step({kBf16, kInt8, kInt8, kScaleToken, 128, 128}, kFixed, 0)>();
  expect_widened<shape_of_step({kFp16, kInt8, kInt8, kScaleGroup32, 64, 64}, kUsed, 16)>();
  expect_widened<shape_of_step({kBf16, kInt8, kInt8, kNoScale, 64, 64}, kPacked, 0)>();
  expect_widened<shape_of_step({kBf16, kInt4, kInt4, kScaleGroup32 + 1, 128, 128}, kPacked, 16)>();
  expect_widened<shape_of_step({kFp16, kInt4, kInt4, kScaleTensor, 64, 64}, kFixed, 0)>();
  expect_widened<shape_of_step({kBf16, kInt4, kInt4, kScaleToken, 64, 64}, kPacked, 0)>();
  expect_widened<shape_of_step({kBf16, kE4m3, kE4m3, kScaleHead, 128, 128}, kPacked, 0)>();
  expect_widened<shape_of_step({kFp16, kE4m3, kE4m3, kNoScale, 64, 64}, kPacked, 64)>();
  expect_widened<shape_of_step({kBf16, kE4m3, kE4m3, kScaleGroup32 + 2, 256, 256}, kUsed, 0)>();
  expect_widened<shape_of_step({kFp16, kE5m2, kE5m2, kScaleHead, 64, 64}, kPacked, 16)>();
  expect_widened<shape_of_step({kBf16, kE5m2, kE5m2, kScaleTensor, 96, 96}, kUsed, 16)>();
  expect_widened<shape_of_step({kFp16, kE5m2, kE5m2, kScaleToken, 64, 64}, kUsed, 0)>();
}
TEST(WidenedKeys, OfZeroPoints) {
  expect_widened<shape_of_step({kBf16, kInt4, kInt4, kScaleToken, 128, 128, 1}, kPacked, 16)>();
  expect_widened<shape_of_step({kFp16, kInt4, kInt4, kScaleGroup32, 96, 40, 1}, kFixed, 0)>(
      "batch=3 num_heads=2 seqlen=17:90", {.row = 4, .head = 2, .rows_after = 2});
  expect_widened<shape_of_step({kBf16, kBf16, kInt4, kScaleGroup32 + 1, 64, 128, 1}, kUsed, 24)>();
}
TEST(WidenedKeys, OfKAndVThatDiffer) {
  expect_widened<shape_of_step({kBf16, kE4m3, kInt4, kScaleGroup32 + 1, 192, 128}, kUsed, 24)>();
  expect_widened<shape_of_step({kFp16, kInt8, kE5m2, kScaleToken, 40, 72}, kFixed, 0)>(
      "batch=3 num_heads=2 seqlen=17:90", {.row = 1, .head = 1, .rows_after = 2});
}
TEST(WidenedKeys, OfOneAloneLeaveTheOtherButInPages) {
  expect_widened<shape_of_step({kBf16, kInt8, kBf16, kScaleToken, 64, 64}, kUsed, 0)>();
  expect_widened<shape_of_step({kFp16, kFp16, kInt4, kScaleHead, 64, 64}, kUsed, 16)>();
  expect_widened<shape_of_step({kBf16, kBf16, kE4m3, kScaleToken, 64, 96}, kPacked, 8)>();
}
TEST(WidenedKeys, OfMoreThanABlock) {
  expect_widened<shape_of_step({kBf16, kInt8, kInt8, kScaleToken, 64, 64}, kPacked, 1)>(
      "batch=3 num_heads=2:1 seqlen=60:700");
  expect_widened<shape_of_step({kBf16, kInt4, kE4m3, kScaleHead, 64, 64}, kUsed, 48)>(
      "batch=2 num_heads=10:5 seqlen=60:333", {.row = 1, .head = 1, .rows_after = 3});
}

TEST(WidenedKeys, OfMoreColumnsThanABlockHasThreadsFor) {
  expect_widened<shape_of_step({kBf16, kInt8, kE4m3, kScaleGroup32, 256, 256}, kUsed, 0)>(
      "batch=2 num_heads=10 seqlen=17:40");
}

/// Numbers whose product with the scale fp16 does not hold are its largest; infinity stays.
TEST(WidenedKeys, OfFp16StayFinite) {
  constexpr Shape kShape = shape_of_step({kFp16, kE5m2, kE5m2, kScaleTensor, 8, 8}, kFixed, 0);
  const Problem problem = parse_problem(words_of(kShape) + " num_heads=1 seqlen=20:3");
  HostProblem host = test::make_host_problem(problem, 1);
  const Tensors tensors = host.tensors();
  tensors.k_scale.data[0] = 4.0f;
  const float numbers[] = {57344, -57344, 16384, -14336, INFINITY, -INFINITY, 0, 1};
  for (int d = 0; d < 8; ++d) store_element(DType::kE5m2, tensors.k.data, d, numbers[d]);
  const Widened widened = widened_by_step<kShape>(problem, tensors);
  const ScratchTensor& k = widened.launch.steps.back().from_workspace.at(0);
  const float wanted[] = {65504, -65504, 65504, -57344, INFINITY, -INFINITY, 0, 4};
  for (int d = 0; d < 8; ++d)
    EXPECT_EQ(load_element(DType::kFp16, widened.at(k.begin), d), wanted[d]) << d;
}

// ---- Attention of rounded rows ----

/// Row by row of a tensor of `heads` heads, contiguous, rounded to q's dtype.
std::vector<std::byte> rounded(const Sequence& sequence, DType dtype, const Tensor& tensor,
                               const ScaleTensor& scales, int columns) {
  const Problem& p = sequence.problem;
  std::vector<std::byte> rows(static_cast<std::size_t>(2 * p.seqlen_kv * p.num_heads_kv * columns));
  std::vector<double> exact(static_cast<std::size_t>(columns));
  for (std::int64_t key = 0, at = 0; key < p.seqlen_kv; ++key) {
    for (std::int64_t head = 0; head < p.num_heads_kv; ++head) {
      load_row(p, dtype, p.kv_scale, tensor.data, offset_of(tensor, {0, head, key}), scales, 0, key,
               head, columns, exact.data());
      for (const double x : exact)
        store_element(p.dtype_q, rows.data(), at++, static_cast<float>(x));
    }
  }
  return rows;
}

/// The outputs of `expected`'s rows in exact sums of rounded k and v, rounded; how much of what is
/// allowed they are off by.
double share_of_tolerance(const Problem& problem, Inputs inputs) {
  HostProblem host = test::make_host_problem(problem, 11, inputs);
  const Tensors tensors = host.tensors();
  const Reference expected = reference_attention(problem, tensors);
  std::vector<float> o(expected.o.size()), lse(expected.rows.size());
  for (std::int64_t i = 0; i < problem.batch; ++i) {
    Sequence sequence = sequence_of(problem, tensors, i);
    const Problem& p = sequence.problem;
    const auto k = rounded(sequence, p.dtype_k, sequence.tensors.k, sequence.tensors.k_scale,
                           p.head_dim),
               v = rounded(sequence, p.dtype_v, sequence.tensors.v, sequence.tensors.v_scale,
                           p.head_dim_v);
    const auto seen = [&](const std::vector<std::byte>& rows, int columns) {
      return Tensor{const_cast<std::byte*>(rows.data()), 0, p.num_heads_kv * columns, columns};
    };
    sequence.tensors.k = seen(k, p.head_dim), sequence.tensors.v = seen(v, p.head_dim_v);
    std::vector<QueryRow> rows;
    std::vector<std::size_t> at;
    for (std::size_t r = 0; r < expected.rows.size(); ++r) {
      if (expected.rows[r].batch != i) continue;
      rows.push_back({0, expected.rows[r].head, expected.rows[r].query});
      at.push_back(r);
    }
    const Reference of_rounded = reference_attention(widened(p), sequence.tensors, rows);
    const auto columns = static_cast<std::size_t>(problem.head_dim_v);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      lse[at[r]] = static_cast<float>(of_rounded.lse[r]);
      for (std::size_t d = 0; d < columns; ++d)
        o[at[r] * columns + d] = static_cast<float>(of_rounded.o[r * columns + d]);
    }
  }
  const Tolerance of_o = output_tolerance(problem, expected.max_abs_v),
                  of_lse = lse_tolerance(problem);
  double share = 0;
  const auto add = [&](double actual, double wanted, const Tolerance& tolerance, std::size_t row) {
    if (!std::isfinite(wanted)) return;
    share = std::max(
        share, std::abs(actual - wanted) / allowed_error(tolerance, wanted, expected.spread[row],
                                                         expected.score_magnitude[row],
                                                         expected.product_magnitude[row]));
  };
  for (std::size_t i = 0; i < o.size(); ++i)
    add(o[i], expected.o[i], of_o, i / static_cast<std::size_t>(problem.head_dim_v));
  for (std::size_t i = 0; i < lse.size(); ++i) add(lse[i], expected.lse[i], of_lse, i);
  return share;
}

TEST(AttentionOfWidenedKeys, IsWellWithinTheTolerance) {
  const struct {
    const char* name;
    Inputs inputs;
  } kinds[] = {{"normal", Inputs::kNormal},
               {"large", Inputs::kLarge},
               {"negative", Inputs::kStronglyNegative},
               {"positive", Inputs::kStronglyPositive},
               {"growing", Inputs::kGrowingToFirst}};
  for (const char* formats :
       {"bf16 k=int8 v=int8 kv_scale=token", "bf16 k=int8 v=int8 kv_scale=head",
        "fp16 k=int4 v=int4 kv_scale=group64", "bf16 k=e4m3 v=int4 kv_scale=head",
        "fp16 k=e5m2 v=e5m2 kv_scale=head", "bf16 k=int4 v=int4 kv_scale=group64 kv_zero"}) {
    for (const char* sizes :
         {" batch=1 num_heads=4:2 seqlen=20:333 head_dim=128 lse",
          " batch=2 num_heads=4:2 seqlen=18:200 head_dim=64 lse causal lengths=used "
          "page_size=16"}) {
      for (const auto& [name, inputs] : kinds) {
        const double share = share_of_tolerance(
            parse_problem("fwd " + std::string(formats) + sizes), inputs);
        EXPECT_LT(share, 0.8) << formats << sizes << " " << name;
      }
    }
  }
}

}  // namespace
}  // namespace attnforge
