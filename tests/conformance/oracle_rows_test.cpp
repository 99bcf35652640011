// oracle_rows_test.cpp - fwd_naive on lists of rows against the fp64 reference: every candidate of
// a tuning is compared with what it gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "reference/compare/outputs.h"
#include "runtime/compile/compiler.h"
#include "templates/oracle/fwd_naive/oracle.h"
#include "templates/registry.h"
#include "tests/conformance/gpu.h"

namespace attnforge {
namespace {

using namespace test;

/// Groups of one sequence, with queries in no order and some of them twice. The last group is short
/// if a group has several rows.
std::vector<ListedRow> some_rows(const Problem& problem, int group) {
  std::mt19937 random(5);
  const auto below = [&](std::int64_t end) {
    return static_cast<int>(random() % static_cast<unsigned>(end));
  };
  std::vector<ListedRow> rows;
  for (int i = 0; i < 13; ++i) {
    const int batch = below(problem.batch);
    for (int r = 0; r < group; ++r) rows.push_back({batch, below(problem.seqlen_q)});
  }
  rows.front().query = 0;
  rows.back().query = static_cast<int>(problem.seqlen_q) - 1;
  if (group > 1) rows.resize(rows.size() - 3);
  return rows;
}

TEST(OracleRows, AreRightWhereverTheyStandInTheProblem) {
  const std::string unusable = gpu_problem();
  if (!unusable.empty()) GTEST_SKIP() << unusable;
  const ScopedContext context(gpu_context());
  const Family& family = *find_family("fwd_naive");
  for (const char* text : {
           "fwd bf16 batch=3 num_heads=4:2 seqlen=77:133 head_dim=64 causal lse",
           "fwd fp16 batch=2 num_heads=3 seqlen=300 head_dim=40:72 window_left=17 window_right=5 "
           "softcap=20 lse alignment=2",
           "fwd bf16 batch=2 num_heads=8:2 seqlen=200 head_dim=128 layout=packed_qkv causal",
           "fwd bf16 o=fp32 batch=3 num_heads=4 seqlen=90:60 head_dim=64 causal lse rope=half",
           "fwd fp32 batch=2 num_heads=2 seqlen=150:260 head_dim=64 window_left=40 lse "
           "rope=interleaved rope_dim=32",
           "fwd bf16 batch=20 num_heads=8:2 seqlen=1:300 head_dim=64 layout=bhsd lse",
           "fwd bf16 batch=2 num_heads=2 seqlen=40:0 head_dim=64 lse",
           "fwd bf16 batch=3 num_heads=4:2 seqlen=77:133 head_dim=64 causal lse blocks=32:16 "
           "mask_bits mask_heads=2 mask_batch=3",
           "fwd fp16 batch=2 num_heads=2 seqlen=300 head_dim=40 lse blocks=128 density=0.3",
       }) {
    SCOPED_TRACE(text);
    const Problem problem = parse_problem(text);
    HostProblem host = make_host_problem(problem, 11);
    const GpuProblem gpu(host);
    for (const Candidate& candidate : candidates(family, problem, gpu_facts())) {
      SCOPED_TRACE(to_string(candidate.config));
      const std::vector<ListedRow> list = some_rows(problem, rows_per_block(candidate.config));
      const auto count = static_cast<std::int64_t>(list.size());
      std::vector<QueryRow> rows;
      for (std::int64_t head = 0; head < problem.num_heads_q; ++head) {
        for (const ListedRow& row : list) rows.push_back({row.batch, head, row.query});
      }
      Buffer on_device(list.size() * sizeof(ListedRow));
      on_device.copy_from_host(list.data(), on_device.size_bytes());
      Buffer o(rows.size() * static_cast<std::size_t>(problem.head_dim_v) *
               static_cast<std::size_t>(bytes_of(problem.dtype_o, 1))),
          lse(rows.size() * sizeof(float));
      o.fill8(0xff), lse.fill8(0xff);  // NaN in each dtype
      Tensors tensors = gpu.tensors;
      tensors.o = {.data = o.data(),
                   .stride_row = problem.head_dim_v,
                   .stride_head = count * problem.head_dim_v};
      tensors.lse.data = static_cast<float*>(lse.data());
      tensors.lse.stride_batch = 0;
      tensors.lse.stride_head = count;

      const Source source = family.render(candidate.config, problem);
      const Launch launch = launch_rows(candidate.config, problem,
                                        static_cast<const ListedRow*>(on_device.data()), count);
      const LoadedKernels kernels(compile(source, gpu_facts().arch).bytes, source, launch);
      check(driver().cuCtxSynchronize(), "wait for the uploads");
      const Stream stream;
      LoadedLaunch(launch, kernels).run(tensors, {}, stream.get());
      stream.synchronize();
      const Verdict verdict = compare_rows(problem, o.to_host<std::byte>().data(),
                                           lse.to_host<float>().data(),
                                           reference_attention(problem, host.tensors(), rows));
      EXPECT_TRUE(verdict.passed()) << to_string(verdict);
    }
  }
}

}  // namespace
}  // namespace attnforge
