#include "templates/host/argument.h"

#include <algorithm>
#include <cstring>

#include "attnforge/error.h"
#include "templates/host/fwd_params.h"

namespace attnforge {
namespace {

constexpr std::size_t kMostParts = 12;  // of nearly all arguments

}  // namespace

Argument::Argument(LaunchStep& step, std::size_t size) : step_(step) {
  step.params.assign(size, std::byte{0});
  step.args.reserve(kMostParts);
}

Argument Argument::of_size(LaunchStep& step, std::size_t size) {
  ATTNFORGE_ASSERT(size <= kMaxParamsBytes, "an argument fits what a run copies to its stack");
  return Argument(step, size);
}

void Argument::done() const {
  ATTNFORGE_ASSERT(aligned(end_, alignment_) == step_.params.size(),
                   "the parts of an argument are all members of its struct");
}

void Argument::end_of_base(std::size_t size, std::size_t alignment) {
  ATTNFORGE_ASSERT(aligned(end_, alignment_) == size,
                   "the parts of an argument are all members of its base");
  end_ = size;
  alignment_ = std::max(alignment_, alignment);
}

Argument& Argument::fwd(const Problem& problem) {
  return field(fwd_params(problem), FwdArgument{problem.dtype_k, problem.dtype_v});
}

Argument& Argument::tensor_map(const TensorMapSpec& map, const TensorMapSizes& sizes) {
  static_assert(sizeof(sizes) <= sizeof(TensorMap));
  const std::size_t offset = next(sizeof(TensorMap), alignof(TensorMap));
  std::memcpy(step_.params.data() + offset, &sizes, sizeof(sizes));
  step_.args.push_back({offset, map});
  return *this;
}

Argument& Argument::scratch(std::size_t begin, bool there) {
  static_assert(sizeof(begin) == sizeof(void*));
  if (!there) return value<void*>(nullptr);
  return field(begin, ScratchArgument{});
}

Argument& Argument::counters() { return field(static_cast<void*>(nullptr), CountersArgument{}); }

}  // namespace attnforge
