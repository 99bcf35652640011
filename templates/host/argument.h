// argument.h - puts a kernel's one argument together from its parts, each at its offset.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "attnforge/error.h"
#include "attnforge/problem.h"
#include "generator/launch.h"

namespace attnforge {

namespace detail {

template <auto kBind, class Params>
OwnArgument own_argument(void (*)(Params&, const Tensors&, const RunMemory&)) {
  static_assert(std::is_trivially_copyable_v<Params>);
  return {sizeof(Params),
          [](std::span<std::byte> place, const Tensors& tensors, const RunMemory& memory) {
            Params params;  // `place` need not be aligned
            std::memcpy(&params, place.data(), sizeof(params));
            kBind(params, tensors, memory);
            std::memcpy(place.data(), &params, sizeof(params));
          }};
}

}  // namespace detail

/// A struct Params that kBind, a function void(Params&, const Tensors&, const RunMemory&), fills
/// in.
template <auto kBind>
OwnArgument own_argument() {
  return detail::own_argument<kBind>(kBind);
}

/// `size` rounded up to an alignment, which is a power of two.
constexpr std::size_t aligned(std::size_t size, std::size_t alignment) {
  return (size + alignment - 1) & ~(alignment - 1);
}

/// The members of the struct are added in their order, and done() ends them. Each goes to the next
/// multiple of its alignment, as compilers lay a struct out, so offsets are running sums.
class Argument {
 public:
  /// The argument of `step`, whose kernel takes a Params.
  template <class Params>
  static Argument of(LaunchStep& step) {
    static_assert(std::is_trivially_copyable_v<Params> && sizeof(Params) <= kMaxParamsBytes);
    return Argument(step, sizeof(Params));
  }
  /// An argument of `size` bytes. Throws Error(kInternal) for one that no run could copy.
  static Argument of_size(LaunchStep& step, std::size_t size);

  /// FwdParams: sizes and scale now, pointers and strides by each run.
  Argument& fwd(const Problem& problem);
  /// TensorMap: sizes now, the map by each run.
  Argument& tensor_map(const TensorMapSpec& map, const TensorMapSizes& sizes);
  /// A pointer to `begin` bytes after the start of the workspace, or null.
  Argument& scratch(std::size_t begin, bool there = true);
  /// A pointer to a set of counters.
  Argument& counters();
  /// What the launch decides, one member after another; pointers too.
  template <class... Values>
  Argument& value(const Values&... values) {
    static_assert((std::is_trivially_copyable_v<Values> && ...));
    (put(values), ...);
    return *this;
  }
  /// What each run fills in, and how.
  template <class Value, class Field>
  Argument& field(const Value& value, Field field) {
    static_assert(std::is_trivially_copyable_v<Value>);
    step_.args.push_back({put(value), std::move(field)});
    return *this;
  }
  /// A struct of the launch's numbers that each run fills in by kBind, a function
  /// void(Params&, const Tensors&, const RunMemory&).
  template <auto kBind, class Params>
  Argument& own(const Params& planned) {
    return field(planned, own_argument<kBind>());
  }
  /// `bytes` that each run fills in, zeros before.
  template <class Field>
  Argument& zeros(std::size_t bytes, std::size_t alignment, Field field) {
    step_.args.push_back({next(bytes, alignment), std::move(field)});
    return *this;
  }
  /// What follows lies after a base class of `size` bytes, which ends here, and in whose alignment
  /// it ends. Throws as done() does.
  void end_of_base(std::size_t size, std::size_t alignment);
  template <class Params>
  Argument& end_of_base() {
    end_of_base(sizeof(Params), alignof(Params));
    return *this;
  }
  /// Throws Error(kInternal) if the members are not as large as Params; so does each one too many.
  void done() const;

 private:
  Argument(LaunchStep& step, std::size_t size);
  /// Where the next member lies, which is zeros so far. In line, as put() is: of a plan for a new
  /// length an argument of twenty members is a good part, and here their sizes are known.
  std::size_t next(std::size_t size, std::size_t alignment) {
    const std::size_t offset = aligned(end_, alignment);
    end_ = offset + size;
    alignment_ = std::max(alignment_, alignment);
    ATTNFORGE_ASSERT(end_ <= step_.params.size(), "the parts of an argument fit its struct");
    return offset;
  }
  /// Returns where.
  template <class Value>
  std::size_t put(const Value& value) {
    const std::size_t offset = next(sizeof(value),  // NOLINT(bugprone-sizeof-expression)
                                    alignof(Value));
    std::memcpy(step_.params.data() + offset, &value,
                sizeof(value));  // NOLINT(bugprone-sizeof-expression)
    return offset;
  }

  LaunchStep& step_;
  std::size_t end_ = 0, alignment_ = 1;
};

}  // namespace attnforge
