#include "templates/host/argument.h"

#include <algorithm>
#include <cstring>

#include "attnforge/error.h"
#include "templates/host/fwd_params.h"
#include "templates/params_fwd.h"

namespace attnforge {
namespace {

std::size_t multiple(std::size_t size, std::size_t of) { return (size + of - 1) / of * of; }

}  // namespace

std::size_t Argument::add(const void* value, std::size_t size, std::size_t alignment) {
  const std::size_t offset = multiple(size_, alignment);
  ATTNFORGE_ASSERT(offset + size <= bytes_.size(), "an argument is within kMaxParamsBytes");
  std::memset(bytes_.data() + size_, 0, offset - size_);
  std::memcpy(bytes_.data() + offset, value, size);
  size_ = offset + size;
  alignment_ = std::max(alignment_, alignment);
  return offset;
}

void Argument::add_part(const ArgumentPart& part) {
  ATTNFORGE_ASSERT(num_parts_ < parts_.size(), "an argument has at most 16 parts of a run");
  parts_[num_parts_++] = part;
}

void Argument::put(LaunchStep& step, std::size_t size) const {
  ATTNFORGE_ASSERT(multiple(size_, alignment_) == size,
                   "the parts of an argument are the members of its struct");
  step.params.assign(size, std::byte{0});
  std::memcpy(step.params.data(), bytes_.data(), size_);
  step.args.assign(parts_.begin(), parts_.begin() + static_cast<std::ptrdiff_t>(num_parts_));
}

Argument& Argument::fwd(const Problem& problem) {
  const FwdParams sizes = fwd_params(problem);
  add_part({add(&sizes, sizeof(sizes), alignof(FwdParams)), FwdArgument{}});
  return *this;
}

Argument& Argument::rope(const Problem& problem) {
  const std::size_t offset = add_zeros<RopeParams>();
  if (problem.rope != Rope::kNone) {
    add_part({offset, RopeArgument{.first_position = problem.seqlen_kv - problem.seqlen_q}});
  }
  return *this;
}

Argument& Argument::tensor_map(const TensorMapSpec& map) {
  add_part({add_zeros<TensorMap>(), map});
  return *this;
}

Argument& Argument::scratch(std::size_t begin) {
  add_part({add_zeros<void*>(), ScratchArgument{begin}});
  return *this;
}

Argument& Argument::counters() {
  add_part({add_zeros<void*>(), CountersArgument{}});
  return *this;
}

}  // namespace attnforge
