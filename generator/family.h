// family.h - what a kernel family must answer: a table of pure functions. No driver, no files, no
// globals.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attnforge/device.h"
#include "attnforge/plan.h"
#include "attnforge/problem.h"
#include "generator/config.h"
#include "generator/launch.h"
#include "generator/problem/features.h"
#include "generator/reason.h"
#include "generator/source.h"

namespace attnforge {

/// One dimension of a search space. One that has no choice for a problem has one value.
struct Axis {
  std::string_view name;
  std::vector<int> values;
};

/// A point of a search space, as its family sees it.
struct Point {
  std::span<const int> values;  // of the axes, in their order; borrowed for the call
  Reason cut;              // why it is not a candidate: illegal, or needless; empty if it is one
  double estimate_us = 0;  // of a candidate
  double spread = 1;       // of it: Family::spread()
};

/// The tile of rows that a block computes, and that of keys which it walks by. 0: no such tile.
struct TileShape {
  int block_m = 0, block_n = 0;
};

/// What a family is for. Searches and plans take products; the others serve what no product does,
/// tier by tier in this order, or named by the caller.
enum class Tier { kProduct, kLadder, kOracle };
std::string_view to_string(Tier tier);  // "product", "ladder", "oracle"

/// What can be known of a family's configs without a GPU. Those of its functions that take a config
/// are written for the family's own typed config; typed_family() (generator/typed_family.h) makes
/// these of them.
struct Family {
  std::string_view name;     // folder name, also the value in the database
  std::string_view summary;  // one line for people
  Op op = Op::kForward;      // whose problems it is asked about
  Tier tier = Tier::kProduct;
  /// Used only if the caller names it, even if no other family serves the problem: its workspace
  /// grows with seqlen_q * seqlen_kv.
  bool only_named = false;
  Features features = 0;
  /// The searched fields, in the order of a config's, and which values each may have. No function
  /// below is asked about a config with others. Borrowed; lives as long as the program.
  std::span<const FieldRule> fields{};

  /// What was searched, in words for tables and logs: "2x64 x 128 keys, stages 2+2, ping-pong".
  /// Different configs have different words. Null: the config's text does.
  std::string (*describe)(const Config&) = nullptr;
  /// "" if it can serve the problem's dtypes, head dims and arch, else the reason.
  std::string (*supports)(const Problem&, const Arch&) = nullptr;
  /// The search space: product of the axes, which are `fields` in their order.
  std::vector<Axis> (*axes)(const Problem&, const DeviceFacts&) = nullptr;
  /// "" if legal, else what would fail or be wrong: the config does not compile, does not fit the
  /// GPU, divides by 0, leaves out queries, or breaks a promise of the problem (deterministic,
  /// batch_invariant). Asked of every config that is used, however it was chosen. A batch_invariant
  /// config is chosen for a few sequences and serves each batch: of the batch only the limits of
  /// the GPU, its memory and its grids, may count here.
  std::string (*illegal)(const Config&, const Problem&, const DeviceFacts&) = nullptr;
  /// "" if a search should try a legal config, else why it is left out: what rules of thumb and
  /// models of registers expect to be slower. Asked by searches alone. It may be wrong: what a
  /// person forces, or what won, is used all the same.
  std::string (*needless)(const Config&, const Problem&, const DeviceFacts&) = nullptr;
  /// Predicted time. Orders candidates; decides when nothing was measured.
  double (*estimate_us)(const Config&, const Problem&, const DeviceFacts&) = nullptr;
  /// Of a bucket: how many times as long its smaller batches take on the average as its own, for
  /// the same work. The final of a search, which times the bucket alone, counts it. Null: 1.
  double (*spread)(const Config&, const Problem&, const DeviceFacts&) = nullptr;
  /// Calls `visit` for each point of the product of `axes`, the last axis fastest, with what
  /// illegal(), needless() and estimate_us() would answer. `axes` are axes()'s, perhaps with a
  /// value forced.
  void (*for_each_point)(std::span<const Axis> axes, const Problem&, const DeviceFacts&,
                         const std::function<void(const Point&)>& visit) = nullptr;
  /// For people: pictures of what is computed where.
  TileShape (*tile_shape)(const Config&, const Problem&) = nullptr;
  Source (*render)(const Config&, const Problem&) = nullptr;
  /// Grid, block, shared memory, workspace, and arguments with the parts that a run fills in. A few
  /// microseconds at most.
  Launch (*launch)(const Config&, const Problem&, const DeviceFacts&) = nullptr;
};

}  // namespace attnforge
