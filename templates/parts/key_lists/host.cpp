#include "templates/parts/key_lists/host.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "attnforge/error.h"
#include "generator/shape.h"
#include "generator/user_code/user_code.h"
#include "templates/host/assembly.h"
#include "templates/host/fwd_params.h"
#include "templates/host/launch_work.h"
#include "templates/host/visited_keys.h"
#include "templates/parts/lengths/host.h"

namespace attnforge {

extern const Part key_lists_part;

namespace {

constexpr const char* kListsKernel = "key_lists";

std::int64_t quotient_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

std::int64_t KeyLists::capacity() const {
  return groups == 0 ? 0 : quotient_up(groups_of_sequence, groups) * groups;
}

std::int64_t KeyLists::bytes() const {
  const std::int64_t states = of_text ? groups_of_sequence * sizeof(std::uint32_t) : 0;
  return lists() * (capacity() * std::int64_t{sizeof(KeyGroup)} + states +
                    std::int64_t{sizeof(int)} * (1 + parts)) +
         bits_bytes();
}

KeyLists key_lists(const Problem& problem, const Shape& shape, int block_m, int block_n) {
  KeyLists result;
  if (!shape.has_key_lists()) return result;
  result.groups = shape.key_groups_of(block_n);
  result.group_keys = block_n / result.groups;
  result.m_blocks = quotient_up(problem.seqlen_q, block_m);
  result.groups_of_sequence = quotient_up(problem.seqlen_kv, result.group_keys);
  result.of_text = !shape.has_block_mask();
  if (result.of_text) result.parts = block_m / 64;
  if (shape.text_bits)
    result.bits_of_group = block_m * std::int64_t{Shape::bits_row_words(result.group_keys)} *
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

KeyListParams key_list_params(const KeyLists& lists, std::size_t begin) {
  KeyListParams params{};
  const std::size_t groups_bytes = lists.lists() * lists.capacity() * sizeof(KeyGroup);
  const std::size_t states_bytes = lists.of_text ? lists.lists() * lists.groups_of_sequence *
                                                       sizeof(std::uint32_t)
                                                 : 0;
  params.bits = reinterpret_cast<u32*>(begin);
  begin += static_cast<std::size_t>(lists.bits_bytes());
  params.groups = reinterpret_cast<KeyGroup*>(begin);
  params.states = reinterpret_cast<u32*>(begin + groups_bytes);
  params.counts = reinterpret_cast<int*>(begin + groups_bytes + states_bytes);
  params.parts = reinterpret_cast<u32*>(begin + groups_bytes + states_bytes +
                                        lists.lists() * sizeof(int));
  params.capacity = lists.capacity(), params.m_blocks = static_cast<int>(lists.m_blocks);
  params.heads = lists.heads, params.batch = lists.batch;
  return params;
}

KeyLists key_lists(const LaunchWork& work) {
  const QueryTiling& tiling = work.assembly.kernel.tiling;
  return key_lists(work.problem(), work.assembly.shape, tiling.block_m, tiling.block_n);
}

std::int64_t state_blocks(const KeyLists& lists, int groups_of_block) {
  // One at least, which begins to count the lists.
  return std::max(std::int64_t{1},
                  lists.lists() * quotient_up(lists.groups_of_sequence, groups_of_block));
}

void bind_key_lists(KeyListParams& lists, const Tensors&, const RunMemory& memory) {
  const auto place = [&](auto*& pointer) {
    pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(
        static_cast<std::byte*>(memory.workspace) + reinterpret_cast<std::uintptr_t>(pointer));
  };
  place(lists.groups), place(lists.counts), place(lists.states), place(lists.bits);
  place(lists.parts);
}

namespace {

/// Whether a list has room in what a block has for its own.
bool own_list_fits(const KeyLists& lists, const QueryTiling& tiling) {
  return lists.capacity() <= tiling.own_list_groups;
}

/// The kernel is not written for it, or a launch cannot write the lists.
Reason illegal_lists(const Shape& shape, const Problem& problem, const QueryTiling& tiling,
                     const DeviceFacts& device) {
  constexpr std::int64_t kMostGroups = 1 << 30;
  if (!shape.has_key_lists()) return "";
  if (tiling.pack_gqa > 1) return "heads that share a tile cannot have masks of their own";
  if (tiling.block_m > 16 * KeyGroup::kMostFragments) return "lists know tiles of up to 256 rows";
  if (!shape.blocks_fit(tiling.block_n))
    return Reason("tiles of {} keys and blocks of {} do not divide one another", tiling.block_n,
                  shape.mask_block_kv);
  const KeyLists lists = key_lists(problem, shape, tiling.block_m, tiling.block_n);
  // As doubles they do not overflow.
  const double blocks = double(lists.lists()) *
                        double(quotient_up(lists.groups_of_sequence, state_groups_of_block(false)));
  if (blocks > double(kMaxGridX) || lists.groups_of_sequence > kMostGroups)
    return "the lists of keys have more entries than a grid can write";
  if (tiling.own_list_groups != 0 && !own_list_fits(lists, tiling))
    return Reason("{} groups of keys do not fit the {} of a block's own list", lists.capacity(),
                  tiling.own_list_groups);
  if (lists.bytes() <= device.memory_bytes) return "";
  return Reason("the lists of keys take {} GB, more than the GPU's memory", lists.bytes() >> 30);
}

/// Lists that take a large workspace.
Reason needless_lists(const Shape& shape, const Problem& problem, const QueryTiling& tiling,
                      const DeviceFacts&) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 34;
  if (!shape.has_key_lists()) return "";
  return key_lists(problem, shape, tiling.block_m, tiling.block_n).bytes() > kMostBytes
             ? "the lists of keys do not fit 16 GB"
             : "";
}

/// What the steps take, less what blocks with their own lists do in their stead. 0 where every
/// kernel has the steps.
double steps_us(const Shape& shape, const Problem& problem, const QueryTiling& tiling,
                const DeviceFacts& device) {
  constexpr double kSavedUs = 6;  // on an H200, 8 heads of 1024 and 2048 queries: 5 to 9
  return tiling.own_list_groups == 0 && may_have_own_lists(shape, problem, device) ? kSavedUs : 0;
}

/// Whether warpgroups leave out the ends of a list that their rows do not see.
bool walks_in_parts(const Assembly& a) {
  return a.lists_of_text() && a.kernel.pieces->tma && !a.splits() && a.kernel.tiling.block_m > 64;
}

/// Keys come in groups; what hides them inside one is what other parts offer.
void fill_lists(Entry& entry, const Assembly& a) {
  PieceSet& pieces = entry.pieces;
  const std::string window = pieces.dense(Slot::kMask);
  const bool own = !a.lists_by_steps();
  std::string walk = fmt::format("ListWalk<kConfig.key_groups(){}>",
                                 own ? ", OwnList<kConfig>" : "");
  if (walks_in_parts(a)) walk = "PartedListWalk<kConfig.warpgroups>";
  pieces.fill(Slot::kWalk, {std::move(walk), "parts/key_lists/walk.cuh"});
  pieces.fill(Slot::kMask, {fmt::format("ListMask<{}, {}>", window, pieces.type(Slot::kListRule)),
                            "parts/key_lists/mask.cuh"});
  if (a.kernel.pieces->tma)
    pieces.fill(Slot::kKeys, {"GroupedTmaKeys<kConfig>", "parts/key_lists/tma_keys.cuh"});
  else
    pieces.fill(Slot::kKeys, {fmt::format("GatheredKeys<kDtype, kConfig.key_groups(), "
                                          "kConfig.{} / kConfig.key_groups()>",
                                          a.kernel.block_n),
                              "parts/key_lists/keys.cuh", "template <int kDtype> "});
  if (own)
    pieces.fill(Slot::kLists, {fmt::format("MakeOwnList<kConfig, {}, {}>",
                                           pieces.type(Slot::kListSource), window),
                               "parts/key_lists/own_list.cuh"});
  if (!a.kernel.gathered_header.empty()) pieces.include(a.kernel.gathered_header);
}

constexpr Step kListsStep{
    .kernel = kListsKernel,
    .in = [](const Assembly& a) { return a.lists_by_steps(); },
    .text =
        [](Entry& entry, const Assembly& a) {
          entry.pieces.include("parts/key_lists/step_lists.cuh");
          std::string type = fmt::format(
              "MakeKeyLists<Pieces::Lengths, {0}, kConfig.{1}, kConfig.key_groups(), kConfig.{2} / "
              "kConfig.key_groups(), {3}",
              entry.pieces.type(Slot::kListSource), a.kernel.block_m, a.kernel.block_n,
              entry.pieces.dense(Slot::kMask));
          if (a.lists_of_text())
            type = fmt::format("MakeListsAndQueue<{}, {}, {}>, {}", type, kListStepThreads,
                               walks_in_parts(a) ? "kConfig.warpgroups" : "0",
                               tile_queue_type(entry, a, kListStepThreads));
          return Step::Text{
              .threads = kListStepThreads, .blocks_per_sm = kListStepBlocks, .type = type + ">"};
        },
    .launch =
        [](const LaunchWork& work) {
          return step_of(kListsKernel, kListStepThreads, 0, key_lists(work).lists());
        }};

void add_lists(Argument& argument, const LaunchWork& work) {
  const KeyLists lists = key_lists(work);
  KeyListParams params = key_list_params(lists, work.begin_of(key_lists_part));
  if (work.assembly.lists_by_steps()) {
    argument.own<bind_key_lists>(params);
    return;
  }
  // Blocks that make their own lists read the sizes alone.
  ATTNFORGE_ASSERT(own_list_fits(lists, work.assembly.kernel.tiling),
                   "illegal() lets no longer list through");
  params.groups = nullptr, params.counts = nullptr, params.states = params.bits = nullptr;
  params.parts = nullptr;
  argument.value(params);
}

}  // namespace

constinit const Part key_lists_part{
    .name = "key_lists",
    .in = [](const Assembly& a) { return a.gathers(); },
    .type = [](const Assembly&,
               std::string_view params) { return fmt::format("WithKeyLists<{}>", params); },
    .bytes = [](const Assembly&) { return sizeof(KeyListParams); },
    .add = add_lists,
    .fill = fill_lists,
    .steps = {&kListsStep, 1},
    .scratch = [](const LaunchWork& work) -> std::size_t {
      if (!work.assembly.lists_by_steps()) return 0;
      return static_cast<std::size_t>(key_lists(work).bytes());
    },
    .illegal = illegal_lists,
    .needless = needless_lists,
    .steps_us = steps_us};

}  // namespace attnforge
