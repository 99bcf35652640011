// any_problem.h - valid problems out of an input's bytes.
#pragma once

#include "attnforge/problem.h"
#include "tests/fuzz/fuzz.h"

namespace attnforge::fuzz {

/// The most of each size, as powers of two.
struct MostSizes {
  int batch_bits = 12;
  int heads_bits = 6;
  int seqlen_bits = 20;
};

/// Passes validate(), as a problem of any part and size up to `most`.
Problem any_problem(Bytes& bytes, const MostSizes& most);

}  // namespace attnforge::fuzz
