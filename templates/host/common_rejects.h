// common_rejects.h - reasons that several families give for what they do not serve, cannot launch,
// or need not try. Each is empty where there is nothing to say against it:
//   if (Reason no = without_cp_async(arch)) return no;
// And what of an SM they count.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "attnforge/device.h"
#include "attnforge/problem.h"
#include "generator/launch.h"
#include "generator/reason.h"
#include "templates/host/fwd_params.h"

namespace attnforge {

/// Rows of a head from which packing heads into a query tile gains nothing.
inline constexpr int kLongQuery = 128;

/// Registers of a lane's elements of the aligned array of a score's text, for so many scores; 0:
/// there is none. Defined with the part that has some.
int row_registers(const Problem& problem, int scores);

// ---- Not served: for supports() ----

inline Reason below_sm80(const Arch& arch) {
  return arch.sm < 80 ? fmt::format("sm_{} is below sm_80", arch.name) : std::string();
}
inline Reason without_cp_async(const Arch& arch) {
  return arch.cp_async ? "" : "needs cp.async (sm_80 and later)";
}
inline Reason not_16_bits(const Problem& problem) {
  if (problem.dtype_q == DType::kFp16 || problem.dtype_q == DType::kBf16) return "";
  return fmt::format("takes fp16 or bf16, not {}", to_string(problem.dtype_q));
}
/// Refuses problems whose pointers and strides are less aligned, in bytes.
inline Reason below_alignment(const Problem& problem, int bytes) {
  if (problem.alignment_bytes >= bytes) return "";
  return Reason("needs pointers and strides aligned to {} bytes; alignment={}", bytes,
                problem.alignment_bytes);
}
inline Reason head_dim_above(const Problem& problem, int most) {
  const int largest = std::max(problem.head_dim, problem.head_dim_v);
  if (largest <= most) return "";
  return Reason("head dim {} is above its limit of {}", largest, most);
}
/// A double: the product of sizes may be more than 64 bits hold.
inline Reason too_many_blocks(double blocks) {
  if (blocks <= double(kMaxGridX)) return "";
  return fmt::format("needs {:.0f} thread blocks, more than a grid can have", blocks);
}
/// For tiles of block_m rows of one head.
inline Reason too_many_query_tiles(const Problem& problem, int block_m) {
  return too_many_blocks(double(query_tiles(problem, block_m)));
}

// ---- What an SM holds ----

/// Shared memory that the system takes from every block.
inline constexpr int kReservedSmemBytes = 1024;

/// Registers that a thread can have with blocks_per_sm blocks on an SM.
template <class Typed>
int registers_available(const Typed& c, const Arch& arch) {
  return std::min(255, arch.registers_per_sm / (c.num_threads() * c.blocks_per_sm) / 8 * 8);
}

/// `more`: bytes that a block takes beside those of its config.
template <class Typed>
bool smem_has_room(const Typed& c, const Arch& arch, int more = 0) {
  return c.blocks_per_sm * (c.smem_bytes() + more + kReservedSmemBytes) <= arch.smem_per_sm_bytes;
}

/// Whether an SM holds blocks_per_sm blocks: their shared memory and threads.
template <class Typed>
bool sm_holds_blocks(const Typed& c, const Arch& arch) {
  return smem_has_room(c, arch) && c.blocks_per_sm * c.num_threads() <= arch.max_threads_per_sm &&
         c.blocks_per_sm <= arch.max_blocks_per_sm;
}

/// Whether these blocks leave a thread what the main loop keeps in registers, and `register_slack`
/// as well. A model of what ptxas needs: with fewer it spills.
template <class Typed>
bool registers_suffice(const Typed& c, const Arch& arch, int register_slack) {
  return c.planned_registers() + register_slack <= registers_available(c, arch);
}

/// Both.
template <class Typed>
bool sm_has_room(const Typed& c, const Arch& arch, int register_slack) {
  return registers_suffice(c, arch, register_slack) && sm_holds_blocks(c, arch);
}

// ---- Illegal: a launch would fail, or the kernel is not written for it ----

template <class Typed>
Reason invalid(const Typed& c) {
  return c.valid() ? "" : "not a valid combination";
}

inline Reason too_much_smem(int smem_bytes, const Arch& arch) {
  if (smem_bytes <= arch.smem_per_block_bytes) return "";
  return Reason("needs {} bytes of shared memory, a block has {} at most", smem_bytes,
                arch.smem_per_block_bytes);
}

/// Refuses rows that are no whole fragments of the tensor cores: 16 for each warp, or a multiple.
inline Reason uneven_rows(int block_m, int warps) {
  return block_m % (16 * warps) == 0 ? "" : "block_m is not a multiple of 16 rows per warp";
}

/// Refuses softmax steps that do not divide a tile's keys.
template <class Typed>
Reason wrong_steps(const Typed& c) {
  return c.block_n % c.step_n == 0 ? "" : "step_n does not divide block_n";
}

inline Reason one_stage_of_steps(int stages, int steps) {
  return stages == 1 && steps > 1 ? "one stage reloads K after the first softmax step" : "";
}

/// Kernels take the query heads of one K/V head into a tile, all or one.
inline Reason wrong_pack(const Problem& problem, int pack_gqa) {
  if (pack_gqa == 1) return "";
  const int group = gqa_group(problem);
  if (pack_gqa == group) return "";
  return Reason("pack_gqa={} must be 1 or the {} query heads of a K/V head", pack_gqa, group);
}

inline Reason uneven_pack(int block_m, int pack_gqa) {
  return block_m % pack_gqa == 0 ? "" : "block_m is not a multiple of the packed heads";
}

/// Refuses a wgmma whose result has more columns than registers hold: ptxas does not spill there,
/// it fails.
inline Reason wide_product(int columns, int launch_registers) {
  constexpr int kOtherOperands = 32;
  if (columns / 2 + kOtherOperands <= launch_registers) return "";
  return Reason("a product of {} columns does not fit the {} registers that a thread starts with",
                columns, launch_registers);
}

/// The lanes of a warp look up the pages of a tile.
inline Reason in_many_pages(const Shape& shape, int block_n) {
  if (shape.page_size == 0 || block_n / shape.box_keys(block_n) <= 32) return "";
  return "a tile of keys lies in more pages than a warp has lanes";
}

/// Refuses what sm_holds_blocks() denies.
template <class Typed>
Reason no_room(const Typed& c, const Arch& arch) {
  if (sm_holds_blocks(c, arch)) return "";
  return Reason("{} blocks per SM do not fit: {} threads and {} bytes of shared memory each",
                c.blocks_per_sm, c.num_threads(), c.smem_bytes());
}

// ---- Needless: legal, and not worth a try ----

/// Refuses what registers_suffice() denies.
template <class Typed>
Reason few_registers(const Typed& c, const Arch& arch, int register_slack) {
  if (registers_suffice(c, arch, register_slack)) return "";
  return Reason("about {} registers for the {} that a thread has with {} blocks per SM",
                c.planned_registers() + register_slack, registers_available(c, arch),
                c.blocks_per_sm);
}

/// Skips warps with more than two fragments of 16 rows.
template <class Typed>
Reason many_rows(const Typed& c) {
  return c.row_fragments() > 2 ? "more than 32 query rows per warp leave no registers for scores"
                               : "";
}

/// `rows` of queries, packed heads counted; a tile of `least` is not too large for any.
inline Reason half_empty_queries(int block_m, int least, std::int64_t rows) {
  return block_m > least && block_m / 2 >= rows ? "half the query tile would be empty" : "";
}
inline Reason half_empty_keys(int block_n, int least, const Problem& problem) {
  return block_n > least && block_n / 2 >= problem.seqlen_kv ? "half the key tile would be empty"
                                                             : "";
}

/// Whether `more` blocks in addition to those of c, up to four, would fit too.
template <class Typed>
Reason room_for_more_blocks(const Typed& c, const Arch& arch, int register_slack, int more = 1) {
  Typed fuller = c;
  fuller.blocks_per_sm += more;
  return fuller.blocks_per_sm <= 4 && sm_has_room(fuller, arch, register_slack)
             ? "another block would fit the SM"
             : "";
}

inline Reason few_warps(int blocks_per_sm, int num_warps) {
  return blocks_per_sm * num_warps < 4 ? "fewer than 4 warps per SM" : "";
}

/// longest: rows of a head below which packing gains something.
inline Reason needless_pack(const Problem& problem, int pack_gqa, int longest = kLongQuery) {
  return pack_gqa > 1 && problem.seqlen_q >= longest
             ? "queries fill the tiles without packing heads"
             : "";
}

}  // namespace attnforge
