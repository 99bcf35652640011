// mask_rule.h - a mask's text asked on the CPU, for pictures of it and counts of what it sees.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attnforge/problem.h"
#include "generator/user_code/code_value.h"

namespace attnforge {

class MaskRule {
 public:
  struct Pair {
    std::int64_t batch = 0, head = 0, q = 0, k = 0;
  };

  /// Reads a mask text of the problem, or what windows leave of one. `arrays` are the bytes of each
  /// of the problem's arguments, borrowed; empty ones are numbers, or not known. Numbers are what
  /// problem.args gives them, sequences as long as the problem says.
  MaskRule(std::string_view text, const Problem& problem,
           std::span<const std::span<const std::byte>> arrays);

  /// "" if sees() can be asked, else why not: "it calls sinpif".
  const std::string& unknown() const { return tree_.unknown; }

  /// What sees() computes, in operations of a few nanoseconds.
  std::int64_t operations() const;

  /// Elements outside of an array are 0. Thread-safe.
  bool sees(const Pair& pair) const {
    return value_of(tree_, {0, pair.batch, pair.head, pair.q, pair.k, seqlen_q_, seqlen_kv_},
                    values_) != 0;
  }

 private:
  CodeTree tree_;
  std::vector<CodeValue> values_;  // of the arguments
  std::int64_t seqlen_q_, seqlen_kv_;
};

}  // namespace attnforge
