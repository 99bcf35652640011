// own_list.cuh - the list of keys of a block's one query tile, which the block makes before all
// else: where every tile has an SM of its own no order of tiles is asked for, and the steps that
// write lists and order them would take longer than what a mask saves.
#pragma once

#include "parts/key_lists/list_writer.cuh"
#include "parts/key_lists/params.h"
#include "parts/key_lists/place.cuh"
#include "parts/key_lists/walk.cuh"
#include "tile/tile_order.cuh"

namespace attnforge {

/// In shared memory, after all else of config C: no copy by TMA ever writes there.
template <auto C>
struct OwnList {
  static constexpr bool kNone = false;

  struct Memory {
    KeyGroup groups[C.own_list_groups()];  // before they are found, their states
    FragmentKeys fragments[C.block_m() / 16];
    int of_warps[C.num_threads() / 32];
    int tiles;
  };
  static_assert(sizeof(Memory) <= C.own_list_bytes(), "the launch has room for it");

  ATTNFORGE_DEVICE static Memory& memory() {
    extern __shared__ __align__(1024) u8 shared_memory[];
    return *reinterpret_cast<Memory*>(shared_memory + C.own_list_begin());
  }
};

/// Source and Window as KeyListWriter takes them.
template <auto C, class Source, class Window>
struct MakeOwnList {
  /// All threads of the block call this, with a barrier after it. The argument has a KeyListParams
  /// `lists`, whose sizes are read.
  template <class Pieces, class Params>
  ATTNFORGE_DEVICE static void make(const Params& params) {
    constexpr int kGroups = C.key_groups(), kMostGroups = C.own_list_groups();
    using Maker = KeyListWriter<typename Pieces::Lengths, Source, C.block_m(), kGroups,
                                C.block_n / kGroups, Window, C.num_threads(), kMostGroups>;
    auto& list = OwnList<C>::memory();
    const FwdParams& p = params.fwd;
    const TilePlace tile = Pieces::Order::place(params, int(blockIdx.x));
    const int sequence = tile.head / p.num_heads_q, head = tile.head % p.num_heads_q;
    const ListPlace place(params.lists, list_index(p, params.lists, sequence, head, tile.m_block));
    // A group has half a list's entry for its state, and all states are read before the first
    // group is written: no list is longer.
    auto& states = reinterpret_cast<u32(&)[kMostGroups]>(list.groups);
    const int tiles = Maker::write(params, place, states, list.fragments, list.of_warps,
                                   list.groups);
    if (threadIdx.x == 0) list.tiles = tiles;
  }
};

}  // namespace attnforge
