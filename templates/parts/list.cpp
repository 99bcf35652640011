// list.cpp - all parts, in the order in which they take their slots.
#include <array>

#include "templates/host/part.h"

namespace attnforge {

const Part& softcap_part();     // templates/parts/softcap/host
const Part& lengths_part();     // templates/parts/lengths/host
const Part& queue_part();       // the same
const Part& block_mask_part();  // templates/parts/block_mask/host
const Part& code_part();        // templates/parts/user_code/host
const Part& key_lists_part();   // templates/parts/key_lists/host
const Part& query_bits_part();  // templates/parts/query_bits/host
const Part& sinks_part();       // templates/parts/sinks/host
const Part& pages_part();       // templates/parts/pages/host
const Part& rotation_part();    // templates/parts/rope/host
const Part& splits_part();      // templates/parts/splits/host
const Part& gradients_part();   // templates/backward/host

std::span<const Part* const> all_parts() {
  static const std::array kParts = {
      &softcap_part(),     // fills the score, and its slope
      &lengths_part(),     // fills the lengths
      &block_mask_part(),  // offers which blocks rows see
      &code_part(),       // wraps the score; fills the mask and the walk, or offers what hides keys
      &key_lists_part(),  // fills walk, mask and keys, by what is offered
      &query_bits_part(),  // the same of backward kernels: wraps the queries
      &sinks_part(),       // fills the output
      &pages_part(),       // fills the keys, or replaces those of lists
      &rotation_part(),    // of oracles; other kernels have a step around all of it
      &queue_part(),       // fills the order
      &splits_part(),      // wraps order and walk, fills the output
      &gradients_part(),   // steps alone
  };
  static_assert(kParts.size() <= kMaxParts);
  return kParts;
}

std::span<const Part* const> argument_parts() {
  // That of splits lies next to the family's own: their pieces know no other members.
  static const std::array kParts = {&splits_part(), &lengths_part(),   &block_mask_part(),
                                    &code_part(),   &key_lists_part(), &sinks_part(),
                                    &pages_part(),  &rotation_part()};
  return kParts;
}

}  // namespace attnforge
