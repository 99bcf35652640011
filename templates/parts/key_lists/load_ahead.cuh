// load_ahead.cuh - how the producer of fwd_wgmma_sm90a loads gathered tiles: their groups, or
// pages, come from global memory and are asked for two tiles ahead.
#pragma once

#include "base.cuh"

namespace attnforge {

/// Loads the keys that `work` walks over, in the order in which consumers want them: K of a tile
/// before V of the one before it. ask_for_next() is called once, before the last keys are loaded.
template <class Producer, class Keys, class Work, class AskForNext>
ATTNFORGE_DEVICE void load_ahead(Producer& producer, const Keys& keys, const Work& work, int tile,
                                 const AskForNext& ask_for_next) {
  auto now = keys.of_tile(work.walk, 0), next = keys.of_tile(work.walk, 1);
  producer.load_k(keys, now);
  if constexpr (Producer::keys_first()) producer.load_q(work, tile);
  for (int i = 1; i < work.walk.count(); ++i) {
    const auto later = keys.of_tile(work.walk, i + 1);
    producer.load_k(keys, next);
    producer.load_v(keys, now);
    now = next;
    next = later;
  }
  ask_for_next();
  producer.load_v(keys, now);
}

}  // namespace attnforge
