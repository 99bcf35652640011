// list.cpp - all parts, in the order in which they take their slots.
#include <array>

#include "templates/host/part.h"

namespace attnforge {

extern const Part softcap_part;       // templates/parts/softcap/host
extern const Part lengths_part;       // templates/parts/lengths/host
extern const Part queue_part;         // the same
extern const Part block_mask_part;    // templates/parts/block_mask/host
extern const Part code_part;          // templates/parts/user_code/host
extern const Part key_lists_part;     // templates/parts/key_lists/host
extern const Part query_bits_part;    // templates/parts/query_bits/host
extern const Part sinks_part;         // templates/parts/sinks/host
extern const Part pages_part;         // templates/parts/pages/host
extern const Part low_bits_part;      // templates/parts/low_bits/host
extern const Part rotation_part;      // templates/parts/rope/host
extern const Part splits_part;        // templates/parts/splits/host
extern const Part gradients_part;     // templates/backward/host
extern const Part group_splits_part;  // templates/parts/group_splits/host

std::span<const Part* const> all_parts() {
  static constexpr std::array kParts = {
      &softcap_part,     // fills the score, and its slope
      &lengths_part,     // fills the lengths
      &block_mask_part,  // offers which blocks rows see
      &code_part,        // wraps the score; fills the mask and the walk, or offers what hides keys
      &key_lists_part,   // fills walk, mask and keys, by what is offered
      &query_bits_part,  // the same of backward kernels: wraps the queries
      &sinks_part,       // fills the output
      &pages_part,       // fills the keys, or replaces those of lists
      &low_bits_part,    // names the header of a family's own
      &rotation_part,    // of oracles; other kernels have a step around all of it
      &queue_part,       // fills the order
      &splits_part,      // wraps order and walk, fills the output
      &group_splits_part,  // a step after those of gradients
      &gradients_part,     // steps alone
  };
  static_assert(kParts.size() <= kMaxParts);
  return kParts;
}

std::span<const Part* const> argument_parts() {
  // That of splits lies next to the family's own: their pieces know no other members.
  static constexpr std::array kParts = {
      &splits_part,    &group_splits_part, &lengths_part, &block_mask_part, &code_part,
      &key_lists_part, &sinks_part,        &pages_part,   &low_bits_part,   &rotation_part};
  return kParts;
}

}  // namespace attnforge
