// host.h - masks that decide which keys a query tile walks over: the lists that steps before
// the kernel write, and the pieces of a kernel's source that read them.
#pragma once

#include <cstdint>

#include "attnforge/problem.h"
#include "generator/launch.h"
#include "generator/shape.h"
#include "templates/parts/key_lists/params.h"

namespace attnforge {

struct LaunchWork;  // templates/host/launch_work.h

/// Lists of one kernel. All numbers are 0 where its tiles are not listed.
struct KeyLists {
  int groups = 0, group_keys = 0;  // of a key tile
  int heads = 0, batch = 0;        // of the mask
  std::int64_t m_blocks = 0;       // query tiles of a head
  std::int64_t groups_of_sequence = 0;
  bool of_text = false;            // the mask's text says what is seen: a step more
  int parts = 0;                   // words for each list: which tiles its rows see, 64 at a time
  std::int64_t bits_of_group = 0;  // bytes: of all rows of a query tile, where that step writes any

  std::int64_t lists() const { return m_blocks * heads * batch; }
  std::int64_t capacity() const;  // groups of a list
  std::int64_t bits_bytes() const { return lists() * groups_of_sequence * bits_of_group; }
  std::int64_t bytes() const;  // in the workspace
};
/// `shape` is the problem's: callers that ask for many configs have it, and it takes the reading of
/// a mask's text.
KeyLists key_lists(const Problem& problem, const Shape& shape, int block_m, int block_n);
/// The lists of a launch.
KeyLists key_lists(const LaunchWork& work);

/// The member of an argument: the lists begin `begin` bytes after the start of the workspace.
KeyListParams key_list_params(const KeyLists& lists, std::size_t begin);
/// Adds the workspace's address to where the lists begin.
void bind_key_lists(KeyListParams& lists, const Tensors& tensors, const RunMemory& memory);

/// Threads of a block of the steps, and blocks on an SM for which registers must suffice.
inline constexpr int kListStepThreads = 256, kListStepBlocks = 4;
/// Blocks of the step before, of a mask's text, each of so many groups of a list: of many where the
/// text's terms decide all of it, as few pairs are left to ask then.
constexpr int state_groups_of_block(bool terms_decide) { return terms_decide ? 16 : 4; }
std::int64_t state_blocks(const KeyLists& lists, int groups_of_block);

}  // namespace attnforge
