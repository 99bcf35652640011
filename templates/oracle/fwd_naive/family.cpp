// family.cpp - fwd_naive as a Family: any problem, any arch, fast enough for an oracle.
#include <algorithm>
#include <utility>

#include "attnforge/error.h"
#include "generator/family.h"
#include "generator/typed_family.h"
#include "templates/host/common_rejects.h"
#include "templates/host/fwd_params.h"
#include "templates/host/kernel_source.h"
#include "templates/host/launch_work.h"
#include "templates/oracle/fwd_naive/config.h"
#include "templates/oracle/fwd_naive/oracle.h"

namespace attnforge {

extern const Family fwd_naive;

namespace {

using Typed = FwdNaiveConfig;
constexpr std::string_view kName = "fwd_naive";

constexpr Field<Typed> kFields[] = {
    {"block_m", &Typed::block_m, doubled(1, 8)},
    {"num_threads", &Typed::num_threads, doubled(64, 256)},
};

int block_m(const Problem& problem) { return problem.seqlen_q <= 1 ? 1 : 8; }

std::int64_t row_blocks(const Problem& problem, int block_m) {
  return (problem.seqlen_q + block_m - 1) / block_m;
}

std::int64_t blocks(const Problem& problem, int block_m) {
  return problem.batch * problem.num_heads_q * row_blocks(problem, block_m);
}

std::string supports(const Problem& problem, const Arch& arch) {
  if (Reason no = below_sm80(arch)) return no.text();
  return too_many_blocks(double(blocks(problem, block_m(problem)))).text();
}

std::vector<Axis> axes(const Problem& problem, const DeviceFacts& /*device*/) {
  return {
      {"block_m", {block_m(problem)}},
      {"num_threads", {128, 64, 256}},
  };
}

Reason illegal(const Typed& c, const Problem& problem, const DeviceFacts&) {
  if (!c.valid()) return "no such thread block";
  return too_many_blocks(double(blocks(problem, c.block_m)));
}

/// Three products' worth of fp32 multiply-adds (scores are computed twice), at a quarter of the
/// rate of the units; fewer threads than hide the latency of memory take longer in proportion.
double estimate_us(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  constexpr double kFmaPerClockPerSm = 128, kEfficiency = 0.25, kThreadsPerSm = 1024, kLaunchUs = 3;
  if (problem.seqlen_q == 0 || problem.batch == 0) return 0;
  const double keys = static_cast<double>(visible_pairs(problem)) /
                      static_cast<double>(problem.seqlen_q);
  const double tile = c.num_threads;
  const double tiles_of_keys = keys + tile / 2;  // the last tile of a row is half empty
  const double rows = static_cast<double>(blocks(problem, c.block_m)) * c.block_m;
  const double columns = static_cast<double>(c.columns_per_thread()) * c.threads_per_group();
  const double fma = rows * tiles_of_keys * (2.0 * c.head_dim + columns);
  const double threads_per_sm = static_cast<double>(blocks(problem, c.block_m)) * c.num_threads /
                                device.num_sms;
  const double filled = std::min(1.0, threads_per_sm / kThreadsPerSm);
  const double fma_per_us = kFmaPerClockPerSm * device.num_sms * device.sm_clock_mhz * kEfficiency *
                            filled;
  return kLaunchUs + fma / fma_per_us;
}

KernelTraits kernel_of(const Typed& c) {
  return {.symbol = shape_name(kName, c, c.block_m, c.num_threads),
          .folder = "oracle/fwd_naive",
          .type = "FwdNaive",
          .params = OwnParams::of<FwdNaiveParams>("FwdNaiveParams"),
          .threads = "num_threads",
          .blocks_per_sm = "blocks_per_sm()",
          .pieces = &kOraclePieces};
}

Source render(const Typed& config, const Problem& problem) {
  Typed c = config;
  static_cast<Shape&>(c) = without_bounds(c);  // read at run time: one kernel for every window
  return kernel_source(untyped(kName, c, kFields), c, problem, kernel_of(c));
}

/// `rows` null: all that the problem has, and `num_rows` of each sequence and head.
Launch launch_blocks(const Typed& c, const Problem& problem, std::int64_t num_blocks,
                     const ListedRow* rows, std::int64_t num_rows) {
  const KernelTraits kernel = kernel_of(c);
  const Assembly assembly = assemble(problem, c, kernel);
  LaunchStep step = step_of(symbol_of(assembly), c.num_threads, 0, num_blocks);
  fill_argument(step, launch_work(assembly), [&](Argument& argument) {
    argument.fwd(problem).value(rows).value(static_cast<int>(num_rows));
  });
  return {.steps = {std::move(step)}};
}

Launch launch(const Typed& c, const Problem& problem, const DeviceFacts& /*device*/) {
  if (problem.seqlen_q == 0 || problem.batch == 0) return {};
  return launch_blocks(c, problem, blocks(problem, c.block_m), nullptr, problem.seqlen_q);
}

}  // namespace

int rows_per_block(const Config& config) { return typed<kFields>(config).block_m; }

Launch launch_rows(const Config& config, const Problem& problem, const ListedRow* rows,
                   std::int64_t num_rows) {
  if (num_rows == 0) return {};
  const Typed c = typed<kFields>(config, problem);
  const std::int64_t num_blocks = problem.num_heads_q * ((num_rows + c.block_m - 1) / c.block_m);
  ATTNFORGE_ASSERT(rows != nullptr && num_blocks <= kMaxGridX, "a list is short");
  return launch_blocks(c, problem, num_blocks, rows, num_rows);
}

constinit const Family fwd_naive = typed_family<kFields, illegal, never_needless<Typed>,
                                                estimate_us, render, launch>({
    .name = kName,
    .summary =
        "one thread block for 8 query rows, two passes over the keys, all in fp32: the oracle on "
        "the GPU",
    .tier = Tier::kOracle,
    .features = kFeaturesOfForward,
    .supports = supports,
    .axes = axes,
});

}  // namespace attnforge
