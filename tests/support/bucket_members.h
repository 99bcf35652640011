// bucket_members.h - other problems of a problem's bucket: what plans of one loaded kernel serve.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "attnforge/error.h"
#include "attnforge/problem.h"
#include "generator/problem/bucket.h"

namespace attnforge::test {

/// The shortest length of the bucket that `seqlen` is in.
inline std::int64_t least_of_bucket(std::int64_t seqlen) {
  const std::int64_t rounded = bucket_seqlen(seqlen);
  std::int64_t below = -1, least = rounded;  // the grid is monotone
  while (least - below > 1) {
    const std::int64_t middle = below + (least - below) / 2;
    (bucket_seqlen(middle) == rounded ? least : below) = middle;
  }
  return least;
}

/// Valid, with the bucket of `problem`, whose sizes and run-time values it has otherwise; `problem`
/// itself where nothing else was found. `choices`: see any_problem.h. batch_invariant problems have
/// up to 200 sequences.
template <class Choices>
Problem member_of_bucket(Choices& choices, const Problem& problem) {
  constexpr int kTries = 8;
  const Problem rounded = bucket(problem);
  const auto length = [&](std::int64_t seqlen) {
    return choices.between(least_of_bucket(seqlen), bucket_seqlen(seqlen));
  };
  for (int i = 0; i < kTries; ++i) {
    Problem p = problem;
    const std::int64_t most = bucket_batch(problem.batch);
    if (problem.batch > 0)
      p.batch = problem.batch_invariant ? choices.between(1, 200)
                                        : choices.between(most / 2 + 1, most);
    if (p.mask_batch != 1) p.mask_batch = p.batch;
    p.seqlen_q = length(problem.seqlen_q);
    p.seqlen_kv = problem.seqlen_kv == problem.seqlen_q ? p.seqlen_q : length(problem.seqlen_kv);
    if (p.layout != Layout::kPackedQkv)
      p.layout = choices.among(std::vector{Layout::kBshd, Layout::kBhsd});
    // As full as before, more or less.
    const auto tokens = [&](std::int64_t exact, std::int64_t room, std::int64_t room_before) {
      if (exact == 0 || room == 0 || room_before == 0) return exact;
      const double as_full = double(exact) / double(room_before) * double(room);
      return std::clamp(static_cast<std::int64_t>(as_full * double(choices.between(70, 140)) / 100),
                        std::int64_t{1}, room);
    };
    p.tokens_q = tokens(p.tokens_q, p.batch * p.seqlen_q, problem.batch * problem.seqlen_q);
    p.tokens_kv = p.layout == Layout::kPackedQkv ? p.tokens_q
                                                 : tokens(p.tokens_kv, p.batch * p.seqlen_kv,
                                                          problem.batch * problem.seqlen_kv);
    try {
      validate(p);
    } catch (const Error&) {
      continue;  // a product of sizes is too large, or layouts and lengths do not go together
    }
    if (bucket(p) == rounded) return p;
  }
  return problem;
}

}  // namespace attnforge::test
