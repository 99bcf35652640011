// family.cpp - bwd_wgmma_sm90a as a Family: what it serves, its search space, source and launch.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "attnforge/plan.h"
#include "generator/family.h"
#include "generator/shape.h"
#include "generator/tensors/stored_rows.h"
#include "generator/typed_family.h"
#include "generator/user_code/user_code.h"
#include "templates/backward/host.h"
#include "templates/bwd_wgmma_sm90a/config.h"
#include "templates/bwd_wgmma_sm90a/estimate.h"
#include "templates/hopper/wgmma_text.h"
#include "templates/host/common_fields.h"
#include "templates/host/common_rejects.h"
#include "templates/host/fwd_params.h"
#include "templates/host/kernel_source.h"
#include "templates/host/launch_work.h"

namespace attnforge {

extern const Family bwd_wgmma_sm90a;

namespace {

/// What is compiled in, and what the launch alone decides.
struct Typed : BwdWgmmaSm90aConfig {
  int alternate;      // 1: as many K/V heads as fill the GPU are a group; blocks of every second
                      // group walk from the last query tile on, others from the diagonal on
  int head_group_mb;  // K/V heads are walked in groups of this many MB of what their blocks share:
                      // Q, dO and the sums of dQ; 0: one head after another
};
constexpr std::string_view kName = "bwd_wgmma_sm90a";

constexpr int kMostSplits = 64;  // of a group of heads

constexpr Field<Typed> kFields[] = {
    {"split_columns", &Typed::split_columns, kFlag},
    {"block_m", &Typed::block_m, from_to(16, 256, 16)},
    {"do_stages", &Typed::do_stages, from_to(1, 3)},
    {"ds_stages", &Typed::ds_stages, from_to(1, 2)},
    {"late_dq", &Typed::late_dq, from_to(0, kDvFirst)},
    {"dq_rounds", &Typed::dq_rounds, from_to(1, 2)},
    {"dq_stages", &Typed::dq_stages, from_to(1, 2)},
    {"dq", &Typed::dq, from_to(kDqAnyOrder, kDqFromDiagonal)},
    {"zeros_ahead", &Typed::zeros_ahead, from_to(0, 1)},
    {"grid", &Typed::grid, from_to(kGridPlain, kGridDynamic, kGridDynamic)},
    {"group_splits", &Typed::group_splits, from_to(1, kMostSplits)},
    {"alternate", &Typed::alternate, kFlag},
    {"head_group_mb", &Typed::head_group_mb, kHeadGroupsMb},
};

/// Whether gradients of arrays are sums of the queries of a tile, of blocks by keys alone.
bool has_key_sums(const Problem& problem) {
  return dargs_without_query(problem) && std::max(problem.head_dim, problem.head_dim_v) <= 128;
}

/// Registers beside the planned ones that the main loop needs. With fewer, ptxas spills, and then
/// makes products wait for each other.
constexpr int kSpared = 8, kRegisterSlack = 12, kSoftcapSlack = 16;
/// Registers that texts and block masks take beside these. Bits of a mask's text take none.
constexpr int kCodeSlack = 20, kLateCodeSlack = 36;
constexpr int kPartSlack = 12;  // of rows of arrays beside parts of a group
constexpr int kStoring = 8;     // of these, for gradients that other warps store
constexpr int kKeySums = 12;    // of gradients of what is read without q

int register_slack(const Typed& c, const Problem& problem) {
  int slack = kRegisterSlack + (c.softcap ? kSoftcapSlack : 0);
  const int rows = has_block_mask(problem) ? 0 : added_row_registers(problem, c.block_m / 2);
  const bool by_bits = c.text_bits && has_query_bits(c, problem);
  if (c.user_score || (c.user_mask && !by_bits) || has_block_mask(problem))
    slack += !c.late_dq ? kCodeSlack
             : rows > 0 ? rows + (c.group_splits > 1 ? kPartSlack : 0)
                        : kLateCodeSlack;
  if (c.spares_registers()) slack -= kSpared;  // no kernel spilled for them
  if (c.has_dargs_aside()) slack -= kStoring;
  if (has_key_sums(problem) && c.late_dq) slack += kKeySums;
  return slack + slope_registers(problem, c.block_m / 4);  // they live half as long as scores
}

/// Whether ptxas finds registers for dQ before dV. Where it does not it keeps dS where dQ is to be,
/// spills it, and waits for each product.
bool fits_dq_first(const Typed& c, int slack) {
  constexpr int kAddressRegisters = 8, kMoreSlack = 4;
  return c.late_accumulators() + kAddressRegisters <= c.consumer_registers() &&
         c.planned_registers() + slack + kMoreSlack <= c.consumer_registers();
}
/// Tiles for which ptxas finds registers all the same, as nothing is beside the products in the
/// loop: it spills two words that never change.
bool has_bare_loop(const Typed& c) {
  return c.block_m == 80 && c.head_dim == 128 && c.head_dim_v == 128 && c.dq == kDqAnyOrder &&
         c.sees_all() && !c.changes_scores() && !c.has_tile_queue();
}
/// slack: register_slack().
Reason needless_order(const Typed& c, int slack) {
  if (c.late_dq == 0) return "";
  const bool fits = fits_dq_first(c, slack);
  if (c.late_dq == kDqFirst && !fits && !has_bare_loop(c))
    return "registers are too few for dQ before dV";
  if (c.late_dq == kDvFirst && fits) return "sums of dQ are added under more products before dV";
  return "";
}

std::string supports(const Problem& problem, const Arch& arch) {
  if (!arch.wgmma || !arch.tma) return "needs wgmma and TMA (sm_90a)";
  if (Reason no = not_16_bits(problem)) return no.text();
  if (Reason no = head_dim_above(problem, 256)) return no.text();
  if (Reason no = below_alignment(problem, 16)) return no.text();
  if (problem.deterministic && has_block_mask(problem))
    return "adds dQ in the order of key tiles, of which a block mask leaves some out";
  if (!problem.dargs.empty() && !adds_rows_alone(problem) && !has_key_sums(problem))
    return "makes gradients of an aligned array that is added to the score, up to head_dim 128 of "
           "what every pair reads without q, and of no others";
  return too_many_bwd_blocks(problem).text();
}

/// 1, and how many shares those of a half of the query heads make, of a quarter, down to one head:
/// as long as a block with one has much of what an SM has to do.
std::vector<int> splits_of_group(const Problem& problem, const DeviceFacts& device) {
  constexpr int kBlockM = 64, kBlockN = 128;
  constexpr double kMuch = 0.2, kMuchOfPacked = 0.15;  // whose bucket may have twice the tokens
  std::vector<int> splits = {1};
  if (has_query_bits(shape_of(problem), problem)) return splits;
  const SeenTiles tiles = SeenTiles::of(problem, kBlockM, kBlockN);
  const double much = (problem.lengths == Lengths::kPacked ? kMuchOfPacked : kMuch) * tiles.all /
                      std::max(device.num_sms, 1);
  for (auto heads = static_cast<int>(gqa_group(problem)); heads > 1 && heads * tiles.most > much;) {
    heads = ceil_div(heads, 2);
    const int count = ceil_div(static_cast<int>(gqa_group(problem)), heads);
    if (count <= kMostSplits) splits.push_back(count);
  }
  return splits;
}

std::vector<Axis> axes(const Problem& problem, const DeviceFacts& device) {
  constexpr int kAllHeads = 1 << 16;  // MB
  std::vector<int> groups = problem.deterministic ? std::vector<int>{16, 32, 64, 0}
                                                  : std::vector<int>{0, 16, 32, 64};
  // Long blocks of all heads come early; where all are alike that costs 2%.
  if (has_query_bits(shape_of(problem), problem)) groups = {64, 16, 32, 0};
  if (problem.lengths == Lengths::kPacked) groups.push_back(kAllHeads);
  Axis dq{"dq", {kDqFromRegs, kDqInOrder, kDqAnyOrder, kDqFromDiagonal}};
  Axis grid{"grid", {kGridPlain, kGridDynamic}};
  if (problem.deterministic) {
    dq = {"dq", {kDqInOrder, kDqFromDiagonal}};
    grid = {"grid", {kGridDynamic, kGridPlain}};
  }
  return {
      {"split_columns", {0, 1}},
      {"block_m", {64, 128, 80, 96, 112, 48, 32}},
      {"do_stages", {2, 1}},
      {"ds_stages", {2, 1}},
      {"late_dq", {0, kDqFirst, kDvFirst}},
      {"dq_rounds", {1, 2}},
      {"dq_stages", {1, 2}},
      dq,
      {"zeros_ahead", {1, 0}},
      grid,
      {"group_splits", splits_of_group(problem, device)},
      {"alternate", {0, 1}},
      {"head_group_mb", groups},
  };
}

/// Whether warpgroups should have keys or columns of their own.
Reason needless_split(const Typed& c) {
  // With more, ptxas makes products wait for each other: dK, dV and parts of dQ lie in registers.
  constexpr int kWidest = 128, kWidestV = 160, kMostColumns = 264;
  const bool wide = c.head_dim > kWidest || c.head_dim_v > kWidestV ||
                    c.head_dim + c.head_dim_v > kMostColumns;
  // More fit beside few queries, where the producer asks for no tiles, which would spill.
  constexpr int kFewQueries = 32;
  const bool spared = c.block_m <= kFewQueries && c.late_dq != 0 && !c.persistent();
  if (!c.split_columns && wide && !spared)
    return Reason("rows of dK and dV have {} columns, {} and {}: more than registers hold",
                  c.head_dim + c.head_dim_v, c.head_dim, c.head_dim_v);
  if (c.split_columns && std::max(c.head_dim, c.head_dim_v) <= kWidest)
    return "registers hold whole rows";
  return "";
}

/// How many heads ahead a block sets sums to zeros, so that those which add to the sums wait for
/// none: it does so near its end, and a head's sums are zeros when all of an earlier head's blocks
/// have. The last of these starts at about as many blocks before as the GPU holds. Under a mask the
/// first is the heaviest, of twice the mean, in which time the GPU ends twice as many as it holds;
/// of packed sequences the last may be, of some three times the mean. As many heads as there are
/// where none is so far ahead: then bwd_rows sets all. A search passes over such configs, but sizes
/// of a bucket may come to it.
int zeros_lag(const Typed& c, const TileOrder& order, const DeviceFacts& device) {
  const int blocks_of_group = order.heads_per_group * order.m_blocks;
  if (c.zeros_ahead == 0 || blocks_of_group == 0) return 0;
  const int sms = device.num_sms;
  int groups = std::max(ceil_div(sms, blocks_of_group),
                        1 + ceil_div(sms * 15 / 16, blocks_of_group));
  if (c.lengths == kPackedLengths)
    groups = 1 + ceil_div(sms * 3, blocks_of_group);
  else if (see_ever_more(c))
    groups = ceil_div(sms * 31 / 16, blocks_of_group);
  return std::min(order.heads_per_group * groups, order.heads);
}

/// Query heads of those of an order before number `head`.
std::int64_t query_heads_before(const Typed& c, const Problem& problem, int head) {
  const GroupShares shares = GroupShares::of(problem, c.group_splits);
  return head / shares.count * gqa_group(problem) + head % shares.count * shares.heads;
}

TileOrder order_of(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  TileOrder order = key_tile_order(problem, c.block_n(), c.head_group_mb, c.group_splits);
  if (c.alternate) {
    order.heads_per_group = heads_of_group(double(device.num_sms) / std::max(order.m_blocks, 1),
                                           order.heads);
  }
  order.heavy_last = c.dq == kDqFromDiagonal;  // the last keys, which others wait for, come first
  return order;
}

Reason needless_zeros(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  if (c.zeros_ahead == 0) return "";
  if (c.splits_groups()) return "blocks of few heads wait long for zeros";
  if (has_query_bits(c, problem))
    return "a mask may leave one block long, which sets its zeros at its end";
  if (c.has_dargs_aside()) return "warps that store the gradient of an array want the registers";
  const TileOrder order = order_of(c, problem, device);
  const int lag = zeros_lag(c, order, device);
  if (lag == order.heads) return "no head is so far ahead of the first";
  // Zeros should be in the L2 cache yet when the first adds come.
  const double bytes = double(query_heads_before(c, problem, lag)) * double(problem.seqlen_q) *
                       c.dq_columns() * sizeof(float);
  if (bytes > 0.5 * double(device.l2_bytes))
    return Reason("zeros of {} heads are {} MB: half of the L2 cache would not hold them", lag,
                  static_cast<int>(bytes / 1e6));
  return "";
}

/// One group of heads in how many has blocks that walk from the last query tile on
/// (BwdWgmmaSm90aParams).
int from_end_every(const Typed& c, const Problem& problem) {
  if (c.alternate) return 2;
  return GroupShares::of(problem, c.group_splits).heads > 1 ? 1 : 0;
}

Reason needless_alternate(const Typed& c, const Problem& problem) {
  if (!c.alternate) return "";
  if (!see_ever_more(c)) return "blocks of a head end together";
  if (c.head_group_mb != 0) return "groups of heads are those that fill the GPU";
  if (c.lengths == kPackedLengths) return "blocks of a head are of different sequences";
  if (ceil_div(problem.seqlen_kv, c.block_n()) < kFewKeyTiles) return "heads have few key tiles";
  return "";
}

/// Columns of the largest result of a wgmma: scores by queries, dQ by its rows, dK and dV.
int widest_product(const Typed& c) {
  const auto columns = [&](int all) {
    return c.split_columns ? c.half_of_columns(all, 0).count : all;
  };
  return std::max({c.block_m, columns(c.head_dim), columns(c.head_dim_v)});
}

Reason illegal(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  if (problem.deterministic && !c.adds_in_order())
    return "sums of dQ that are added up in any order differ from run to run";
  if (c.adds_in_order() && has_query_bits(c, problem))
    return "a key tile would wait for one that the mask leaves out";
  if (c.dq == kDqFromDiagonal && !later_see_more(c))
    return "rows that see all keys have no diagonal";
  if (c.alternate && c.adds_in_order()) return "sums of dQ are added in an order of their own";
  if (c.split_columns && !problem.dargs.empty() && !adds_rows_alone(problem))
    return "gradients of what is read without q are sums of blocks by keys";
  if (c.splits_groups() && gqa_group(problem) == 1) return "a group of one head has no shares";
  if (c.splits_groups() && has_query_bits(c, problem))
    return "lists of a mask are of all query heads of a key tile";
  if (Reason wrong = invalid(c)) return wrong;
  if (Reason wrong = wide_product(widest_product(c), c.launch_registers())) return wrong;
  return too_much_smem(c.smem_bytes(), device.arch);
}

/// Where blocks that wait for turns lose more than the zeros take that the sums would begin with.
Reason needless_turns(const Typed& c, const Problem& problem) {
  constexpr int kSomeKeys = 1024, kSomeKeysFromDiagonal = 2048;
  if (c.persistent() && !c.adds_in_order() && (!c.zeros_ahead || problem.seqlen_kv > kSomeKeys))
    return "blocks that end cost nothing unless they set zeros often, or others wait for turns";
  if (c.dq_stages > 1 && !problem.deterministic)
    return "only where order is asked for do blocks wait long for turns";
  if (!c.adds_in_order()) return "";
  if (c.split_columns && !problem.deterministic)
    return "blocks that wait for turns hold up products";
  // With few key tiles the wait is short, and there are no zeros to set.
  constexpr int kFewKeys = 512;
  if (!c.split_columns && !c.late_dq && problem.seqlen_kv > kFewKeys)
    return "blocks that wait for turns hold up products of the same tile";
  const bool from_diagonal = c.dq == kDqFromDiagonal && c.spares_registers();
  const int few = from_diagonal ? kSomeKeysFromDiagonal : kSomeKeys;
  if (!problem.deterministic && (!c.persistent() || problem.seqlen_kv > few))
    return "blocks that wait for turns lose more than zeros take";
  return "";
}

/// Two buffers hide what one does not: with one, only where two do not fit.
Reason needless_thrift(const Typed& c, const Arch& arch) {
  Typed more = c;
  if (c.ds_stages == 1 && !c.split_columns)
    more.ds_stages = 2;
  else if (c.do_stages == 1)
    more.do_stages = 2;
  else if (c.dq_rounds > 1 && c.adds_by_tma())
    more.dq_rounds = 1;
  else
    return "";
  return more.smem_bytes() <= arch.smem_per_block_bytes ? "another buffer would fit" : "";
}

Reason needless(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  if (Reason waste = needless_split(c)) return waste;
  if (Reason waste = needless_alternate(c, problem)) return waste;
  if (Reason waste = needless_zeros(c, problem, device)) return waste;
  const int slack = register_slack(c, problem);
  if (c.planned_registers() + slack > c.consumer_registers())
    return Reason("about {} of {} registers", c.planned_registers() + slack,
                  c.consumer_registers());
  if (Reason waste = needless_order(c, slack)) return waste;
  if (c.dq == kDqFromRegs && !c.late_dq && !c.split_columns)
    return "adds from registers hold up products that wait for them";
  if (Reason waste = needless_turns(c, problem)) return waste;
  constexpr int kSmallestTile = 32;
  if (Reason waste = half_empty_queries(c.block_m, kSmallestTile, problem.seqlen_q)) return waste;
  return needless_thrift(c, device.arch);
}

BwdSteps steps_of(const Typed& c) {
  return {.block_m = c.block_m,
          .block_n = c.block_n(),
          .dq_columns = c.dq_columns(),
          .dq_tile = "BwdWgmmaSm90aDqTile<kConfig>",
          .turns = c.dq_turns(),
          .lists_key_tiles = true,
          .group_splits = c.group_splits,
          .adds_parts = c.adds_parts()};
}

/// Those of a launch.
BwdSteps steps_of(const Typed& c, const Problem& problem, const TileOrder& order,
                  const DeviceFacts& device) {
  BwdSteps steps = steps_of(c);
  steps.zero_heads = query_heads_before(c, problem, zeros_lag(c, order, device));
  steps.counters = (c.zeros_ahead ? order.heads : 0) + c.persistent();
  const int tiles = problem.lengths == Lengths::kPacked ? std::min(order.m_blocks, 1)
                                                        : order.m_blocks;
  steps.parts_of_head = tiles * c.adding_parts() * GroupShares::of(problem, c.group_splits).count;
  return steps;
}

double estimate_us(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  const TileOrder order = order_of(c, problem, device);
  return estimate_bwd_wgmma_sm90a_us(c, problem, device, order, c.alternate != 0) +
         bwd_steps_us(problem, steps_of(c, problem, order, device), device);
}

std::string describe(const Typed& c) {
  return phrases(
      {fmt::format("{} x {} keys", c.block_m, c.block_n()),
       fmt::format("stages {}+{}+{}", c.q_stages, c.do_stages, c.ds_stages),
       if_so(c.dq_rounds == 2, "dQ in two rounds"), if_so(c.dq_stages == 2, "two stages of dQ"),
       if_so(c.split_columns, "half of the columns a warpgroup"),
       if_so(c.late_dq, "dQ a tile later"), if_so(c.late_dq == kDvFirst, "after dV"),
       if_so(c.dq == kDqInOrder, "dQ added in order"),
       if_so(c.dq == kDqFromDiagonal, "dQ added in order from the diagonal"),
       if_so(c.dq == kDqFromRegs, "dQ added from registers"), if_so(c.zeros_ahead, "zeros ahead"),
       if_so(c.persistent(), "persistent"),
       c.splits_groups() ? fmt::format("{} blocks share a group's heads", c.group_splits) : "",
       if_so(c.alternate, "from both ends by turns"), head_group_words(c.head_group_mb)});
}

/// Without the text of its products, which a launch has no use for.
KernelTraits kernel_of(const Typed& c, const BwdSteps& steps) {
  return {.symbol = shape_name(kName, c, c.block_m, c.block_n()),
          .folder = kName,
          .type = "BwdWgmmaSm90a",
          .params = OwnParams::of<BwdWgmmaSm90aParams>("BwdWgmmaSm90aParams"),
          .launch_fields = 2,
          .pieces = &kBackwardPieces,
          .row_boxes = true,
          .coarse = true,
          .slopes = true,
          .gradients = &steps,
          .step_argument = &kBwdStepArgument};
}

Source render(const Typed& c, const Problem& problem) {
  std::set<std::string> products;
  const auto add = [&](WgmmaProduct::Form form, int columns, int depth) {
    if (columns > 0) products.insert(wgmma_product_text(c.dtype, {form, columns, depth / 16}));
  };
  add(WgmmaProduct::kKK, c.block_m, round_up(c.head_dim, 16));
  add(WgmmaProduct::kKK, c.block_m, round_up(c.head_dim_v, 16));
  add(WgmmaProduct::kMnK, c.dq_rows(), c.block_n());
  if (c.dq_pairs()) add(WgmmaProduct::kMnK, 2 * c.dq_rows(), c.block_n());
  for (const int columns : {c.head_dim, c.head_dim_v}) {
    if (c.split_columns) {
      for (const int half : {0, 1})
        add(WgmmaProduct::kRegsMn, c.half_of_columns(columns, half).count, c.block_m);
    } else {
      add(WgmmaProduct::kRegsMn, columns, c.block_m);
    }
  }
  const BwdSteps steps = steps_of(c);
  KernelTraits kernel = kernel_of(c, steps);
  kernel.declarations = fmt::format("namespace attnforge {{\n{}}}  // namespace attnforge\n",
                                    fmt::join(products, ""));
  return kernel_source(untyped(kName, c, kFields), c, problem, kernel);
}

constexpr TensorMapSpec::Operand kDout{"dout", false,
                                       [](Tensors& t) -> Tensor& { return t.gradients.dout; }};

/// The maps of q, k, v and dout.
void add_tensor_maps(Argument& argument, const Typed& c, const Problem& problem) {
  using Operand = TensorMapSpec::Operand;
  const StoredRows stored = stored_rows(problem);
  const auto add = [&](Operand operand, int columns, int rows_of_box, bool of_queries) {
    const TensorMapSpec map{.operand = operand,
                            .dtype = problem.dtype_q,
                            .columns = columns,
                            .rows_of_run = stored.of_run,
                            .box_columns = c.chunk_columns(),
                            .box_rows = rows_of_box,
                            .swizzle_bytes = c.kSwizzle};
    const TensorMapSizes sizes{.rows = of_queries ? stored.q : stored.kv,
                               .heads = of_queries ? problem.num_heads_q : problem.num_heads_kv,
                               .batch = stored.batch};
    argument.tensor_map(map, sizes);
  };
  add(Operand::kQ, c.head_dim, c.block_m, true);
  add(Operand::kK, c.head_dim, c.block_n(), false);
  add(Operand::kV, c.head_dim_v, c.block_n(), false);
  add(kDout, c.head_dim_v, c.block_m, true);
}

Launch launch(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  const TileOrder order = order_of(c, problem, device);
  const BwdSteps steps = steps_of(c, problem, order, device);
  const KernelTraits kernel = kernel_of(c, steps);
  const Assembly assembly = assemble(problem, c, kernel);
  const LaunchWork of_launch = launch_work(assembly, device,
                                           {.order = order, .tiles = order.m_blocks});
  const BwdWork work = bwd_work(of_launch);
  std::vector<LaunchStep> own;
  if (order.m_blocks != 0 && order.heads != 0) {
    LaunchStep step = step_of(symbol_of(assembly), c.num_threads(), c.smem_bytes());
    const auto blocks = static_cast<unsigned>(order.m_blocks) * static_cast<unsigned>(order.heads);
    // bwd_rows, of which there is none without rows, sets what blocks count in to 0.
    const bool counts = problem.seqlen_q != 0, asks = c.persistent() && counts;
    step.grid.x = asks ? std::min(blocks, static_cast<unsigned>(std::max(1, device.num_sms)))
                       : blocks;
    fill_argument(step, of_launch, [&](Argument& argument) {
      add_bwd(argument, problem).end_of_base<BwdParams>();
      add_scratch(argument, work);
      argument.value(order, from_end_every(c, problem)).scratch(work.turns, c.adds_in_order());
      argument.value(counts ? zeros_lag(c, order, device) : order.heads);
      argument.scratch(work.counters, c.zeros_ahead != 0).scratch(work.added);
      argument.scratch(work.counters + (work.steps.counters - 1) * sizeof(int), asks);
      add_tensor_maps(argument, c, problem);
    });
    own.push_back(std::move(step));
  }
  return launch_of(of_launch, own);
}

}  // namespace

constinit const Family bwd_wgmma_sm90a = typed_family<kFields, illegal, needless, estimate_us,
                                                      render, launch, describe>({
    .name = kName,
    .summary = "Hopper: TMA loads, wgmma products, specialised warps: gradients of fp16 and "
               "bf16 on sm_90a",
    .op = Op::kBackward,
    .tier = Tier::kProduct,
    .features = kFeaturesOfWindows | kFeaturesOfScores | kFeatureGqa | kFeatureUnequalHeadDims |
                kFeaturesOfGradientPieces | kFeatureDeterministic | kFeaturesOfGradients |
                kFeatureDargs | kFeatureWholeDargs,
    .supports = supports,
    .axes = axes,
});

}  // namespace attnforge
