// host_problem_test.cpp - the tensors that other tests are built on: poison where nobody may read,
// alarms where nobody may write, alignment no better than promised.
#include "tests/support/host_problem.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "reference/half.h"
#include "reference/sequences.h"

namespace attnforge::test {
namespace {

const char* const kProblems[] = {
    "fwd bf16 batch=2 num_heads=4:2 seqlen=5 head_dim=16 lse alignment=2",
    "fwd fp16 batch=2 num_heads=4:2 seqlen=5 head_dim=16 lse alignment=8 layout=bhsd",
    "fwd fp32 batch=2 num_heads=4:2 seqlen=5 head_dim=16 lse alignment=16 layout=packed_qkv",
};
const Gaps kGaps{.row = 3, .head = 1, .rows_after = 2};

std::int64_t last_element(const Problem& p, const Tensor& tensor, std::int64_t heads,
                          std::int64_t rows, int columns) {
  return (p.batch - 1) * tensor.stride_batch + (heads - 1) * tensor.stride_head +
         (rows - 1) * tensor.stride_row + columns - 1;
}

TEST(HostProblem, PointersAndStridesHaveTheAlignmentAndNoMore) {
  for (const char* text : kProblems) {
    HostProblem host = make_host_problem(parse_problem(text), 1, Inputs::kNormal, kGaps);
    for (const PlacedTensor& placed : {host.q, host.o}) {
      EXPECT_EQ(placed.offset_bytes % (2 * host.problem.alignment_bytes),
                host.problem.alignment_bytes)
          << text;
    }
    for (const PlacedTensor& placed : {host.q, host.k, host.v, host.o}) {
      const int bytes = bytes_of(host.problem.dtype_q, 1);
      for (const std::int64_t stride :
           {placed.strides.stride_batch, placed.strides.stride_row, placed.strides.stride_head}) {
        EXPECT_EQ(stride * bytes % host.problem.alignment_bytes, 0) << text;
      }
    }
  }
}

TEST(HostProblem, NothingButElementsIsFinite) {
  for (const char* text : kProblems) {
    HostProblem host = make_host_problem(parse_problem(text), 1, Inputs::kNormal, kGaps);
    const Problem& p = host.problem;
    std::int64_t finite = 0;
    for (int storage = 0; storage < 4; ++storage) {  // q, k, v, o
      const auto& bytes = host.storages[static_cast<std::size_t>(storage)];
      for (std::size_t i = 0; i < bytes.size() / static_cast<std::size_t>(bytes_of(p.dtype_q, 1));
           ++i) {
        finite += std::isfinite(
            load_element(p.dtype_q, bytes.data(), static_cast<std::int64_t>(i)));
      }
    }
    EXPECT_EQ(finite, p.batch * (p.num_heads_q + 2 * p.num_heads_kv) * p.seqlen_q * p.head_dim)
        << text;
  }
}

TEST(HostProblem, EveryByteOutsideTheOutputsIsWatched) {
  for (const char* text : kProblems) {
    HostProblem host = make_host_problem(parse_problem(text), 1, Inputs::kNormal, kGaps);
    const Problem& p = host.problem;
    const Tensors t = host.tensors();
    EXPECT_EQ(host.trespass(), "");
    // Elements may change.
    const std::int64_t last = last_element(p, t.o, p.num_heads_q, p.seqlen_q, p.head_dim_v);
    store_element(p.dtype_o, t.o.data, 0, 1.0f);
    store_element(p.dtype_o, t.o.data, last, 1.0f);
    t.lse.data[(p.batch - 1) * t.lse.stride_batch + p.seqlen_q - 1] = 1.0f;
    EXPECT_EQ(host.trespass(), "") << text;
    // What surrounds them may not: before, after, and in the gap that follows the first row of a
    // head.
    const std::int64_t gap = t.o.stride_head > t.o.stride_row
                                 ? p.head_dim_v
                                 : (p.num_heads_q - 1) * t.o.stride_head + p.head_dim_v;
    for (const std::int64_t at : {std::int64_t{-1}, last + 1, gap}) {
      host.poison_outputs();
      store_element(p.dtype_o, t.o.data, at, 1.0f);
      EXPECT_NE(host.trespass(), "") << text << " at " << at;
    }
    host.poison_outputs();
    t.lse.data[p.seqlen_q] = 1.0f;
    EXPECT_NE(host.trespass(), "") << text;
  }
}

TEST(HostProblem, LseThatNobodyWantsIsWatchedWhole) {
  HostProblem host = make_host_problem(
      parse_problem("fwd bf16 batch=1 num_heads=1 seqlen=5 head_dim=16"), 1);
  EXPECT_EQ(host.tensors().lse.data, nullptr);
  std::memset(host.storages[4].data() + host.lse.offset_bytes, 0, 4);
  EXPECT_NE(host.trespass(), "");
}

// ---- Of backward ----

const char* const kBackwardProblems[] = {
    "bwd bf16 batch=2 num_heads=4:2 seqlen=5 head_dim=16 alignment=2 dlse",
    "bwd fp16 batch=2 num_heads=4:2 seqlen=5 head_dim=16:24 alignment=8 layout=bhsd gradients=fp32",
    "bwd fp16 batch=2 num_heads=4:2 seqlen=5 head_dim=16 layout=packed_qkv accumulate",
    "bwd bf16 batch=4 num_heads=4:2 seqlen=5 head_dim=16 lengths=packed dlse accumulate",
};

TEST(HostProblem, OfBackwardHasTheForwardsOutputsAsInputs) {
  for (const char* text : kBackwardProblems) {
    HostProblem host = make_host_problem(parse_problem(text), 1, Inputs::kNormal, kGaps);
    const Tensors t = host.tensors();
    const Sequences sequences = sequences_of(host.problem, t);
    const Reference forward = reference_attention(host.problem, t, all_rows(sequences));
    for (std::size_t i = 0; i < forward.rows.size(); ++i) {
      const QueryRow row = place_of(sequences, forward.rows[i]);
      const std::int64_t of_lse = row.batch * t.lse.stride_batch + row.head * t.lse.stride_head +
                                  row.query;
      ASSERT_EQ(t.lse.data[of_lse], static_cast<float>(forward.lse[i])) << text;
      const std::int64_t of_o = row.batch * t.o.stride_batch + row.head * t.o.stride_head +
                                row.query * t.o.stride_row;
      const auto of_column = static_cast<float>(
          forward.o[i * static_cast<std::size_t>(forward.head_dim_v)]);
      ASSERT_EQ(load_element(host.problem.dtype_o, t.o.data, of_o),
                round_to(host.problem.dtype_o, of_column))
          << text;
    }
    EXPECT_EQ(t.gradients.dlse.data != nullptr, host.problem.dlse) << text;
  }
}

TEST(HostProblem, OfBackwardIsPoisonBesideElementsAndInGradients) {
  for (const char* text : kBackwardProblems) {
    HostProblem host = make_host_problem(parse_problem(text), 1, Inputs::kNormal, kGaps);
    const Problem& p = host.problem;
    const auto finite = [&](const PlacedTensor& placed, DType dtype) {
      const auto& bytes = host.storages[static_cast<std::size_t>(placed.storage)];
      std::int64_t count = 0;
      for (std::size_t i = 0; i < bytes.size() / static_cast<std::size_t>(bytes_of(dtype, 1)); ++i)
        count += std::isfinite(load_element(dtype, bytes.data(), static_cast<std::int64_t>(i)));
      return count;
    };
    std::int64_t queries = 0, keys = 0;
    for (const SequenceRows& rows : host.rows_q) queries += rows.count;
    for (const SequenceRows& rows : host.rows_kv) keys += rows.count;
    queries *= p.num_heads_q, keys *= p.num_heads_kv;
    EXPECT_EQ(finite(host.o, p.dtype_o), queries * p.head_dim_v) << text;
    EXPECT_EQ(finite(host.dout, p.dtype_o), queries * p.head_dim_v) << text;
    EXPECT_EQ(finite(host.dlse, DType::kFp32), queries) << text;
    const std::int64_t there = p.accumulate ? 1 : 0;
    EXPECT_EQ(finite(host.dq, gradient_dtype(p, p.dtype_q)), there * queries * p.head_dim) << text;
    EXPECT_EQ(finite(host.dk, gradient_dtype(p, p.dtype_k)), there * keys * p.head_dim) << text;
    EXPECT_EQ(finite(host.dv, gradient_dtype(p, p.dtype_v)), there * keys * p.head_dim_v) << text;
  }
}

TEST(HostProblem, EveryByteOutsideTheGradientsIsWatched) {
  for (const char* text : kBackwardProblems) {
    HostProblem host = make_host_problem(parse_problem(text), 1, Inputs::kNormal, kGaps);
    const Problem& p = host.problem;
    const Gradients g = host.tensors().gradients;
    EXPECT_EQ(host.trespass(), "") << text;
    const struct {
      const char* name;
      const Tensor& tensor;
      DType input;
      int columns;
    } tensors[] = {{"dq", g.dq, p.dtype_q, p.head_dim},
                   {"dk", g.dk, p.dtype_k, p.head_dim},
                   {"dv", g.dv, p.dtype_v, p.head_dim_v}};
    for (const auto& [name, tensor, input, columns] : tensors) {
      const DType dtype = gradient_dtype(p, input);
      store_element(dtype, tensor.data, 0, 2.0f);
      EXPECT_EQ(host.trespass(), "") << text;
      for (const std::int64_t at : {std::int64_t{-1}, std::int64_t{columns}}) {
        host.poison_outputs();
        store_element(dtype, tensor.data, at, 2.0f);
        EXPECT_EQ(host.trespass().substr(0, 2), name) << text << " at " << at;
      }
      host.poison_outputs();
      EXPECT_EQ(host.trespass(), "") << text;
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data) %
                    static_cast<std::uintptr_t>(p.alignment_bytes),
                0u);
    }
  }
}

TEST(HostProblem, SeedsDecideTheInputs) {
  const Problem problem = parse_problem(kProblems[0]);
  EXPECT_EQ(make_host_problem(problem, 1).storages, make_host_problem(problem, 1).storages);
  EXPECT_NE(make_host_problem(problem, 1).storages, make_host_problem(problem, 2).storages);
}

}  // namespace
}  // namespace attnforge::test
