// score.h - what a problem makes of a score between the scaling and the user's code: exact, and as
// tensors in low precision would hold it; and the score of no key.
#pragma once

#include <cstdint>

#include "attnforge/plan.h"
#include "attnforge/problem.h"

namespace attnforge {

/// A score, what it grows by with the scaled product that it is made of, and how much more of an
/// error of that product both have together than the product itself.
struct ChangedScore {
  double value, slope = 1, errors = 1;
};
ChangedScore changed_score(const Problem& problem, double scaled);

/// The score of a head's rows that has no value; -inf: none.
float sink_of(const Problem& problem, const Tensors& tensors, std::int64_t head);

/// Throws Error(kInvalidArgument) if the run lacks a number of each head (head_numbers()).
void check_head_numbers(const Problem& problem, const Tensors& tensors);

/// What a kernel in fp32 may be off by, relative to the score.
double change_error(const Problem& problem);

/// Whether there is anything of this, or a text of the user's.
bool changes_scores(const Problem& problem);

/// Whether the size of scores follows from that of q and k. Otherwise lse says most of it.
bool knows_score_sizes(const Problem& problem);
/// Whether how a row's weight is shared among its keys follows from random q and k.
bool knows_weights(const Problem& problem);

}  // namespace attnforge
