// part.h - what the optional parts of a problem add to a kernel: members of its argument after the
// family's own, and pieces. Families name no part.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "attnforge/problem.h"
#include "templates/host/argument.h"
#include "templates/host/kernel_source.h"

namespace attnforge {

struct TileWork;  // templates/host/tile_source.h

/// A row for each part, in the order of their members in the argument.
struct Part {
  /// gathers: KernelNames::gathers.
  bool (*in)(const Problem&, bool gathers);
  /// The type of an argument with the member, made of that without it: "WithSizes<Params, 2>".
  std::string (*type)(const Problem&, std::string_view params);
  /// Of the member: aligned to kPartAlignment, its size a multiple of that.
  std::size_t (*bytes)(const Problem&);
  void (*add)(Argument&, const Problem&, const TileWork&);
  /// Pieces and declarations. names.params is the whole argument's type already.
  void (*extend)(KernelNames&, const Problem&);
  /// The end of a kernel's symbol, of any problem; null: none.
  std::string (*suffix)(const Problem&) = nullptr;
};
inline constexpr std::size_t kPartAlignment = 16;

/// The type of an argument whose family's own is a `params`.
std::string argument_type(const Problem& problem, bool gathers, std::string_view params);

/// A kernel's symbol: that of the family's config, and what tells kernels of other problems apart.
std::string symbol_of_kernel(std::string symbol, const Problem& problem);

inline constexpr std::size_t kNumberOfParts = 7;

/// Those that a problem has, in their order.
struct PartsOfProblem {
  std::array<const Part*, kNumberOfParts> list{};
  std::size_t count = 0;

  auto begin() const { return list.begin(); }
  auto end() const { return list.begin() + count; }
};
PartsOfProblem parts_of(const Problem& problem, const TileWork& work);

/// Of an argument whose family's own is of `size` and `alignment`.
std::size_t argument_bytes(const PartsOfProblem& parts, const Problem& problem, std::size_t size,
                           std::size_t alignment);

/// `names` of a kernel, whose argument's own type is names.params, with what the problem's parts
/// add to it. `size` and `alignment` are that type's.
KernelNames with_parts(KernelNames names, const Problem& problem, std::size_t size,
                       std::size_t alignment);

/// Fills the argument of `step`, whose kernel takes a Params: fill(Argument&) adds what that has,
/// and what the problem's parts need comes after it.
template <class Params, class Fill>
void fill_argument(LaunchStep& step, const Problem& problem, const TileWork& work,
                   const Fill& fill) {
  const PartsOfProblem parts = parts_of(problem, work);
  Argument argument = Argument::of_size(
      step, argument_bytes(parts, problem, sizeof(Params), alignof(Params)));
  fill(argument);
  argument.template end_of_base<Params>();
  for (const Part* part : parts) part->add(argument, problem, work);
  argument.done();
}

/// `names` of a kernel whose argument is a Params, with the problem's parts.
template <class Params>
KernelNames with_parts(KernelNames names, const Problem& problem) {
  return with_parts(std::move(names), problem, sizeof(Params), alignof(Params));
}

}  // namespace attnforge
