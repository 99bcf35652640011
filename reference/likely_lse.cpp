#include "reference/likely_lse.h"

#include <cmath>
#include <limits>

#include "reference/sequences.h"
#include "reference/visible.h"

namespace attnforge {

void set_likely_lse(const Problem& problem, HostTensors& host) {
  host.lse.assign(static_cast<std::size_t>(problem.num_heads_q * total_tokens(problem).q),
                  std::numeric_limits<float>::quiet_NaN());
  const Sequences sequences = sequences_of(problem, host);
  const Rows strides = contiguous_tensors(problem).lse;
  // Scores are about normal, with variance 1: the mean of exp(s) is exp(1/2).
  constexpr double kLogMean = 0.5;
  for (std::int64_t batch = 0; batch < problem.batch; ++batch) {
    const Problem one = problem_of_sequence(sequences, batch);
    for (std::int64_t query = 0; query < one.seqlen_q; ++query) {
      const KeyRange keys = visible_keys(one, query);
      const auto count = static_cast<double>(keys.last - keys.first + 1);
      const double lse = count > 0 ? std::log(count * effective_density(problem)) + kLogMean
                                   : -std::numeric_limits<double>::infinity();
      const QueryRow place = place_of(sequences, {batch, 0, query});
      float* const row = host.lse.data() + place.batch * strides.stride_batch + place.query;
      for (std::int64_t head = 0; head < problem.num_heads_q; ++head)
        row[head * strides.stride_head] = static_cast<float>(lse);
    }
  }
}

}  // namespace attnforge
