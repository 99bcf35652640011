#include "plan/workspace_bound.h"

#include "attnforge/error.h"
#include "generator/config.h"
#include "generator/problem/bucket.h"
#include "templates/registry.h"

namespace attnforge {

std::size_t workspace_bound(Problem largest, const std::string& config_text,
                            const DeviceFacts& device) {
  // The layout only says how attnforge would allocate; it must not bind the two lengths to each
  // other here.
  if (largest.layout == Layout::kPackedQkv) largest.layout = Layout::kBshd;
  validate(largest);
  const Config config = parse_config(config_text);
  const Family* family = find_family(config.family);
  ATTNFORGE_ASSERT(family != nullptr, "the config of a plan is of a family of this build");
  // A batch below its bucket's may have more splits of the keys than a larger one
  // (splits_of_batch() in templates/host/split_counts.h), but no more in all than the bucket's.
  Problem of_bucket = largest;
  of_bucket.batch = bucket_batch(largest.batch);
  if (of_bucket.mask_batch != 1) of_bucket.mask_batch = of_bucket.batch;
  if (largest.op == Op::kForward && !largest.batch_invariant && products_within_limits(of_bucket) &&
      family->supports(of_bucket, device.arch).empty())
    largest = of_bucket;
  // That a family's workspace grows with batch and lengths is a rule for families
  // (docs/ADDING_A_FAMILY.md) that a test checks.
  return family->launch(config, largest, device).workspace_bytes;
}

}  // namespace attnforge
