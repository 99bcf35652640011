// assembly.h - a kernel put together: which parts a problem and a config take, decided once. Its
// source (kernel_source.h) and its launch (launch_work.h) are both made of it.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "attnforge/problem.h"
#include "templates/host/part.h"
#include "templates/host/piece_set.h"
#include "templates/host/tile_order.h"

namespace attnforge {

struct BwdSteps;  // templates/backward/host.h

/// The type of an argument without the members of parts.
struct OwnParams {
  std::string_view type;  // "FwdTiledParams"
  std::size_t bytes = 0, alignment = 0;

  template <class Params>
  static constexpr OwnParams of(std::string_view type) {
    return {type, sizeof(Params), alignof(Params)};
  }
};

/// The own argument of the steps around a kernel.
struct StepArgument {
  OwnParams own;
  void (*fill)(Argument&, const LaunchWork&);
};
/// That of forward kernels: FwdParams alone.
extern const StepArgument kForwardSteps;

/// Another kernel of the family's, with the kernel's argument.
struct KernelBeside {
  std::string_view end_of_symbol;  // after the family's: "_dq"
  std::string_view header;
  std::string_view bounds;  // "kConfig.other().num_threads(), 2"
  std::string_view type;  // whose run() it is: "Other<kConfig, Pieces, {}>" of the argument's type
};

/// A kernel as its family describes it. `folder`/kernel.cuh defines the template `type` with a
/// static run(); its config type is `type` + "Config".
struct KernelTraits {
  std::string symbol{};       // of the entry point, "fwd_wmma_bf16_d128_64x64"; parts add to it
  std::string_view folder{};  // below templates/: "ladder/fwd_wmma"
  std::string_view type{};    // "FwdWmma"
  OwnParams params{};
  // The config's threads of a block, and its blocks on an SM, for which registers must suffice.
  std::string_view threads = "num_threads()";
  std::string_view blocks_per_sm = "blocks_per_sm";
  // The config's last fields that only the launch reads: no member of `type`Config.
  int launch_fields = 0;
  std::string declarations{};  // lines after the headers

  const BasePieces* pieces = nullptr;    // null: the kernel takes none, and no part
  QueryTiling tiling{};                  // of a forward kernel whose tiles parts may order or split
  std::string_view block_m = "block_m";  // as the config names them
  std::string_view block_n = "block_n";
  bool gathers = false;  // where a mask decides which keys are walked over, lists say so
  std::string_view gathered_header{};  // of what the kernel alone knows of gathered tiles
  std::string_view low_bits_header{};  // and of k and v of 8 or 4 bits
  // What loads tiles of an array that scores read by rows; or a warp does by itself. Neither: lanes
  // read their elements.
  std::string_view row_ring_header{};
  bool row_boxes = false;
  // Probabilities are rounded to 16 bits: divisions and roots of the user's code to 2 ulp do.
  bool coarse = false;
  // The kernel also needs the derivative of the score: a Slope piece.
  bool slopes = false;
  std::string grid_order{};  // an Order of kernels whose splits are a dimension of the grid
  bool shares_sms = true;    // registers suffice for its blocks and those of a step after it
  const BwdSteps* gradients = nullptr;  // of a backward kernel that has steps around it
  const StepArgument* step_argument = &kForwardSteps;
  std::vector<KernelBeside> beside{};
};

/// Parts in their order.
struct PartList {
  std::array<const Part*, kMaxParts> list{};
  std::size_t count = 0;

  void push_back(const Part* part) { list[count++] = part; }
  auto begin() const { return list.begin(); }
  auto end() const { return list.begin() + static_cast<std::ptrdiff_t>(count); }
};

/// Borrows what it was made of.
struct Assembly {
  const Problem& problem;
  const Shape& shape;  // the problem's
  const KernelTraits& kernel;
  TileSource tiles = TileSource::kSizes;
  PartList parts{};        // in the order of their slots
  PartList in_argument{};  // those with a member of the argument, in the order of the members

  /// Whether lists say which keys a query tile walks over.
  bool gathers() const { return kernel.gathers && shape.has_key_lists(); }
  /// Whether steps before the kernel write these.
  bool lists_by_steps() const { return gathers() && kernel.tiling.own_list_groups == 0; }
  /// Whether what they write is of the mask's text, which a step before them asks. The last of its
  /// blocks also makes the order of query tiles.
  bool lists_of_text() const {
    return lists_by_steps() && shape.user_mask != 0 && !shape.has_block_mask();
  }
  bool splits() const { return kernel.tiling.num_splits > 1 || kernel.tiling.shares; }
};
/// Cost: no text is made, and no memory is allocated.
Assembly assemble(const Problem& problem, const Shape& shape, const KernelTraits& kernel);

/// A kernel's symbol: that of the family's config, and what tells kernels of other problems apart.
/// `end`: that of one of KernelTraits::beside.
std::string symbol_of(const Assembly& assembly, std::string_view end = {});

/// The argument of the kernel, and that of the steps of one of its parts.
std::string argument_type(const Assembly& assembly);
std::size_t argument_bytes(const Assembly& assembly);
std::string step_argument_type(const Assembly& assembly, const Part& part);
std::size_t step_argument_bytes(const Assembly& assembly, const Part& part);

/// The slots filled, without the steps.
Entry entry_of(const Assembly& assembly);

}  // namespace attnforge
