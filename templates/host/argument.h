// argument.h - puts a kernel's one argument together from its parts, at the offsets that they have
// in its struct.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>

#include "attnforge/problem.h"
#include "generator/launch.h"

namespace attnforge {

/// The members of the struct are added in their order. Each goes to the next multiple of its
/// alignment, as compilers lay a struct out, so offsets are running sums.
class Argument {
 public:
  /// FwdParams: sizes and scale now, pointers and strides by each run.
  Argument& fwd(const Problem& problem);
  /// RopeParams: by each run; zeros if the problem has no rope.
  Argument& rope(const Problem& problem);
  /// TensorMap: by each run.
  Argument& tensor_map(const TensorMapSpec& map);
  /// A pointer to `begin` bytes after the start of the workspace.
  Argument& scratch(std::size_t begin);
  /// A pointer to a set of counters.
  Argument& counters();
  /// What the launch decides.
  template <class Value>
  Argument& value(const Value& value) {
    static_assert(std::is_trivially_copyable_v<Value>);
    add(&value, sizeof(value), alignof(Value));
    return *this;
  }

  /// Sets params and args of `step`, whose kernel takes a Params. Throws Error(kInternal) if Params
  /// has another size.
  template <class Params>
  void put(LaunchStep& step) const {
    static_assert(std::is_trivially_copyable_v<Params> && sizeof(Params) <= kMaxParamsBytes);
    put(step, sizeof(Params));
  }

 private:
  /// Returns its offset.
  std::size_t add(const void* value, std::size_t size, std::size_t alignment);
  template <class Value>
  std::size_t add_zeros() {
    const Value zeros{};
    return add(&zeros, sizeof(zeros), alignof(Value));
  }
  void add_part(const ArgumentPart& part);
  void put(LaunchStep& step, std::size_t size) const;

  // Not on the heap: a plan for new sizes costs less than a microsecond.
  std::array<std::byte, kMaxParamsBytes> bytes_;
  std::array<ArgumentPart, 16> parts_;
  std::size_t size_ = 0, num_parts_ = 0, alignment_ = 1;
};

}  // namespace attnforge
