// likely_lse.h - an lse for made-up inputs of a problem that reads one, without a forward.
#pragma once

#include "attnforge/host_tensors.h"
#include "attnforge/problem.h"

namespace attnforge {

/// Sets host.lse to about what q and k of mean 0 and variance 1 give, so that the probabilities of
/// a row sum up to about 1: log(keys that the row sees) + 1/2, -inf for a row that sees none.
/// `host` has the sequences already. Rows after the end of a sequence are NaN.
void set_likely_lse(const Problem& problem, HostTensors& host);

}  // namespace attnforge
