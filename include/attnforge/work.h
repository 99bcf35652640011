// work.h - what a run computes, as far as it is known: the pairs that its mask lets through,
// counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "attnforge/host_tensors.h"
#include "attnforge/problem.h"

namespace attnforge {

/// Floating point operations, or why they are unknown: then there are no TFLOP/s.
struct Work {
  double flops = 0;       // flops_of_pairs() of the visible pairs; 0 where they are not known
  std::string unknown{};  // "only the GPU knows how long its sequences are"; "": they are known

  bool is_known() const { return unknown.empty(); }
  /// TFLOP/s of a run that takes so long; 0: not known.
  double tflops_per_s(double time_us) const { return time_us > 0 ? flops / time_us * 1e-6 : 0; }
};

/// Exact: windows, those of a mask text among them, and whole blocks by their sizes; what else a
/// text hides by asking it of each pair, of at most 2^24 of them, fewer of a long text. Of `tables`
/// only lengths, block masks and arrays are looked at; those that are empty are not known. `arrays`
/// are the bytes of each of the problem's arguments in their order, in place of the tables', empty
/// for numbers and for arrays that are not known. Not known either is a text that only a compiler
/// can read. Throws Error(kInvalidArgument) for lengths and lists that are none of the problem's.
ATTNFORGE_API Work work_of(const Problem& problem, const HostTensors& tables = {},
                           std::span<const std::span<const std::byte>> arrays = {});

/// The work of a run on the tables that tune() and measure() make up.
ATTNFORGE_API Work timed_work(const Problem& problem, std::uint64_t seed = 1);

/// Which keys a query sees for where it stands: from its position - left to its position + right;
/// none: all on that side. Bounds of a mask text may be negative.
struct SeenKeys {
  std::optional<std::int64_t> left{}, right{};
  bool more_hidden = false;  // a mask's blocks or text hide some of these too
  bool text_hides = false;   // a text does, of which estimates know no more than windows
};
ATTNFORGE_API SeenKeys seen_keys(const Problem& problem);

}  // namespace attnforge
