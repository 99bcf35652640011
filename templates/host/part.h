// part.h - what an optional part of a problem, or of a config, adds to a kernel: pieces, a member
// of its argument after the family's own, steps around it, scratch. Families name no part.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attnforge/problem.h"
#include "generator/arch.h"
#include "generator/launch.h"
#include "generator/reason.h"
#include "generator/shape.h"
#include "templates/host/argument.h"
#include "templates/host/piece_set.h"
#include "templates/host/tile_order.h"

namespace attnforge {

struct Assembly;    // templates/host/assembly.h
struct LaunchWork;  // templates/host/launch_work.h

/// What parts add to the generated lines.
struct Entry {
  PieceSet pieces;
  std::string argument;                // type of the kernel's, with the members of all parts
  std::string declarations{};          // after the headers
  std::vector<std::string> options{};  // of the compiler
};

/// A kernel that a part launches before or after the family's.
struct Step {
  struct Text {
    int threads = 0;        // of a block
    int blocks_per_sm = 0;  // for which registers must suffice; 0: not said
    std::string type;       // whose run() it is
    std::string declarations{};
  };
  std::string_view kernel;                // its symbol
  bool after = false;                     // the family's; else before it
  bool overlaps = true;                   // from sm_90 on, with the step before it
  bool (*in)(const Assembly&) = nullptr;  // null: wherever its part is
  /// Its lines of the source. Headers that it needs are included in entry.pieces.
  Text (*text)(Entry& entry, const Assembly&) = nullptr;
  /// Its launch, without the argument. No blocks: there is nothing to do.
  LaunchStep (*launch)(const LaunchWork&) = nullptr;
};

struct Part {
  std::string_view name;  // "pages"
  bool (*in)(const Assembly&) = nullptr;

  // Its member of the argument; null: it has none.
  /// The type of an argument with the member, made of that without it: "WithSizes<Params, 2>".
  std::string (*type)(const Assembly&, std::string_view params) = nullptr;
  /// Aligned to kPartAlignment, its size a multiple of that.
  std::size_t (*bytes)(const Assembly&) = nullptr;
  void (*add)(Argument&, const LaunchWork&) = nullptr;
  bool steps_have_it = true;  // false: of its own steps and of the kernel alone

  void (*fill)(Entry&, const Assembly&) = nullptr;  // its pieces; null: none
  std::span<const Step> steps{};
  std::size_t (*scratch)(const LaunchWork&) = nullptr;  // bytes in the workspace; null: none

  // Rules for configs, before there is an Assembly; null: none.
  Reason (*illegal)(const Shape&, const Problem&, const QueryTiling&, const DeviceFacts&) = nullptr;
  Reason (*needless)(const Shape&, const Problem&, const QueryTiling&,
                     const DeviceFacts&) = nullptr;
  double (*steps_us)(const Shape&, const Problem&, const QueryTiling&,
                     const DeviceFacts&) = nullptr;

  /// The end of a kernel's symbol, of any problem; null: none.
  std::string (*suffix)(const Problem&) = nullptr;
};
inline constexpr std::size_t kPartAlignment = 16;
inline constexpr std::size_t kMaxParts = 16;

/// All parts, in the order in which they fill slots. A part may wrap what those before it filled,
/// and reads what they offer. Steps before the kernel are launched in this order, steps after it
/// in the opposite one: the last part is closest to the kernel.
std::span<const Part* const> all_parts();
/// Those with a member of the argument, in the order of the members.
std::span<const Part* const> argument_parts();

// What parts say of a config before a kernel is put together: what would fail, what a search skips,
// and what their steps take.

/// "" or the first reason of a part. A search asks about each point: nanoseconds where no part has
/// any.
Reason illegal_by_parts(const Shape& shape, const Problem& problem, const QueryTiling& tiling,
                        const DeviceFacts& device);
Reason needless_by_parts(const Shape& shape, const Problem& problem, const QueryTiling& tiling,
                         const DeviceFacts& device);
/// About what the steps of configs cost where they differ.
double part_steps_us(const Shape& shape, const Problem& problem, const QueryTiling& tiling,
                     const DeviceFacts& device);

}  // namespace attnforge
