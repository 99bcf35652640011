// family.cpp - bwd_naive as a Family: any arch, slow but for its role as oracle fast enough.
#include <algorithm>
#include <utility>

#include "attnforge/error.h"
#include "generator/family.h"
#include "generator/typed_family.h"
#include "templates/backward/host.h"
#include "templates/host/common_rejects.h"
#include "templates/host/fwd_params.h"
#include "templates/host/kernel_source.h"
#include "templates/host/launch_work.h"
#include "templates/oracle/bwd_naive/config.h"
#include "templates/oracle/bwd_naive/oracle.h"

namespace attnforge {

extern const Family bwd_naive;

namespace {

using Typed = BwdNaiveConfig;
constexpr std::string_view kName = "bwd_naive";
static_assert(Typed::kRows == kGradientRowsPerBlock);

constexpr Field<Typed> kFields[] = {
    {"num_threads", &Typed::num_threads, doubled(64, 256)},
};

/// Blocks of dq, and below of dk and dv.
std::int64_t query_blocks(const Problem& p, std::int64_t rows) {
  return p.num_heads_q * ((rows + Typed::kRows - 1) / Typed::kRows);
}
std::int64_t key_blocks(const Problem& p, std::int64_t rows) {
  return p.num_heads_kv * ((rows + Typed::kRows - 1) / Typed::kRows);
}
/// Blocks of all rows of queries once more, for gradients of arrays.
std::int64_t array_blocks(const Problem& p) {
  return p.dargs.empty() ? 0 : p.batch * query_blocks(p, p.seqlen_q);
}
std::int64_t blocks(const Problem& p) {
  return p.batch * (query_blocks(p, p.seqlen_q) + key_blocks(p, p.seqlen_kv)) + p.num_heads_q +
         array_blocks(p);
}

std::string supports(const Problem& problem, const Arch& arch) {
  if (Reason no = below_sm80(arch)) return no.text();
  return too_many_blocks(double(blocks(problem))).text();
}

std::vector<Axis> axes(const Problem& /*problem*/, const DeviceFacts& /*device*/) {
  return {{"num_threads", {128, 64, 256}}};
}

Reason illegal(const Typed& c, const Problem&, const DeviceFacts&) {
  return c.valid() ? "" : "no such thread block";
}

/// Products of both halves, and delta of each pair, at an eighth of the rate of the units; fewer
/// threads than hide the latency of memory take longer in proportion.
double estimate_us(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  constexpr double kFmaPerClockPerSm = 128, kEfficiency = 0.125, kThreadsPerSm = 1024;
  constexpr double kLaunchUs = 3;
  const double count = static_cast<double>(blocks(problem));
  if (count == 0) return 0;
  const double pairs = static_cast<double>(visible_pairs(problem)) *
                       static_cast<double>(problem.batch * problem.num_heads_q);
  // The last tile of a row is half empty.
  const double padded = pairs + count * Typed::kRows * c.num_threads / 2;
  const double fma = padded * (4.0 * c.head_dim + 4.0 * c.head_dim_v);
  const double filled = std::min(1.0, count * c.num_threads / device.num_sms / kThreadsPerSm);
  return kLaunchUs +
         fma / (kFmaPerClockPerSm * device.num_sms * device.sm_clock_mhz * kEfficiency * filled);
}

KernelTraits kernel_of(const Typed& c) {
  return {.symbol = shape_name(kName, c, Typed::kRows, c.num_threads),
          .folder = "oracle/bwd_naive",
          .type = "BwdNaive",
          .params = OwnParams::of<BwdNaiveParams>("BwdNaiveParams"),
          .threads = "num_threads",
          .blocks_per_sm = "blocks_per_sm()",
          .pieces = &kOraclePieces,
          .slopes = true};
}

Source render(const Typed& config, const Problem& problem) {
  Typed c = config;
  static_cast<Shape&>(c) = without_bounds(c);  // read at run time: one kernel for every window
  return kernel_source(untyped(kName, c, kFields), c, problem, kernel_of(c));
}

/// The launch of blocks for each of `sequences`; with lists of one, whatever sequences their rows
/// are of.
Launch launch_blocks(const Typed& c, const Problem& problem, const GradientRows& rows,
                     std::int64_t sequences) {
  const std::int64_t of_queries = sequences * query_blocks(problem, rows.num_queries);
  const std::int64_t of_rows = of_queries + sequences * key_blocks(problem, rows.num_keys);
  const std::int64_t all = of_rows + sink_blocks(problem) + array_blocks(problem);
  if (all == 0) return {};
  ATTNFORGE_ASSERT(all <= kMaxGridX, "supports() lets no larger grid through, and lists are short");
  const KernelTraits kernel = kernel_of(c);
  const Assembly assembly = assemble(problem, c, kernel);
  LaunchStep step = step_of(symbol_of(assembly), c.num_threads, 0, all);
  fill_argument(step, launch_work(assembly), [&](Argument& argument) {
    add_bwd(argument, problem).end_of_base<BwdParams>();
    argument.value(rows.queries, rows.keys, rows.dq_norms, rows.dk_norms, rows.dv_norms);
    argument.value(rows.dsink_norms, static_cast<int>(rows.num_queries),
                   static_cast<int>(rows.num_keys), static_cast<int>(of_queries),
                   static_cast<int>(of_rows));
  });
  return {.steps = {std::move(step)}};
}

Launch launch(const Typed& c, const Problem& problem, const DeviceFacts& /*device*/) {
  return launch_blocks(c, problem, {.num_queries = problem.seqlen_q, .num_keys = problem.seqlen_kv},
                       problem.batch);
}

}  // namespace

Launch launch_gradients(const Config& config, const Problem& problem, const GradientRows& rows) {
  return launch_blocks(typed<kFields>(config, problem), problem, rows, 1);
}

constinit const Family bwd_naive = typed_family<kFields, illegal, never_needless<Typed>,
                                                estimate_us, render, launch>({
    .name = kName,
    .summary =
        "one thread block for 8 rows of dq, or of dk and dv, all in fp32: the oracle of gradients",
    .op = Op::kBackward,
    .tier = Tier::kOracle,
    .features = kFeaturesOfWindows | kFeaturesOfScores | kFeatureGqa | kFeatureUnequalHeadDims |
                kFeatureUnaligned | kFeatureMixedDtypes | kFeaturesOfGradientPieces |
                kFeatureDeterministic | kFeaturesOfGradients | kFeatureDargs,
    .supports = supports,
    .axes = axes,
});

}  // namespace attnforge
