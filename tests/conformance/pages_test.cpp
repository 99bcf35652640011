// pages_test.cpp - one captured run serves whatever lengths, tables and pages there are when it is
// replayed, and a table that is wrong for one sequence harms no other.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "reference/attention.h"
#include "reference/compare/outputs.h"
#include "reference/sequences.h"
#include "templates/registry.h"
#include "tests/conformance/proof.h"
#include "tests/support/captured_graph.h"

namespace attnforge {
namespace {

using namespace test;

const std::vector<const char*> kProblems = {
    "fwd bf16 batch=7 num_heads=8:2 seqlen=1:700 head_dim=128 lengths=used page_size=16 lse",
    "fwd fp16 batch=7 num_heads=4:2 seqlen=150:500 head_dim=64 lengths=used page_size=64 causal "
    "lse",
    "fwd bf16 batch=7 num_heads=8:2 seqlen=90:300 head_dim=64 lengths=packed page_size=16 causal "
    "lse",
    "fwd bf16 batch=7 num_heads=8:1 seqlen=3:300 head_dim=128 lengths=used page_size=24 lse",
    "fwd fp32 batch=7 num_heads=4:2 seqlen=9:300 head_dim=64 lengths=used page_size=8 lse"};

/// Of each family that serves the problem.
std::vector<Compiled> compile_each(const Problem& problem) {
  std::vector<Compiled> all;
  for (const Family* family : registry()) {
    for (Compiled& compiled : compile_some(*family, problem, 1, kConformanceSeed))
      all.push_back(std::move(compiled));
  }
  return all;
}

std::string fault_of(HostProblem& after, const Reference& expected) {
  const Verdict verdict = compare(after.problem, after.tensors(), expected);
  return after.trespass() + (verdict.passed() ? "" : to_string(verdict));
}

TEST(Pages, AGraphServesOtherLengthsTablesAndPages) {
  const std::string unusable = gpu_problem();
  if (!unusable.empty()) GTEST_SKIP() << unusable;
  ScopedContext context(gpu_context());
  for (const char* text : kProblems) {
    const Problem problem = parse_problem(text);
    std::vector<HostProblem> hosts;
    std::vector<Reference> expected;
    for (const unsigned seed : {1u, 2u, 3u}) {
      hosts.push_back(make_host_problem(problem, seed));
      expected.push_back(reference_attention(problem, hosts.back().tensors()));
    }
    GpuProblem gpu(hosts.front());
    const std::vector<Compiled> all = compile_each(problem);
    EXPECT_GE(all.size(), 2u) << "a product and the oracle: " << text;
    for (const Compiled& compiled : all) {
      SCOPED_TRACE(fmt::format("{}\n  {}", text, to_string(compiled.candidate.config)));
      ASSERT_EQ(compiled.failure, "");
      const Loaded loaded(compiled);
      const Buffer workspace = loaded.make_workspace();
      const Stream stream;
      const Graph graph(stream, [&](CUstream to) { loaded.run(gpu.tensors, workspace, to); });
      for (std::size_t i = 0; i < hosts.size(); ++i) {
        gpu.upload(hosts[i]);
        check(driver().cuCtxSynchronize(), "wait for the uploads");
        graph.launch(stream.get());
        stream.synchronize();
        HostProblem after = hosts[i];
        gpu.download(after);
        EXPECT_EQ(fault_of(after, expected[i]), "") << "run " << i;
      }
    }
  }
}

/// Sets an entry of the first sequence, which has all its keys.
void set_entry(HostProblem& host, std::int64_t column, int page) {
  auto& bytes = host.storages[static_cast<std::size_t>(host.page_table.storage)];
  std::memcpy(bytes.data() + host.page_table.offset_bytes + column * 4, &page, sizeof(page));
}

TEST(Pages, AWrongEntryFaultsNothingAndHarmsNoOtherSequence) {
  const std::string unusable = gpu_problem();
  if (!unusable.empty()) GTEST_SKIP() << unusable;
  ScopedContext context(gpu_context());
  for (const char* text : kProblems) {
    const Problem problem = parse_problem(text);
    HostProblem host = make_host_problem(problem, kConformanceSeed);
    std::vector<QueryRow> rows = all_rows(sequences_of(problem, host.tensors()));
    std::erase_if(rows, [](const QueryRow& row) { return row.batch == 0; });
    const Reference expected = reference_attention(problem, host.tensors(), rows);
    set_entry(host, 0, -1);
    set_entry(host, 1, -1000);
    set_entry(host, pages_of_sequence(problem) - 1, 0x7fffffff);
    GpuProblem gpu(host);
    for (const Compiled& compiled : compile_each(problem)) {
      SCOPED_TRACE(fmt::format("{}\n  {}", text, to_string(compiled.candidate.config)));
      ASSERT_EQ(compiled.failure, "");
      HostProblem after = after_run(Loaded(compiled), gpu, host);
      EXPECT_EQ(fault_of(after, expected), "");
    }
  }
}

}  // namespace
}  // namespace attnforge
