// no_job.cuh - the job on tiles in shared memory that most kernels have: none.
#pragma once

namespace attnforge {

struct NoJob {
  static constexpr bool kNone = true;
};

}  // namespace attnforge
