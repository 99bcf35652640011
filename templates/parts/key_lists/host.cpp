#include "templates/parts/key_lists/host.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "generator/shape.h"
#include "generator/user_code/user_code.h"
#include "templates/host/fwd_params.h"
#include "templates/host/part.h"
#include "templates/host/tile_source.h"

namespace attnforge {
namespace {

constexpr int kThreads = 256;  // of both steps
constexpr int kGroupsPerBlock = kThreads / 32;
constexpr const char* kListsKernel = "tile_lists";
constexpr const char* kStatesKernel = "mask_states";

std::int64_t quotient_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// The Mask piece: what decides in groups that rows see some of.
std::string list_mask(const Shape& shape, std::string_view window, std::string_view block_m,
                      std::string_view block_n) {
  const std::string bits = "BlockBits<Argument, kConfig.mask_block_q, kConfig.mask_block_kv>",
                    text = shape.text_bits
                               ? fmt::format("TextBits<Argument, kConfig.{}, kConfig.{}>", block_m,
                                             block_n)
                               : "UserRule<UserCode>";
  std::string rule = "NoRule";
  if (shape.mask_bits) rule = bits;
  if (shape.user_mask) rule = shape.mask_bits ? fmt::format("BothRules<{}, {}>", bits, text) : text;
  return fmt::format("ListMask<{}, {}>", window, rule);
}

}  // namespace

std::int64_t TileLists::capacity() const {
  return groups == 0 ? 0 : quotient_up(groups_of_sequence, groups) * groups;
}

std::int64_t TileLists::bytes() const {
  const std::int64_t states = of_text ? groups_of_sequence * sizeof(std::uint32_t) : 0;
  return lists() *
             (capacity() * std::int64_t{sizeof(KeyGroup)} + states + std::int64_t{sizeof(int)}) +
         bits_bytes();
}

TileLists tile_lists(const Problem& problem, const Shape& shape, int block_m, int block_n) {
  TileLists result;
  if (!shape.has_tile_lists()) return result;
  result.groups = shape.key_groups_of(block_n);
  result.group_keys = block_n / result.groups;
  result.m_blocks = quotient_up(problem.seqlen_q, block_m);
  result.groups_of_sequence = quotient_up(problem.seqlen_kv, result.group_keys);
  result.of_text = !shape.has_block_mask();
  if (shape.text_bits)
    result.bits_of_group = block_m * quotient_up(result.group_keys, 32) *
                           std::int64_t{sizeof(std::uint32_t)};
  result.heads = static_cast<int>(shape.has_block_mask()             ? problem.mask_heads
                                  : mask_depends_on(problem, "head") ? problem.num_heads_q
                                                                     : 1);
  // Lengths bound what is seen, too.
  const bool differ = !has_fixed_lengths(problem) ||
                      (shape.has_block_mask() ? problem.mask_batch > 1
                                              : mask_depends_on(problem, "batch"));
  result.batch = static_cast<int>(differ ? problem.batch : 1);
  return result;
}

TileListParams tile_list_params(const TileLists& lists, std::size_t begin) {
  TileListParams params{};
  const std::size_t groups_bytes = lists.lists() * lists.capacity() * sizeof(KeyGroup);
  const std::size_t states_bytes = lists.of_text ? lists.lists() * lists.groups_of_sequence *
                                                       sizeof(std::uint32_t)
                                                 : 0;
  params.bits = reinterpret_cast<u32*>(begin);
  begin += static_cast<std::size_t>(lists.bits_bytes());
  params.groups = reinterpret_cast<KeyGroup*>(begin);
  params.states = reinterpret_cast<u32*>(begin + groups_bytes);
  params.counts = reinterpret_cast<int*>(begin + groups_bytes + states_bytes);
  params.capacity = lists.capacity();
  params.m_blocks = static_cast<int>(lists.m_blocks);
  params.heads = lists.heads;
  params.batch = lists.batch;
  return params;
}

double listed_share(const Problem& problem, int block_m) {
  if (!has_block_mask(problem)) return 1.0;
  const double density = problem.density > 0 ? problem.density : 0.5;
  // Groups are gathered, so only blocks above one another count.
  const double rows = std::max(1.0, double(block_m) / problem.mask_block_q);
  return 1.0 - std::pow(1.0 - density, rows);
}

void keep_listed(KeyTiles& tiles, const Problem& problem, int block_m) {
  tiles.all *= listed_share(problem, block_m);
  // Rows of smaller blocks see different ones: the tile asks of each row.
  if (has_block_mask(problem) && problem.mask_block_q < block_m) tiles.masked = tiles.all;
}

Reason wrong_lists(const Shape& shape, const Problem& problem, int block_m, int block_n,
                   int pack_gqa, const DeviceFacts& device) {
  constexpr std::int64_t kMostGroups = 1 << 30;
  if (!shape.has_tile_lists()) return "";
  if (pack_gqa > 1) return "heads that share a tile cannot have masks of their own";
  if (block_m > 16 * KeyGroup::kMostFragments) return "lists know tiles of up to 256 rows";
  if (!shape.blocks_fit(block_n))
    return Reason("tiles of {} keys and blocks of {} do not divide one another", block_n,
                  shape.mask_block_kv);
  const TileLists lists = tile_lists(problem, shape, block_m, block_n);
  // As doubles they do not overflow.
  const double blocks = double(lists.lists()) *
                        double(quotient_up(lists.groups_of_sequence, kGroupsPerBlock));
  if (blocks > double(kMaxGridX) || lists.groups_of_sequence > kMostGroups)
    return "the lists of keys have more entries than a grid can write";
  if (lists.bytes() <= device.memory_bytes) return "";
  return Reason("the lists of keys take {} GB, more than the GPU's memory", lists.bytes() >> 30);
}

Reason large_lists(const Shape& shape, const Problem& problem, int block_m, int block_n) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 34;
  return tile_lists(problem, shape, block_m, block_n).bytes() > kMostBytes
             ? "the lists of keys do not fit 16 GB"
             : "";
}

std::vector<int> fitting(const Shape& shape, std::vector<int> sizes) {
  std::erase_if(sizes, [&](int block_n) { return !shape.blocks_fit(block_n); });
  return sizes;
}

std::vector<LaunchStep> tile_list_steps(const TileLists& lists) {
  std::vector<LaunchStep> steps;
  if (lists.of_text && lists.groups_of_sequence > 0) {  // else no sequence has keys to ask about
    steps.push_back(step_of(kStatesKernel, kThreads, 0));
    steps.back().grid.x = static_cast<unsigned>(
        lists.lists() * quotient_up(lists.groups_of_sequence, kGroupsPerBlock));
  }
  steps.push_back(step_of(kListsKernel, kThreads, 0));
  steps.back().grid.x = static_cast<unsigned>(lists.lists());
  return steps;
}

bool rows_see_alike(const Problem& problem, int block_m) {
  return has_block_mask(problem) && problem.mask_block_q <= block_m;
}

bool may_have_own_lists(const Shape& shape, const Problem& problem, const DeviceFacts& device) {
  constexpr int kMostRows = 192, kMostBlocksPerSm = 3;  // of a tile, of what is searched
  return device.arch.wgmma && shape.may_list_alone() &&
         query_tiles(problem, kMostRows) <= std::int64_t{device.num_sms} * kMostBlocksPerSm;
}

double list_steps_us(const Shape& shape, const Problem& problem, const DeviceFacts& device) {
  constexpr double kSavedUs = 6;  // on an H200, 8 heads of 1024 and 2048 queries: 5 to 9
  return may_have_own_lists(shape, problem, device) ? kSavedUs : 0;
}

bool own_list_fits(const TileLists& lists) { return lists.capacity() <= kOwnListGroups; }

namespace {

constexpr const char* kBlockSource = "parts/block_mask/list_source.cuh";

std::string window_of(const KernelNames& names) {
  return fmt::format("{}<kConfig>::Mask", names.pieces);
}

/// The pieces of a kernel that walks over a list as `walk` does.
KernelNames with_list_pieces(KernelNames names, const Shape& shape, std::string walk,
                             std::string_view block_m, std::string_view block_n) {
  const std::string window = window_of(names);
  names.other_pieces.push_back({"parts/key_lists/walk.cuh", "Walk", std::move(walk)});
  names.other_pieces.push_back(
      {"parts/key_lists/mask.cuh", "Mask", list_mask(shape, window, block_m, block_n)});
  if (shape.mask_bits || shape.text_bits) {
    names.parts.push_back(shape.mask_bits ? "parts/block_mask/list_rule.cuh"
                                          : "parts/user_code/list_rule.cuh");
    names.declarations += fmt::format(
        "namespace attnforge {{\nusing Argument = {};\n}}  // namespace attnforge\n", names.params);
  }
  if (shape.user_mask) names.parts.push_back("parts/user_code/mask.cuh");
  return names;
}

}  // namespace

KernelNames with_own_lists(KernelNames names, const Shape& shape) {
  names = with_list_pieces(std::move(names), shape,
                           "ListWalk<kConfig.key_groups(), OwnList<kConfig>>", "block_m()",
                           "block_n");
  names.parts.push_back(kBlockSource);
  names.parts.push_back("parts/lengths/params.h");  // a part of the argument, which nothing reads
  names.other_pieces.push_back(
      {"parts/key_lists/own_list.cuh", "Lists",
       fmt::format("OwnLists<kConfig, BlockSource<kConfig.mask_block_q, kConfig.mask_block_kv, "
                   "true>, {}>",
                   window_of(names))});
  return names;
}

KernelNames with_tile_lists(KernelNames names, const Shape& shape, std::string_view params,
                            std::string_view block_m, std::string_view block_n) {
  const std::string window = window_of(names);
  const std::string tiles = fmt::format(
      "kConfig.{}, kConfig.key_groups(), kConfig.{} / kConfig.key_groups(), {}", block_m, block_n,
      window);
  names = with_list_pieces(std::move(names), shape, "ListWalk<kConfig.key_groups()>", block_m,
                           block_n);
  names.parts.push_back("parts/key_lists/step_lists.cuh");
  std::string source = "TextSource";
  if (shape.has_block_mask()) {
    names.parts.push_back(kBlockSource);
    source = "BlockSource<kConfig.mask_block_q, kConfig.mask_block_kv>";
  } else {
    names.parts.push_back("parts/user_code/list_source.cuh");
    names.parts.push_back("parts/user_code/step_states.cuh");
    names.parts.push_back("parts/user_code/terms.cuh");
    names.other_kernels += fmt::format(
        "extern \"C\" __global__ void __launch_bounds__({}, 4)\n"
        "{}(const __grid_constant__ {} p) {{\n"
        "  using Code = UserCodeOf<{}>;\n"
        "  MaskStates<Pieces::Lengths, UserRule<Code>, UserTerms<Code>, kConfig.{}, kConfig.{}, "
        "{}, "
        "kConfig.text_bits>::run(p);\n"
        "}}\n",
        kThreads, kStatesKernel, params, params, block_m, block_n, window);
  }
  names.other_kernels += fmt::format(
      "extern \"C\" __global__ void __launch_bounds__({}, 4)\n"
      "{}(const __grid_constant__ {} p) {{\n"
      "  ListTiles<Pieces::Lengths, {}, {}>::run(p);\n"
      "}}\n",
      kThreads, kListsKernel, params, source, tiles);
  return names;
}

void bind_tile_lists(TileListParams& lists, const Tensors&, const RunMemory& memory) {
  const auto place = [&](auto*& pointer) {
    pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(
        static_cast<std::byte*>(memory.workspace) + reinterpret_cast<std::uintptr_t>(pointer));
  };
  place(lists.groups);
  place(lists.counts);
  place(lists.states);
  place(lists.bits);
}

const Part& tile_lists_part() {
  static constexpr Part kPart{
      .in = [](const Problem& p, bool gathers) { return gathers && shape_of(p).has_tile_lists(); },
      .type = [](const Problem&,
                 std::string_view params) { return fmt::format("WithTileLists<{}>", params); },
      .bytes = [](const Problem&) { return sizeof(TileListParams); },
      .add =
          [](Argument& argument, const Problem&, const TileWork& work) {
            TileListParams params = tile_list_params(work.lists, work.lists_begin());
            if (work.listed()) {
              argument.own<bind_tile_lists>(params);
              return;
            }
            // Blocks that make their own lists read the sizes alone.
            params.groups = nullptr;
            params.counts = nullptr;
            params.states = params.bits = nullptr;
            argument.value(params);
          },
      .extend = [](KernelNames&, const Problem&) {}};
  return kPart;
}

}  // namespace attnforge
